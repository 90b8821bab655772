// Shows how far a run is: one line that is redrawn on a terminal, plain lines through the log
// elsewhere. The functions that format are pure; the clock is a parameter.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "telemetry/log.h"

namespace ada::telemetry {

// Measures events per second, smoothed: a moving average whose weights fall by half each
// `half_life` seconds, right from the first interval on.
class RateMeter {
 public:
  explicit RateMeter(double half_life = 10) : half_life_(half_life) {}
  void Add(double count, double seconds);
  double per_second() const { return seconds_ > 0 ? count_ / seconds_ : 0; }

 private:
  double half_life_, count_ = 0, seconds_ = 0;
};

// What the line tells. A number of epochs or steps that is zero is not known and not shown.
struct ProgressState {
  std::int64_t epoch = 0, epochs = 0;
  std::int64_t step = 0, steps = 0;
  double loss = 0, accuracy = 0;  // accuracy in 0..1
  double scale = 1;
  std::int64_t skipped = 0;
  double images_per_second = 0;  // 0: not known yet
  double seconds_left = -1;      // below 0: not known
};

// "1.25", "540", "1234", "12.3k", "1.2M".
std::string FormatCount(double value);
// "0:07", "12:34", "1:02:03", "2d 03:04" (days, hours, minutes).
std::string FormatDuration(double seconds);
// "epoch 3/164  step 1234/64124  loss 1.234  acc 56.7%  scale 16  skipped 2  541 img/s  left
// 1:02:03"
std::string FormatProgress(const ProgressState& state);
// Returns `value` for printf, without the sign of a NaN, which printf would show as "-nan".
double Printable(double value);
// Returns the first `width` columns (the text is ASCII); the last ones are dots where something is
// cut off.
std::string Truncate(const std::string& line, int width);

// Returns the seconds of a clock that only goes forward.
double SteadySeconds();

class Progress {
 public:
  using Clock = std::function<double()>;
  // `line`: the user wants the line (no --no-progress, no --quiet); it takes a terminal as well.
  // Else plain lines go to the log at level info: at the end of each epoch, and every 30 seconds.
  Progress(Log& log, bool line, Clock clock = SteadySeconds);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Is called once a step, which had this many `images`. It fills in the rate and the time left;
  // `seconds_limit` is what train.max_minutes leaves (below 0: no limit). It is cheap: nothing is
  // formatted between redraws (ten a second).
  void Update(const ProgressState& state, std::int64_t images, double seconds_limit = -1);
  // Is called after the epoch's last step.
  void EndEpoch();
  // The time since the last step does not count as training (evaluation, checkpoint). `activity` is
  // shown instead of the numbers; empty: nothing new.
  void Pause(const std::string& activity = "");
  const ProgressState& state() const {
    return state_;
  }              // of the last Update, with rate and time left
  void Clear();  // takes the line away; the next Update draws it again

 private:
  void Draw(bool epoch_end);

  Log& log_;
  Clock clock_;
  bool line_;
  ProgressState state_;
  RateMeter images_, steps_;
  std::optional<double> last_step_;  // when; none: not counted from
  double last_draw_;
  bool logged_ = true;  // the state went to the log as a plain line
};

}  // namespace ada::telemetry

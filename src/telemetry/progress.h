// Shows how far a run or an evaluation is: one line that is redrawn on a terminal, plain lines
// through the log elsewhere. The clock is a parameter.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "telemetry/log.h"
#include "telemetry/progress_text.h"

namespace ada::telemetry {

// Returns the seconds of a clock that only goes forward.
double SteadySeconds();

using Clock = std::function<double()>;

// Where progress is shown, and how often. `wanted`: the user wants the line (no --no-progress, no
// --quiet): on a terminal it is redrawn, elsewhere plain lines go to the log at level info. A line
// that is not wanted goes to log.txt alone.
class ProgressLine {
 public:
  ProgressLine(Log& log, bool wanted, Clock clock);
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool drawn() const { return drawn_; }  // as one line; else plain ones
  bool color() const { return color_; }
  int width() const { return log_.width() - 1; }  // of the line
  double Now() const { return clock_(); }
  // Whether an update may be shown: ten times a second, or a plain line every 30 seconds.
  bool Due() const;
  void Draw(const std::string& line);  // only if it is redrawn in place
  void Say(const std::string& line);   // prints a permanent line
  void Clear();                        // removes the redrawn line

 private:
  Log& log_;
  Clock clock_;
  bool wanted_, drawn_, color_;
  double last_;
};

// Progress of training; the session calls it, from one thread. Messages of the log go above the
// line.
class Progress {
 public:
  // Plain lines: at the end of each epoch, and every 30 seconds.
  Progress(Log& log, bool wanted, Clock clock = SteadySeconds);

  // To be called once a step, which had `images` images. Smooths loss and accuracy, and computes
  // the rate and the time left; `seconds_limit` is what remains of train.max_minutes (below 0: no
  // limit). It is cheap: nothing is formatted between redraws.
  void Update(const ProgressState& state, std::int64_t images, double seconds_limit = -1);
  // To be called after the epoch's last step.
  void EndEpoch();
  // Excludes the time since the last step from training time (evaluation, checkpoint). `activity`
  // is shown instead of the numbers; empty: nothing new is shown.
  void Pause(const std::string& activity = "");
  // The state of the last Update, smoothed, with rate and time left.
  const ProgressState& state() const { return state_; }
  void Clear() { line_.Clear(); }  // the next Update draws it again

 private:
  void Show(bool epoch_end);

  ProgressLine line_;
  ProgressState state_;
  RateMeter images_, steps_;
  Smoothed loss_, accuracy_;
  std::optional<double> last_step_;  // time of it; unset: do not measure from it
  bool logged_ = true;               // the state was logged as a plain line
};

// Progress over one split's images in evaluations or checks; its destructor removes the line.
class EvaluationProgress {
 public:
  // activity: "evaluating test"; tokens: as ProgressState's.
  EvaluationProgress(Log& log, bool wanted, std::string activity, std::int64_t images,
                     Clock clock = SteadySeconds, std::int64_t tokens = 0);
  void Update(std::int64_t done);  // images, of all

 private:
  ProgressLine line_;
  std::string activity_;
  std::int64_t images_, tokens_, done_ = 0;
  RateMeter rate_;
  double last_;
};

}  // namespace ada::telemetry

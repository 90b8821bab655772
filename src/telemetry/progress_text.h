// Computes and formats progress: smoothed numbers, and lines that fit a width. Pure
// functions.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace ada::telemetry {

// Measures events per second as a moving average whose weights halve every `half_life` seconds; it
// is correct from the first interval on.
class RateMeter {
 public:
  explicit RateMeter(double half_life = 10) : half_life_(half_life) {}
  void Add(double count, double seconds);
  double per_second() const { return seconds_ > 0 ? count_ / seconds_ : 0; }

 private:
  double half_life_, count_ = 0, seconds_ = 0;
};

// Smooths values that vary from batch to batch: a mean over all so far, in which each weighs 2 %
// less than the next. A value that is not finite is shown as it is, but not included.
class Smoothed {
 public:
  void Add(double value);
  double value() const { return last_finite_ ? sum_ / weight_ : last_; }

 private:
  double sum_ = 0, weight_ = 0, last_ = 0;
  bool last_finite_ = false;
};

// The content of the line. A number of epochs or steps that is zero is unknown and not shown.
struct ProgressState {
  std::int64_t epoch = 0, epochs = 0;
  std::int64_t step = 0, steps = 0;
  double loss = 0, accuracy = 0;  // accuracy in 0..1
  double scale = 1;
  std::int64_t skipped = 0;
  double images_per_second = 0;  // 0: not known yet
  double seconds_left = -1;      // below 0: not known
  std::int64_t tokens = 0;       // of a sequence, which counts as an image; 0: they are images
};

// The number of epochs in a run of `steps` steps, of which `epoch` make one; 0 if the last epoch
// would be incomplete: then progress is shown by steps only.
std::int64_t WholeEpochs(std::int64_t steps, std::int64_t epoch);

// "1.25", "540", "1234", "12.3k", "1.2M".
std::string FormatCount(double value);
// "0:07", "12:34", "1:02:03", "2d 03:04" (days, hours, minutes).
std::string FormatDuration(double seconds);
// "epoch 3/164  step 1234/64124  loss 1.234  acc 56.7%  scale 16  skipped 2  541 img/s  left
// 1:02:03" in at most `width` columns: "skipped 0" goes first, then scale, accuracy, epoch,
// "skipped 2", loss and step; rate and time left stay. `color`: for a terminal that has colors.
std::string FormatProgress(const ProgressState& state, int width = std::numeric_limits<int>::max(),
                           bool color = false);
// "evaluating test  3200/10000 images  541 img/s  left 0:12" in at most `width` columns;
// activity: its first two words. tokens: as ProgressState's; "evaluating test  320/1000 sequences
// 5410 tokens/s  left 0:12".
std::string FormatEvaluation(const std::string& activity, std::int64_t done, std::int64_t images,
                             double images_per_second, int width = std::numeric_limits<int>::max(),
                             std::int64_t tokens = 0);
// Returns `value` for printf, without the sign of a NaN, which printf would show as "-nan".
double Printable(double value);
// Returns the first `width` columns (the text is ASCII); the last ones are dots where something is
// cut off.
std::string Truncate(const std::string& line, int width);

// e^loss of a language model, whose loss is in nats per token: guessing among this many equally
// likely tokens would be as hard.
inline double Perplexity(double loss) { return std::exp(loss); }
// The loss in bits instead of nats; if tokens are bytes, bits per byte.
inline double Bits(double loss) { return loss / std::log(2.0); }

// Returns whether top-5 is meaningful: whether some class may be missing among the five likeliest.
// `classes` 0: not known.
constexpr bool TopFiveTells(int classes) { return classes == 0 || classes > 5; }

}  // namespace ada::telemetry

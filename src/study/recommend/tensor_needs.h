// What each tensor of a run asks of its format and of the scale that it carries, from the run's
// histograms and counts.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "study/run_histograms.h"

namespace ada::study {

// Scales 2^low .. 2^high.
struct Powers {
  int low = -126, high = 127;
  bool any() const { return low <= high; }
};

struct TensorNeeds {
  static constexpr int kNothing = std::numeric_limits<int>::max();
  std::string layer, tensor;
  NumberFormat format;
  // |x| from 2^keep on must not underflow: below it lies at most the target's share of the non-zero
  // values of any step. kNothing: no step had one.
  int keep = kNothing;
  double largest = 0;     // finite |x| of all logged steps, unscaled
  double range_log2 = 0;  // of the step in which it was largest
  double scale = 1;       // that it carried last
  // What the run lost: the largest share of a step in percent of non-zero values, and its step; all
  // values that overflowed. Steps that left inf or NaN in the tensor are not looked at.
  double lost_pct = 0;
  std::int64_t lost_step = 0, overflow = 0;

  std::string name() const { return layer + "." + tensor; }
  bool carries_s() const { return tensor == "dx" || tensor == "dy"; }
};

// The scales at which `format` loses no more than the target of any step, with the largest value
// `headroom_bits` powers of two below the format's largest.
Powers PowersFor(const TensorNeeds& needs, const NumberFormat& format, double headroom_bits);

struct RunNeeds {
  std::vector<TensorNeeds> tensors;                       // in the order of execution
  std::int64_t steps = 0, first_step = 0, last_step = 0;  // with histograms
  std::int64_t first_epoch = 0, last_epoch = 0;           // of these
  std::int64_t logged_steps = 0;                          // with rows in underflow.csv
  // Histograms with inf or NaN, which show what an overflow has left over: they are not looked at.
  std::int64_t left_out = 0;
};
// Whether so much of a gradient was lost that what comes behind it says little about small values.
bool MuchWasLost(const RunNeeds& needs);

// Throws DataError as the readers do.
RunNeeds CollectNeeds(const std::string& folder, const TensorFormats& formats,
                      double underflow_target_pct);

}  // namespace ada::study

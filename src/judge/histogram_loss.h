// What a format at a scale loses of a tensor, from the histogram of its exponents, and what a
// step's gradients would have come to under other scales and formats.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/tensor_names.h"
#include "number/stats.h"

namespace ada::judge {

// One tensor of one step as the run had it.
struct HistogramOfTensor {
  std::string layer, tensor;  // y w dx dx2 dw dy
  NumberFormat format;
  double scale = 1;  // that it carried
  const ExponentBins* bins = nullptr;
  double per_tensor_scale = 1;  // the part of `scale` that comes on top of a policy's S

  bool carries_s() const { return CarriesS(tensor); }
};

// The highest exponent that occurs; kLowest - 1 where all are zero.
int TopExponent(const ExponentBins& bins);
// The lowest exponent below which no more than `allowed` values lie; nothing where none lie above.
std::optional<int> LowestKept(const ExponentBins& bins, double allowed);
// WouldLoseOf, but of any scale: at 0 everything underflows, at inf or NaN everything overflows.
WouldLose LostAt(const ExponentBins& bins, const NumberFormat& format, double scale);
// The share, in percent, of the sum of magnitudes that the format's lower end loses. Values are
// taken as evenly spread within their bin.
double LostMagnitudePct(const ExponentBins& bins, const NumberFormat& format, double scale);

// Scales 2^low .. 2^high.
// Defaults are all scales that a run may have; low above high: there is none.
struct Powers {
  int low = -126, high = 127;
  // Whether values that 2^low takes to the threshold itself are lost: rounding to nearest takes a
  // tie to zero.
  bool loses_ties = false;
  bool any() const { return low <= high; }
  // The smallest of them at which no tie is lost, if they are more than one.
  int sure() const { return loses_ties && low < high ? low + 1 : low; }
  // Whether 2^first .. 2^last are among them, without a tie that is lost.
  bool Hold(double first, double last) const {
    return low + (loses_ties ? 1 : 0) <= first && high >= last;
  }
};
// What a scale has to bring into a format: magnitudes from 2^keep on, up to `largest` (0: not
// known), unscaled.
struct Range {
  int keep = 0;
  double largest = 0;
  bool stochastic = false;  // rounding may lose all that lies below the smallest number
};
// Returns the scales at which the format keeps the range, `headroom_bits` powers of two below its
// largest value.
Powers PowersFor(const NumberFormat& format, const Range& range, double headroom_bits);
// The highest of these, for all that has this largest value.
int HighestPower(const NumberFormat& format, double largest, double headroom_bits);

// Made for one step and discarded after it. All numbers are computed from exponents, as if values
// were evenly distributed in their bin.
class StepHistograms {
 public:
  // `format`: of all tensors instead of their own; where the tensor's own saturates, or rounds by a
  // mode, so does it.
  // `tensors` must outlive it.
  StepHistograms(const std::vector<HistogramOfTensor>& tensors,
                 const std::optional<NumberFormat>& format);

  std::size_t size() const { return tensors_.size(); }
  const HistogramOfTensor& operator[](std::size_t i) const { return tensors_[i]; }
  const NumberFormat& format(std::size_t i) const { return formats_[i]; }  // as it is judged
  // The index of a tensor; size() where the step has none.
  std::size_t Find(const std::string& layer, const std::string& tensor) const;

  // How many values of tensor `i` would overflow (WouldLose::overflow).
  double Overflow(std::size_t i, double scale) const;
  // Whether that makes it inf or NaN: half a value or more, in a format that has either and does
  // not saturate.
  bool Breaks(std::size_t i, double scale) const {
    return CanBreak(i) && Overflow(i, scale) >= kBreaks;
  }
  // Whether the step's gradients would not be finite if its tensors carried `scales`: an expected
  // overflow of half a value or more in all dx and dy together (where formats do not saturate), or
  // inf and NaN that the step had and that no overflow of its per-tensor scales explains.
  bool NotFinite(const std::vector<double>& scales) const;

  // Upper end of the highest exponent of all dw (of all dx where no dw was recorded), unscaled.
  double LargestGradient() const;
  // Values of all dx that would lie above `edge` times their format's largest value.
  double CountAbove(double edge, const std::vector<double>& scales) const;
  std::int64_t CountDx() const;

 private:
  static constexpr double kBreaks = 0.5;
  bool CanBreak(std::size_t i) const { return !formats_[i].saturate && formats_[i].has_nan; }
  bool HadUnexplained() const;

  const std::vector<HistogramOfTensor>& tensors_;
  std::vector<NumberFormat> formats_;
  std::vector<int> tops_;
  std::vector<double> thresholds_;  // of overflow
  bool unexplained_ = false;
};

}  // namespace ada::judge

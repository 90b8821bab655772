// Answers questions about a step's gradients at other scales, by shifting the bins of its
// histograms.
#include "judge/histogram_loss.h"

#include <algorithm>
#include <cmath>

#include "io/tensor_names.h"
#include "number/stats.h"

namespace ada::judge {

int TopExponent(const ExponentBins& bins) {
  for (int e = ExponentBins::kHighest; e >= ExponentBins::kLowest; --e)
    if (bins[e] > 0) return e;
  return ExponentBins::kLowest - 1;
}

std::optional<int> LowestKept(const ExponentBins& bins, double allowed) {
  double below = 0;
  for (int e = ExponentBins::kLowest; e <= ExponentBins::kHighest; ++e) {
    below += static_cast<double>(bins[e]);
    if (below > allowed) return e;
  }
  return std::nullopt;
}

WouldLose LostAt(const ExponentBins& bins, const NumberFormat& format, double scale) {
  if (std::isfinite(scale) && scale > 0) return WouldLoseOf(bins, format, scale);
  WouldLose lost;
  lost.nonzero = bins.nonzero();
  (scale == 0 ? lost.underflow : lost.overflow) = static_cast<double>(lost.nonzero);
  return lost;
}

double LostMagnitudePct(const ExponentBins& bins, const NumberFormat& format, double scale) {
  const LostEnds ends = LostEndsOf(format);
  double lost = 0, all = 0;
  for (int e = ExponentBins::kLowest; e <= ExponentBins::kHighest; ++e) {
    if (bins[e] == 0) continue;
    const double low = std::ldexp(1.0, e), magnitude = 1.5 * low * static_cast<double>(bins[e]);
    all += magnitude;
    for (const double threshold : {ends.zero_below / scale, ends.kept_from / scale})
      lost += magnitude / 2 * std::clamp((threshold - low) / low, 0.0, 1.0);
  }
  return all > 0 ? 100 * lost / all : 0;
}

int HighestPower(const NumberFormat& format, double largest, double headroom_bits) {
  const double room = format.largest() * std::exp2(-headroom_bits);
  const int high = std::ilogb(room / largest);
  // ilogb of a quotient that was rounded up may be one too high.
  return std::ldexp(largest, high) > room ? high - 1 : high;
}

// Values up to and including half of the smallest number become zero; under stochastic rounding and
// most modes all below the smallest number may, under toward_odd none does.
Powers PowersFor(const NumberFormat& format, const Range& range, double headroom_bits) {
  Powers powers;
  const double smallest = format.smallest_subnormal();
  const double kept_from = range.stochastic ? smallest : LostEndsOf(format).kept_from;
  powers.loses_ties = kept_from < smallest && kept_from > 0;
  // This brings 2^keep to where values are kept: of the values from there on only those equal to
  // half of the smallest number are lost.
  if (kept_from > 0) powers.low = std::max(powers.low, std::ilogb(kept_from) - range.keep);
  if (range.largest != 0)
    powers.high = std::min(powers.high, HighestPower(format, range.largest, headroom_bits));
  return powers;
}

StepHistograms::StepHistograms(const std::vector<HistogramOfTensor>& tensors,
                               const std::optional<NumberFormat>& format)
    : tensors_(tensors) {
  for (const HistogramOfTensor& t : tensors) {
    NumberFormat judged = format ? RoundedLike(*format, t.format) : t.format;
    judged.saturate = judged.saturate || (t.format.saturate && judged != kFp32);
    formats_.push_back(judged);
    tops_.push_back(TopExponent(*t.bins));
    // For fp32 itself it is the end of its range.
    thresholds_.push_back(std::min(static_cast<double>(OverflowThreshold(judged)), 0x1p128));
  }
  unexplained_ = HadUnexplained();
}

// A tensor that overflowed in the run itself is judged by its finite values; the effects after it
// are unknown.
bool StepHistograms::HadUnexplained() const {
  const auto finite = [](const HistogramOfTensor& t) { return t.bins->inf + t.bins->nan == 0; };
  if (std::all_of(tensors_.begin(), tensors_.end(), finite)) return false;
  return std::none_of(tensors_.begin(), tensors_.end(), [](const HistogramOfTensor& t) {
    if (!t.carries_s()) return false;
    const WouldLose lost = LostAt(*t.bins, t.format, t.scale);
    return lost.overflow + static_cast<double>(lost.overflow_unsure) > 0;
  });
}

std::size_t StepHistograms::Find(const std::string& layer, const std::string& tensor) const {
  const auto same = [&](const HistogramOfTensor& t) {
    return t.layer == layer && t.tensor == tensor;
  };
  return static_cast<std::size_t>(std::find_if(tensors_.begin(), tensors_.end(), same) -
                                  tensors_.begin());
}

double StepHistograms::Overflow(std::size_t i, double scale) const {
  if (std::ldexp(scale, tops_[i] + 1) <= thresholds_[i]) return 0;
  return LostAt(*tensors_[i].bins, formats_[i], scale).overflow;
}

bool StepHistograms::NotFinite(const std::vector<double>& scales) const {
  double overflow = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].carries_s()) continue;
    const bool usable = std::isfinite(scales[i]) && scales[i] > 0;
    if (!usable) return true;  // what is divided by it is not finite
    if (CanBreak(i)) overflow += Overflow(i, scales[i]);
  }
  return unexplained_ || overflow >= kBreaks;
}

double StepHistograms::LargestGradient() const {
  const auto any_dw = std::any_of(tensors_.begin(), tensors_.end(),
                                  [](const HistogramOfTensor& t) { return t.tensor == "dw"; });
  int top = ExponentBins::kLowest - 1;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (any_dw ? tensors_[i].tensor == "dw" : IsDx(tensors_[i].tensor))
      top = std::max(top, tops_[i]);
  return top < ExponentBins::kLowest ? 0 : std::ldexp(1.0, top + 1);
}

double StepHistograms::CountAbove(double edge, const std::vector<double>& scales) const {
  double above = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!IsDx(tensors_[i].tensor)) continue;
    const ExponentBins& bins = *tensors_[i].bins;
    const double limit = edge * formats_[i].largest() / scales[i];
    for (int e = tops_[i]; e >= ExponentBins::kLowest; --e) {
      // Values are taken to lie evenly between 2^e and 2^(e + 1).
      const double share = std::min(2 - std::ldexp(limit, -e), 1.0);
      if (share <= 0) break;
      above += share * static_cast<double>(bins[e]);
    }
    above += static_cast<double>(bins.inf);
  }
  return above;
}

std::int64_t StepHistograms::CountDx() const {
  std::int64_t count = 0;
  for (const HistogramOfTensor& t : tensors_)
    if (IsDx(t.tensor)) count += t.bins->numel();
  return count;
}

}  // namespace ada::judge

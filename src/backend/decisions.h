// Decisions that every backend makes in the same way: what is rounded to which format, what is
// counted in which pass, where alpha is applied, and what is known about branches that are summed.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "backend/backend.h"
#include "backend/formulas.h"
#include "error.h"
#include "number/host_device.h"
#include "number/number_grid.h"
#include "scaling/rules/rules.h"

namespace ada::backend {

// --- Rounding ---

// The tensor that a gradient is rounded to. Without stats its values are exact and kept as they
// are: in fp32 they may be on a grid with a per-tensor scale, and in 16 bits they fit already.
inline Tensor RoundedTensorOf(const Gradient& g) {
  Tensor tensor = g.tensor;
  if (g.stats == nullptr && tensor.storage == Storage::kF32) tensor.format = kFp32;
  return tensor;
}
inline RoundingStyle RoundingStyleOf(const Gradient& g) {
  return g.stats == nullptr ? RoundingStyle{} : g.style;
}

// Whether a pass fills the style's bins, every field of `stats`, or counts for either of them.
inline bool FillsBins(const Pass& pass, const RoundingStyle& style, const TensorStats* stats) {
  return pass.count && pass.bins && stats != nullptr && style.bins != nullptr;
}
inline bool FillsStats(const Pass& pass, const RoundingStyle& style) {
  return pass.count && style.counted;
}
inline bool Counts(const Pass& pass, const RoundingStyle& style, const TensorStats* stats) {
  return stats != nullptr && (FillsStats(pass, style) || FillsBins(pass, style, stats));
}

// A matmul may leave recording the largest magnitude of its y or dx to the op that reads all of it
// next, in passes that measure nothing else; a library may then do the matmul's rounding. The
// reader sees stored values. That is sufficient: rounding to nearest is monotonic, so it sees the
// rounded largest magnitude, and infinity or NaN if a value overflowed or was not finite before.
// Returns whether a tensor's stored values tell it:
inline bool TellsAmax(const Tensor& tensor, const RoundingStyle& style) {
  return tensor.storage != Storage::kF32 && tensor.format == FormatOf(tensor.storage) &&
         !style.stochastic && style.per_tensor_scale == nullptr;
}
// Whether this pass defers it, in ops that may; the writing and the reading op both ask this.
inline bool DefersAmax(const Pass& pass, const RoundingStyle& style, const TensorStats* stats,
                       const TensorMoments* moments = nullptr) {
  return stats != nullptr && moments == nullptr && !Counts(pass, style, stats);
}

// The tensor of batch norm's first rounding, which is not stored if there is an addend.
inline Tensor NormalizedTensorOf(const BatchNormSpec& spec) {
  Tensor y = spec.out;
  if (spec.addend) y.format = spec.y_format;
  return y;
}

// Whether an op that moves values copies bytes unchanged in both directions.
template <class Spec>
bool MovesBytes(const Spec& spec) {
  return spec.x.format == spec.y.format && spec.x.storage == spec.y.storage &&
         (!spec.dx || (spec.dx.tensor.format == spec.dy.tensor.format &&
                       spec.dx.tensor.storage == spec.dy.tensor.storage));
}
// Whether dropout, of values or images, only copies. A scale of its own rounds to other values.
template <class Spec>
bool Copies(const Spec& spec, const Pass& pass) {
  return !pass.training && spec.x.format == spec.y.format && spec.x.storage == spec.y.storage &&
         spec.y_style.per_tensor_scale == nullptr;
}

inline LrnFactors FactorsOf(const LrnSpec& spec) {
  return {spec.alpha / spec.size, spec.beta, spec.k};
}

// Throws ConfigError where a window of max pooling has more positions than 16 bits can tell apart.
inline void CheckWindow(const MaxPoolSpec& spec) {
  if (std::int64_t{spec.kernel[0]} * spec.kernel[1] > std::numeric_limits<std::uint16_t>::max())
    throw ConfigError("max_pool: a kernel of " + std::to_string(spec.kernel[0]) + "x" +
                      std::to_string(spec.kernel[1]) + " has more than 65535 positions");
}

// --- Branches ---

// Whether the largest magnitude after rounding is the rounded largest magnitude before it: rounding
// to nearest is monotonic.
inline bool KeepsOrder(const Gradient& g) {
  return g.stats != nullptr && !g.style.stochastic && g.tensor.format.has_nan;
}

// u_max: the magnitude that the branches and their sum must stay below.
inline double BranchBound(const BranchSumSpec& spec) {
  const NumberFormat& format = spec.sum.tensor.format;
  // The authors' program uses fp16's range, whether the gradients are fp16 or fp32.
  if (spec.reference) return std::min(format.largest(), kFp16.largest());
  // A per-tensor scale keeps values in range, so only fp32's range matters.
  return (spec.sum.style.per_tensor_scale != nullptr ? kFp32 : format).largest();
}

// The largest magnitude of one branch, as stored; infinite or NaN where it holds such.
ADA_HOST_DEVICE static inline double LargestOf(const TensorMoments& moments) {
  if (!(std::fabs(moments.mean_square) < HUGE_VAL)) return moments.mean_square;
  const double low = std::fabs(static_cast<double>(moments.min));
  const double high = std::fabs(static_cast<double>(moments.max));
  return low < high ? high : low;
}
// The same for a branch that KeepsOrder, from the largest magnitude before rounding; own: its
// per-tensor scale.
ADA_HOST_DEVICE static inline double LargestOf(const NumberGrid& grid, float before, float own) {
  return std::fabs(static_cast<double>(RoundToGrid(grid, before * own) / own));
}
// The largest unscaled magnitude of the branches so far and one more; infinite if either is not
// finite.
ADA_HOST_DEVICE static inline double JoinBranch(double largest, double magnitude, float scale) {
  if (!(magnitude < HUGE_VAL)) return HUGE_VAL;
  const double unscaled = magnitude / static_cast<double>(scale);
  return largest < unscaled ? unscaled : largest;
}

// The logged decision of a sum that carries `scale`.
ADA_HOST_DEVICE static inline scaling::ScaleDecision BranchDecision(float scale, int halvings,
                                                                    scaling::DecisionError error) {
  scaling::ScaleDecision made;
  made.limit = scaling::Limit::kBranch;
  made.scale_in = made.scale_out = scale;
  made.halvings = halvings, made.error = error;
  return made;
}

}  // namespace ada::backend

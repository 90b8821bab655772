// The rules that turn statistics into scales: plain inline functions over plain structs, compiled
// by g++ and nvcc alike, called by every backend during backpropagation. No state beyond the
// structs. Sources: src/scaling/README.md; Zhao et al., IJCAI-20; kumasento/gradient-scaling,
// ada_loss/core.py.
#pragma once
#include <cstdint>

#include "scaling/rules/rule_types.h"

namespace ada::scaling {

// What the next call of Decide reads.
struct Needs {
  bool moments = false;   // Observation::dy and, of a layer with a weight, w
  bool logs = false;      // log_mean, log_std
  bool products = false;  // product_min, product_max
};
ADA_HOST_DEVICE inline Needs NeedsOf(const LayerScaler& scaler);
// Whether any call may need moments of dy and w, for a graph to plan. kExactRange needs none.
ADA_HOST_DEVICE inline bool MayNeedMoments(const LayerRule& rule);
// Whether it may need more of dy than mean_square and the largest magnitude, which are all that
// sums of branches and approx_range before a weight read.
ADA_HOST_DEVICE inline bool MayNeedAllMoments(const LayerRule& rule);
// Whether dy is multiplied by alpha, and then rounded, instead of dx: the authors' program does so.
// exact_range is not one of their methods: it uses dx before alpha.
inline bool AlphaComesFirst(const LayerRule& rule) {
  return rule.reference && rule.method != LayerMethod::kExactRange;
}

// Decides alpha of this backward pass and stores it in `scaler` (decision and state).
// Ours (reference off): alpha and S_out stay within 2^-126..2^127. Where dy, w, S_in or
// per_tensor_scale is not finite (S_in, per_tensor_scale: or not positive), alpha is 1, the limit
// kNonfinite, the stages are empty and the state stays, so that the next pass decides. `unbound` is
// cached for update_interval passes; the bounds SB and AB (approx_range and lognormal alone) are
// applied anew on every pass. With `reference`, under the authors' methods: their fp16 and fp32
// arithmetic and their exceptions (reference_inline.h); kExactRange and kState know no reference.
ADA_HOST_DEVICE inline void Decide(LayerScaler& scaler, const Observation& seen, float scale_in);

// kExactRange chooses a power of two from the tail of the last observed pass, brought to this
// pass's S_in (all magnitudes times r = S_in / tail.scale_in):
//   want = the smallest 2^k, k >= 0, at which at most underflow_target of the non-zero values are
//          lost, that is: lie in a bin whose low end * r * 2^k is below u_min / 2;
//   hi   = the largest power of two with largest * r * hi <= u_max / 2^headroom_bits.
// alpha = want (limit kTarget, or kOne where want is 1), but where hi < want alpha = hi and the
// limit kCap: an overflow costs the whole step, an underflow small values alone. Before the first
// tail: alpha 1, limit kOne. Neither SB nor AB applies, and power_of_two is always so. With
// update_interval N > 1 the passes 0, N, 2N.. are observed, and the pass after decides.
//
// Whether this pass's dgrad is to be observed. Called after Decide.
ADA_HOST_DEVICE inline bool WantsTail(const LayerScaler& scaler);
// Stores what was counted (bins, non-zero values, largest |dgrad|; `scale_in` is set here). A pass
// whose dgrad was not finite leaves the old tail unchanged.
ADA_HOST_DEVICE inline void ObserveTail(LayerScaler& scaler, const ExponentTail& tail);
// The same where the bins are in scaler.state.tail already; `largest` is finite.
ADA_HOST_DEVICE inline void FinishTail(LayerScaler& scaler, std::int64_t nonzero, double largest);

// The scale to which the gradients of `count` branches are converted: the largest of their scales
// at which the largest unscaled magnitude `largest` (max over branches of max|g| / S) stays below
// u_max; if none fits, the largest power of two that does.
ADA_HOST_DEVICE inline float BranchTarget(const float* scales, int count, double largest,
                                          double u_max);
// The sum of the branches may reach u_max although none of them does; its scale is then halved,
// unless it is below kSmallestBranchTarget. The first function tells whether a sum with this
// largest magnitude must be, the second whether the branches fit at this scale (else it is no use).
inline constexpr float kSmallestBranchTarget = 0x1p-120f;
ADA_HOST_DEVICE inline bool BranchSumOverflows(float target, double sum_max, double u_max);
ADA_HOST_DEVICE inline bool BranchesFit(float target, double largest, double u_max);
// The authors' rule: fp32 arithmetic, halving of the smallest scale but not below 1/16; NaN where
// the original raises. `largest`: the result of BranchLargestReference.
ADA_HOST_DEVICE inline float BranchTargetReference(const float* scales, int count, float largest,
                                                   float u_max);
// Python's max over fp32 max|g| / S: a NaN counts only in the first branch. `magnitudes`: each
// branch's max|g|, NaN where it holds one.
ADA_HOST_DEVICE inline float BranchLargestReference(const float* magnitudes, const float* scales,
                                                    int count);
// The factor for a branch's gradient, in the gradient's type (fp16 or fp32).
ADA_HOST_DEVICE inline float BranchFactorReference(float target, float scale, bool fp16);

}  // namespace ada::scaling

#include "scaling/rules/rules_inline.h"

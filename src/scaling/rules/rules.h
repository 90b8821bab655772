// The rules that turn statistics into scales: plain inline functions over plain structs, compiled
// by g++ and nvcc alike, called by every backend during backpropagation. No state beyond the
// structs. Sources: src/scaling/README.md; Zhao et al., IJCAI-20; kumasento/gradient-scaling,
// ada_loss/core.py.
#pragma once
#include <cmath>
#include <cstdint>

#include "number/host_device.h"
#include "number/stats.h"

namespace ada::scaling {

// What determined alpha; LimitName gives the words used in scales.csv.
enum class Limit : std::uint8_t {
  kNone,        // the layer computes no scale
  kTarget,      // the value that meets the underflow target
  kOne,         // the target is met without scaling
  kCap,         // limited: the product would overflow above it
  kScaleBound,  // SB, scale_upper_bound
  kAccumBound,  // AB / S_in, accum_upper_bound
  kStale,       // the cached value of an earlier step (update_interval)
  kFixed,       // the layer's constant
  kState,       // a state machine of the layer
  kNonfinite,   // dy is not finite: alpha 1, and the step will be skipped
  kBranch,      // gradients of several branches converted to one scale
};
const char* LimitName(Limit limit);

enum class LayerMethod : std::uint8_t {
  kPass,              // alpha 1: all global policies
  kFixed,             // alpha = fixed_scale
  kApproxRange,       // Gaussian model of the gradient (the paper's default)
  kLognormal,         // log-normal model; for a layer with a weight like approx_range
  kAbsRange,          // from the extremes of |dy| and |w|
  kElementWiseRange,  // from the extremes of the products of the data-gradient
  kExactRange,        // ours: from the exponents of the dx that the layer really produced
  kState,             // S_out = state.state_scale (layerwise_dynamic)
};
const char* MethodName(LayerMethod method);  // as in the YAML; kPass "none", kState "state"

// Exceptions of the authors' program, only under LayerRule::reference.
enum class DecisionError : std::uint8_t {
  kNone,
  kNonfinite,       // statistics or u not finite (ValueError)
  kNoProduct,       // element_wise_range: no non-zero product
  kNeedsWeight,     // abs_range, element_wise_range on a cast
  kAlphaNotFinite,  // alpha or S_out (AssertionError)
  kNoTarget,        // branches: no scale at which all of them fit (ValueError)
};
const char* DecisionErrorText(DecisionError error);  // what, and why

// One layer's rule: values that do not change during a run.
struct LayerRule {
  LayerMethod method = LayerMethod::kPass;
  double fixed_scale = 1;
  double underflow_target = 1e-3;
  double t = 1.2533144654e-3;             // sqrt(2) * erfinv(underflow_target)
  double phi_inverse = -3.0902323061678;  // PhiInv(underflow_target), for kLognormal
  double u_min = 0, u_max = 0;            // smallest and largest magnitudes of the format of dx
  double scale_upper_bound = 16, accum_upper_bound = 1024;
  double fan = 1;            // number of terms in a sum of the data gradient; for a cast 1
  double headroom_bits = 4;  // kExactRange: the largest |dx| stays below u_max / 2^headroom_bits
  bool has_weight = true;    // false: a cast (`kind: scale`)
  bool power_of_two = true;
  bool reference = false;       // exactly like the authors' program, including its defects
  bool fp16_gradients = false;  // dy is stored in fp16; under `reference` S_out is then fp16
  std::int32_t update_interval = 1;
};

// Exponents of |dgrad| as one backward pass computed them, before alpha: the input of exact_range.
// Bin e counts the non-zero finite values whose fp32 exponent field is e; bin 0 holds subnormals.
struct ExponentTail {
  static constexpr int kBins = 256;
  std::int64_t bins[kBins] = {};
  std::int64_t nonzero = 0;  // all non-zero values
  double largest = 0;        // max |dgrad|
  float scale_in = 0;        // the S that they carried; 0: nothing was observed yet
};

// What a layer keeps from one step to the next.
struct LayerState {
  double unbound = 1;  // the cached unbound value; NaN under `reference` after a NaN
  Limit unbound_limit = Limit::kOne;
  std::int64_t calls = 0;    // finished backward passes
  float state_scale = 1;     // kState: set by the policy before the backward pass
  ExponentTail tail;         // kExactRange
  bool tail_is_new = false;  // observed after the last update
};

// The decision of one backward pass, with every stage, for scales.csv. NaN: the stage was not
// reached (for alpha and scale_out only if `error` is set).
struct ScaleDecision {
  float scale_in = 1;
  double unbound = NAN, bound = NAN, pow2 = NAN;
  float alpha = 1, scale_out = 1;
  Limit limit = Limit::kNone;
  DecisionError error = DecisionError::kNone;
  std::int32_t halvings = 0;  // branches only: how often the target was halved for their sum
};

// The input of a decision. Only what NeedsOf names has to be filled in.
struct Observation {
  // Moments of the stored values, zeros included. mean_square: NaN if a value is NaN, otherwise inf
  // if one is infinite.
  TensorMoments dy, w;
  // Mean and standard deviation of ln|dy| over the non-zero values (kLognormal for a cast).
  double log_mean = 0, log_std = 0;
  // Smallest and largest |dy_k| * |w_k| over non-zero operands that are multiplied in the data
  // gradient (kElementWiseRange); k counts the outputs (channels, features). 0: there is none.
  double product_min = 0, product_max = 0;
};

// A layer's scaler as the backend stores it.
struct LayerScaler {
  LayerRule rule;
  LayerState state;
  ScaleDecision decision;
};

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

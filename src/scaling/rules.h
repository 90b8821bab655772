// The rules that turn statistics into scales: plain inline functions over plain structs, compiled
// by g++ and nvcc alike, called by every backend during backpropagation. No state beyond the
// structs. Source: POLICIES 1; Zhao et al., IJCAI-20; kumasento/gradient-scaling, ada_loss/core.py.
#pragma once
#include <cmath>
#include <cstdint>

#include "core/stats.h"

#ifdef __CUDACC__
#define ADA_HOST_DEVICE __host__ __device__
#else
#define ADA_HOST_DEVICE
#endif

namespace ada::scaling {

// Which rule decided alpha; the words of scales.csv are LimitName's.
enum class Limit : std::uint8_t {
  kNone,        // the layer computes no scale
  kTarget,      // the value that meets the underflow target
  kOne,         // the target is met without scaling
  kCap,         // overflow of the product forbids more
  kScaleBound,  // SB, scale_upper_bound
  kAccumBound,  // AB / S_in, accum_upper_bound
  kStale,       // the cached value of an earlier step (update_interval)
  kFixed,       // the layer's constant
  kState,       // a state machine of the layer
  kNonfinite,   // dy is not finite: alpha 1, the step is skipped
  kBranch,      // gradients of several branches brought to one scale
};
const char* LimitName(Limit limit);

enum class LayerMethod : std::uint8_t {
  kPass,         // alpha 1: the policies none, fixed and dynamic
  kFixed,        // alpha = fixed_scale
  kApproxRange,  // Gaussian model of the gradient (the paper's default)
};

// One layer's rule: constants of a run.
struct LayerRule {
  LayerMethod method = LayerMethod::kPass;
  double fixed_scale = 1;
  double t = 1.2533144654e-3;   // sqrt(2) * erfinv(underflow_target)
  double u_min = 0, u_max = 0;  // smallest and largest magnitudes of the gradient's format
  double scale_upper_bound = 16, accum_upper_bound = 1024;
  double fan = 1;  // reduction length of the data-gradient product
  bool power_of_two = true;
  std::int32_t update_interval = 1;
};

// What a layer remembers between steps.
struct LayerState {
  double unbound = 1;  // the cached unbound value
  Limit unbound_limit = Limit::kOne;
  std::int64_t calls = 0;  // finished backward passes
};

// One backward pass's decision: every stage, for scales.csv. NaN: the stage was not taken.
struct ScaleDecision {
  float scale_in = 1;
  double unbound = NAN, bound = NAN, pow2 = NAN;
  float alpha = 1, scale_out = 1;
  Limit limit = Limit::kNone;
  std::int32_t halvings = 0;  // branches only: how often their sum made the target halve
};

// A layer's scaler as its backend sees it.
struct LayerScaler {
  LayerRule rule;
  LayerState state;
  ScaleDecision decision;
};

// True when the next call of Decide needs the moments of dy and w.
ADA_HOST_DEVICE inline bool NeedsMoments(const LayerScaler& scaler);

// Decides alpha of this backward pass and stores it in `scaler` (decision and state).
ADA_HOST_DEVICE inline void Decide(LayerScaler& scaler, const TensorMoments& dy,
                                   const TensorMoments& w, float scale_in);

// The scale to which the gradients of `count` branches are brought: the largest of their scales at
// which the largest unscaled magnitude `largest` (max over branches of max|g| / S) stays below
// u_max; where none fits, the largest power of two that does. POLICIES 1, "Where branches meet".
ADA_HOST_DEVICE inline float BranchTarget(const float* scales, int count, double largest,
                                          double u_max);

}  // namespace ada::scaling

#include "scaling/rules_inline.h"

// What a rule is, what it looks at, what it keeps and what it decides: plain structs, for g++ and
// nvcc alike.
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

}  // namespace ada::scaling

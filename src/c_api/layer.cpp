// The decisions of one layer, and of branches that meet, behind the C interface.
// Rules are those of scaling/rules, inline functions that the CPU and CUDA backends call, too.
#include <cmath>

#include "c_api/handles.h"

namespace ada::c_api {
namespace {

TensorMoments MomentsOf(const ada_moments& given) {
  return {given.mean, given.mean_square, given.min, given.max, given.min_abs};
}

// All members are copied, also those that ada_layer_needs did not ask for: Decide does not read
// them.
scaling::Observation ObservationOf(const ada_observation& given) {
  scaling::Observation seen;
  seen.dy = MomentsOf(given.dy);
  seen.w = MomentsOf(given.w);
  seen.log_mean = given.log_mean;
  seen.log_std = given.log_std;
  seen.product_min = given.product_min;
  seen.product_max = given.product_max;
  return seen;
}

// The limit's word is a literal, so it stays valid without Kept.
ada_decision DecisionOf(const scaling::LayerScaler& scaler) {
  const scaling::ScaleDecision& decided = scaler.decision;
  ada_decision made = {};
  made.unbound = decided.unbound;
  made.bound = decided.bound;
  made.pow2 = decided.pow2;
  made.scale_in = decided.scale_in;
  made.alpha = decided.alpha;
  made.scale_out = decided.scale_out;
  made.limit = scaling::LimitName(decided.limit);
  made.alpha_first = scaling::AlphaComesFirst(scaler.rule);
  made.failed = decided.error != scaling::DecisionError::kNone;
  made.wants_tail = scaling::WantsTail(scaler);
  return made;
}

}  // namespace
}  // namespace ada::c_api

using ada::c_api::Guarded;

ada_layer* ada_layer_new(ada_policy* policy, const ada_layer_info* info) {
  return Guarded<>(static_cast<ada_layer*>(nullptr), [&] {
    auto made = std::make_unique<ada_layer>();
    made->name = info->name;
    made->scaler.rule =
        policy->policy->RuleFor({info->name, info->fan_reference, info->fan_exact, info->u_min,
                                 info->u_max, info->has_weight != 0, info->fp16_gradients != 0});
    // The authors' program has no such gradients, so there is nothing to follow to the letter.
    if (info->within != 0) made->scaler.rule.reference = false;
    return made.release();
  });
}
void ada_layer_free(ada_layer* layer) { delete layer; }
const char* ada_layer_method(const ada_layer* layer) {
  return ada::scaling::MethodName(layer->scaler.rule.method);
}

// Depends on the state: a value that update_interval keeps needs no statistics.
int32_t ada_layer_needs(const ada_layer* layer) {
  const ada::scaling::Needs needs = ada::scaling::NeedsOf(layer->scaler);
  return (needs.moments ? ADA_NEEDS_MOMENTS : 0) | (needs.logs ? ADA_NEEDS_LOGS : 0) |
         (needs.products ? ADA_NEEDS_PRODUCTS : 0);
}

// Changes the layer's state: one call a backward pass. It cannot fail otherwise than by the rule's
// own error, which the decision holds.
void ada_layer_decide(ada_layer* layer, const ada_observation* seen, float scale_in,
                      float state_scale, ada_decision* made) {
  layer->scaler.state.state_scale = state_scale;
  ada::scaling::Decide(layer->scaler, ada::c_api::ObservationOf(*seen), scale_in);
  *made = ada::c_api::DecisionOf(layer->scaler);
  if (made->failed != 0)
    ada::c_api::SetError(ada::scaling::DecisionErrorText(layer->scaler.decision.error));
}

// Copied, because the struct of C has no scale: ObserveTail sets it from the layer.
void ada_layer_observe(ada_layer* layer, const ada_tail* given) {
  ada::scaling::ExponentTail tail;
  for (int bin = 0; bin < ADA_TAIL_BINS; ++bin) tail.bins[bin] = given->bins[bin];
  tail.nonzero = given->nonzero;
  tail.largest = given->largest;
  ada::scaling::ObserveTail(layer->scaler, tail);
}

const char* ada_layer_save(const ada_layer* layer) {
  return Guarded<>(static_cast<const char*>(nullptr), [&] {
    return ada::c_api::Kept(ada::c_api::ToJson(ada::scaling::SaveLayerState(layer->scaler.state)));
  });
}
// Where the text is no state of this layer nothing changes: the state is replaced only when it was
// read.
int32_t ada_layer_load(ada_layer* layer, const char* state) {
  return Guarded<>(1, [&] {
    layer->scaler.state = ada::scaling::LoadLayerState(ada::c_api::OfJson(state), layer->name);
    return 0;
  });
}

// `scales` has one scale a branch, in any order.
float ada_branch_target(const float* scales, int32_t count, double largest, double u_max) {
  if (count < 1) return NAN;
  return ada::scaling::BranchTarget(scales, count, largest, u_max);
}

// The order matters here: Python's max looks at a NaN only where it stands first.
float ada_branch_target_reference(const float* scales, const float* magnitudes, int32_t count,
                                  float u_max) {
  if (count < 1) return NAN;
  const float largest = ada::scaling::BranchLargestReference(magnitudes, scales, count);
  return ada::scaling::BranchTargetReference(scales, count, largest, u_max);
}

// Halving helps only where each branch fits by itself and their sum does not.
int32_t ada_branch_halves(float target, double largest, double sum_max, double u_max) {
  return ada::scaling::BranchSumOverflows(target, sum_max, u_max) &&
                 ada::scaling::BranchesFit(target, largest, u_max)
             ? 1
             : 0;
}

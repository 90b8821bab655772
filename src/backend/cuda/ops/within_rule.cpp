// See within_rule.h.
#include "backend/cuda/ops/within_rule.h"

#include "backend/cuda/link.h"

namespace ada::backend::cuda {

WithinRule::WithinRule(const Context& context, scaling::LayerScaler* scaler)
    : stream_(context.stream), scaler_(scaler) {
  if (scaler == nullptr) return;
  const scaling::LayerRule& rule = context.Host(scaler)->rule;
  // The host's copy of the rule, which is a constant of the run, tells what to plan for.
  looks_ = scaling::MayNeedMoments(rule);
  if (rule.method != scaling::LayerMethod::kExactRange) return;
  tail_ = context.AllocateZeroed<TailTotals>(1);
  if (RulesLink(context.link) != nullptr) joined_.emplace(context, scaler);
}

}  // namespace ada::backend::cuda

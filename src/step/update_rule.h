// From `optimizer` and the update's keys of `precision` to the rule that a backend applies.
#pragma once
#include "backend/update.h"
#include "config/config.h"
#include "scaling/policies/settings.h"

namespace ada::step {

// optimizer.kind and its numbers, with precision.masters and optimizer_state.
backend::UpdateRule UpdateRuleOf(const config::OptimizerConfig& optimizer,
                                 const config::PrecisionConfig& precision);
// The name of the format or layout in which a state of this name is kept.
std::string StateFormatName(const config::PrecisionConfig& precision,
                            const backend::UpdateRule& rule, const std::string& state);

// Has `plan` put other values in the place of gradients that are not finite and carry `scale`.
void AddRepair(const scaling::OverflowRepair& repair, double scale, backend::UpdatePlan& plan);

}  // namespace ada::step

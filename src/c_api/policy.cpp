// Policies behind the C interface: a section of the configuration becomes the object that trains.

#include "c_api/handles.h"
#include "config/sections/sections.h"
#include "config/yaml/document.h"
#include "config/yaml/problems.h"
#include "core/error.h"
#include "scaling/policies/presets.h"
#include "scaling/policies/start_scale.h"

namespace ada::c_api {
namespace {

// The section with its checks, as a file's would be read.
void ReadSettings(const std::string& text, scaling::Settings& settings) {
  config::Problems problems("policy", {});
  config::YamlNode root = config::ParseDocument(text, problems);
  config::RemoveDuplicates(root, "scaling", problems);
  config::ReadSection(root, config::ScalingSection(settings), {problems, "scaling", root});
  problems.ThrowIfAny();
}

ada_policy* NewPolicy(const char* section) {
  auto made = std::make_unique<ada_policy>();
  ReadSettings(section, made->settings);
  scaling::FillDefaults(made->settings);
  made->section = config::FlowText(config::WriteSection(config::ScalingSection(made->settings)));
  made->policy = scaling::MakePolicy(made->settings);
  return made.release();
}

scaling::StepOutcome OutcomeOf(const ada_outcome& given) {
  scaling::StepOutcome outcome;
  outcome.overflow = given.overflow != 0;
  outcome.amax = given.amax;
  outcome.above = given.above;
  outcome.below = given.below;
  for (int32_t i = 0; i < given.layer_count; ++i) outcome.layer_overflow[given.layers[i]] = true;
  return outcome;
}

int32_t UpdatePolicy(ada_policy& policy, const ada_outcome& outcome, ada_update& made) {
  const scaling::ScaleUpdate update = policy.policy->Update(OutcomeOf(outcome));
  made.action = update.action == scaling::Action::kUpdate ? ADA_UPDATE
                : update.action == scaling::Action::kSkip ? ADA_SKIP
                                                          : ADA_SANITIZE;
  made.before = update.before;
  made.after = update.after;
  made.reason = Kept(update.reason);
  if (update.error.empty()) return 0;
  SetError(update.error);
  return 1;
}

}  // namespace
}  // namespace ada::c_api

using ada::c_api::Guarded;
using ada::c_api::Kept;

ada_policy* ada_policy_new(const char* section) {
  return Guarded<>(static_cast<ada_policy*>(nullptr),
                   [&] { return ada::c_api::NewPolicy(section); });
}
void ada_policy_free(ada_policy* policy) { delete policy; }
const char* ada_policy_name(const ada_policy* policy) {
  return Kept(std::string(policy->policy->name()));
}
const char* ada_policy_section(const ada_policy* policy) { return Kept(policy->section); }

void ada_policy_look(const ada_policy* policy, ada_policy_facts* facts) {
  const ada::scaling::Policy& p = *policy->policy;
  const ada::scaling::StatsRequest request = p.RequiredStats();
  *facts = {};
  facts->awaits_start = p.AwaitsStart();
  facts->constant_scale = p.ConstantScale();
  facts->owns_layer_scales = p.OwnsLayerScales();
  facts->scales_batch_norms = p.ScalesBatchNorms();
  facts->scales_attention = p.ScalesAttention();
  facts->follows_reference = p.FollowsReference();
  facts->needs_amax = request.amax;
  facts->needs_layers = request.layers;
  facts->needs_edge = request.edge;
  facts->sanitizes = p.OnOverflow() == ada::scaling::Action::kSanitize;
  if (policy->settings.policy == ada::scaling::kDynamic.name)
    facts->max_retries = ada::scaling::FindDynamicPreset(policy->settings.preset).max_retries;
}

double ada_policy_scale(const ada_policy* policy) { return policy->policy->Scale(); }
double ada_policy_layer_scale(const ada_policy* policy, const char* layer) {
  return policy->policy->LayerScale(layer);
}
int32_t ada_policy_rescales_branches(const ada_policy* policy, const char* layer) {
  return policy->policy->RescalesBranches(layer);
}

const char* ada_policy_start(ada_policy* policy, double largest, double u_max) {
  return Guarded<>(static_cast<const char*>(nullptr), [&] {
    ada::scaling::StartScale start = ada::scaling::ChooseStart(policy->settings, largest, u_max);
    policy->policy->Start(start.scale);
    return Kept(std::move(start.reason));
  });
}

int32_t ada_policy_update(ada_policy* policy, const ada_outcome* outcome, ada_update* made) {
  return Guarded<>(1, [&] { return ada::c_api::UpdatePolicy(*policy, *outcome, *made); });
}

const char* ada_policy_save(const ada_policy* policy) {
  return Kept(ada::c_api::ToJson(policy->policy->SaveState()));
}
int32_t ada_policy_load(ada_policy* policy, const char* state) {
  return Guarded<>(1, [&] {
    policy->policy->LoadState(ada::c_api::OfJson(state));
    return 0;
  });
}

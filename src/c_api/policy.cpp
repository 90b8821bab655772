// Policies in the C interface: a section of the configuration becomes the object that training
// uses. Settings go through the keys, checks and defaults of a configuration file, so that the same
// settings are refused with the same text, in which "policy" replaces the file.

#include "c_api/handles.h"
#include "config/sections/sections.h"
#include "config/yaml/document.h"
#include "config/yaml/problems.h"
#include "error.h"
#include "scaling/policies/presets.h"
#include "scaling/policies/start_scale.h"

namespace ada::c_api {
namespace {

// The section with its checks, as a file's would be read.
// Throws ConfigError with all problems of the text, a line each.
void ReadSettings(const std::string& text, scaling::Settings& settings) {
  config::Problems problems("policy", {});
  config::YamlNode root = config::ParseDocument(text, problems);
  config::RemoveDuplicates(root, "scaling", problems);
  config::ReadSection(root, config::ScalingSection(settings), {problems, "scaling", root});
  problems.ThrowIfAny();
}

// Defaults are filled in before the section is written, so the caller sees every value that acts.
ada_policy* NewPolicy(const char* section) {
  auto made = std::make_unique<ada_policy>();
  ReadSettings(section, made->settings);
  scaling::FillDefaults(made->settings);
  // A caller replaces what is not finite by marian's rule alone.
  if (made->settings.on_overflow.action == scaling::OverflowRepair::Action::kSanitize)
    throw ConfigError(
        "scaling.on_overflow: sanitize is of ada-train's own runs; call torch.nan_to_num on the "
        "gradients instead");
  made->section = config::FlowText(config::WriteSection(config::ScalingSection(made->settings)));
  made->policy = scaling::MakePolicy(made->settings);
  return made.release();
}

// Members that the policy does not ask for may hold anything; only layers are read by their count.
scaling::StepOutcome OutcomeOf(const ada_outcome& given) {
  scaling::StepOutcome outcome;
  outcome.overflow = given.overflow != 0;
  outcome.amax = given.amax;
  outcome.above = given.above;
  outcome.below = given.below;
  for (int32_t i = 0; i < given.layer_count; ++i) outcome.layer_overflow[given.layers[i]] = true;
  return outcome;
}

// The policy's move is given also where it ends the run.
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
  return Guarded<>(static_cast<const char*>(nullptr),
                   [&] { return Kept(std::string(policy->policy->name())); });
}
const char* ada_policy_section(const ada_policy* policy) {
  return Guarded<>(static_cast<const char*>(nullptr), [&] { return Kept(policy->section); });
}

// What the policy asks for may change from attempt to attempt, so a caller looks before each one.
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
  // Retries belong to `train.on_overflow`, which has no place in the section; only presets bring
  // some.
  if (policy->settings.policy == ada::scaling::kDynamic.name)
    facts->max_retries = ada::scaling::FindDynamicPreset(policy->settings.preset).max_retries;
}

double ada_policy_scale(const ada_policy* policy) { return policy->policy->Scale(); }
double ada_policy_layer_scale(const ada_policy* policy, const char* layer) {
  return Guarded<>(0.0, [&] { return policy->policy->LayerScale(layer); });
}
int32_t ada_policy_rescales_branches(const ada_policy* policy, const char* layer) {
  return Guarded<>(-1, [&] { return policy->policy->RescalesBranches(layer) ? 1 : 0; });
}

// For `init_scale: auto` only. After it ada_policy_scale gives the scale that was chosen.
const char* ada_policy_start(ada_policy* policy, double largest, double u_max) {
  return Guarded<>(static_cast<const char*>(nullptr), [&] {
    ada::scaling::StartScale start = ada::scaling::ChooseStart(policy->settings, largest, u_max);
    policy->policy->Start(start.scale);
    return Kept(std::move(start.reason));
  });
}

// Called once after each attempt, in their order, as the trainer does.
int32_t ada_policy_update(ada_policy* policy, const ada_outcome* outcome, ada_update* made) {
  return Guarded<>(1, [&] { return ada::c_api::UpdatePolicy(*policy, *outcome, *made); });
}

const char* ada_policy_save(const ada_policy* policy) {
  return Guarded<>(static_cast<const char*>(nullptr),
                   [&] { return Kept(ada::c_api::ToJson(policy->policy->SaveState())); });
}
// The state of a policy with the same settings; 1 where keys or values do not fit.
int32_t ada_policy_load(ada_policy* policy, const char* state) {
  return Guarded<>(1, [&] {
    policy->policy->LoadState(ada::c_api::OfJson(state));
    return 0;
  });
}

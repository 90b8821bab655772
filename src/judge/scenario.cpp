// Asks the policy of a scenario for its scales in a step, and the histograms for what they lose. A
// policy is driven with outcomes that these histograms imply at the scales it chooses.
#include "judge/scenario.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/load.h"
#include "error.h"
#include "scaling/rules/state_text.h"

namespace ada::judge {
namespace {

using scaling::ExponentTail;
using scaling::LayerMethod;

std::unique_ptr<scaling::Policy> Make(scaling::Settings& scaling) {
  config::TrainConfig unused;
  config::FillScalingDefaults(scaling, unused);
  std::unique_ptr<scaling::Policy> policy = scaling::MakePolicy(scaling);
  const std::string place = scaling.where.file.empty() && scaling.where.line == 0
                                ? std::string()
                                : ToString(scaling.where) + ": ";
  if (policy->AwaitsStart()) {
    throw ConfigError(place +
                      "scaling.init_scale: auto is chosen where a run starts; here it takes a "
                      "number (events.csv has the one that a run has chosen)");
  }
  if (policy->FollowsReference()) {
    throw ConfigError(place +
                      "scaling.reference: histograms cannot tell what the authors' program would "
                      "do; leave it out (adaptive is judged as exact_range)");
  }
  return policy;
}

// The bins as a backward pass would have counted them with a scale of 2^floor(log2 scale_in).
ExponentTail TailOf(const ExponentBins& dx, float scale_in) {
  constexpr int kBias = 127;  // of fp32's exponent field
  const int shift = std::ilogb(scale_in);
  ExponentTail tail;
  tail.scale_in = std::ldexp(1.0f, shift);
  tail.nonzero = dx.nonzero();
  for (int e = ExponentBins::kLowest; e <= ExponentBins::kHighest; ++e)
    if (dx[e] > 0) tail.bins[std::clamp(e + shift + kBias, 0, ExponentTail::kBins - 2)] += dx[e];
  const int top = TopExponent(dx);
  if (tail.nonzero > 0) tail.largest = std::ldexp(1.0, top + 1 + shift);
  return tail;
}

// What a layer of policy adaptive would choose if it knew the gradient that it is about to round.
//
// S_out of a layer whose dx has these exponents: the rule of method exact_range
// (scaling/rules/rules.h), but of this very step instead of the last one; the largest value is
// taken to be the upper end of its bin. Methods that see the mean and deviation of dy
// (approx_range, lognormal, abs_range, element_wise_range) are judged by the same rule, the first
// two within their bounds SB and AB; method fixed has its constant. `rule` is the layer's; u_min
// and u_max, where they are 0, become those of `format`, the format of dx.
float ScaleWithForesight(scaling::LayerRule rule, const NumberFormat& format,
                         const ExponentBins& dx, float scale_in) {
  const LayerMethod method = rule.method;
  if (rule.u_min == 0) rule.u_min = format.smallest_subnormal();
  if (rule.u_max == 0) rule.u_max = format.largest();
  scaling::LayerScaler scaler;
  if (method != LayerMethod::kFixed) {
    rule.method = LayerMethod::kExactRange;
    scaler.state.tail = TailOf(dx, scale_in);
    scaler.state.tail_is_new = true;
  }
  scaler.rule = rule;
  scaling::Decide(scaler, {}, scale_in);
  const bool bounded = method == LayerMethod::kApproxRange || method == LayerMethod::kLognormal;
  const double accumulated = rule.accum_upper_bound / static_cast<double>(scale_in);
  const double bound = std::min(accumulated, rule.scale_upper_bound);
  if (!bounded || static_cast<double>(scaler.decision.alpha) <= bound)
    return scaler.decision.scale_out;
  const double alpha = rule.power_of_two ? std::ldexp(1.0, std::ilogb(bound)) : bound;
  return static_cast<float>(static_cast<double>(scale_in) * alpha);
}

constexpr char kChoice[] = "choice";  // the key of a state

std::string NameFor(const config::WhatIfConfig& config) {
  if (!config.name.empty()) return config.name;
  const std::string name = config::NameOf(config);
  return name.empty() ? "as recorded" : name;
}

telemetry::WhatIfRow RowOf(const HistogramOfTensor& tensor, const NumberFormat& format,
                           double scale) {
  const WouldLose lost = LostAt(*tensor.bins, format, scale);
  telemetry::WhatIfRow row;
  row.layer = tensor.layer;
  row.tensor = tensor.tensor;
  row.format = FormatName(format);
  row.scale = scale;
  row.underflow_pct_nonzero = lost.underflow_pct();
  row.overflow = lost.overflow;
  row.underflow_unsure_pct = PercentOf(lost.underflow_unsure, lost.nonzero);
  row.overflow_unsure = lost.overflow_unsure;
  return row;
}

}  // namespace

ScenarioPolicy::ScenarioPolicy(scaling::Settings scaling, const config::ModelConfig& model)
    : policy_(Make(scaling)),
      path_(model, policy_->ScalesBatchNorms(), policy_->ScalesAttention()) {
  for (const std::string& layer : path_.choosers()) {
    scaling::LayerInfo info;
    info.name = layer;
    rules_[layer] = policy_->RuleFor(info);  // u_min and u_max are the judged format's
  }
}

ScenarioPolicy::~ScenarioPolicy() = default;

// A policy with a constant scale needs one attempt a step. For others all attempts between two
// logged steps see the same histograms, and are evaluated again only if a scale has moved, or if
// counts above an edge are requested.
std::vector<double> ScenarioPolicy::Advance(std::int64_t step, const StepHistograms& histograms) {
  if (policy_->ConstantScale()) last_step_ = std::max(last_step_, step - 1);
  std::vector<double> scales, key;
  scaling::StepOutcome outcome;
  bool counted_edge = false;
  while (last_step_ < step && ended_.empty()) {
    const bool counts_edge = policy_->RequiredStats().edge > 0;
    if (std::vector<double> now = Key(); now != key || counts_edge || counted_edge) {
      key = std::move(now);
      scales = ScalesNow(histograms);
      outcome = OutcomeAt(histograms, scales);
    }
    counted_edge = counts_edge;
    ended_ = policy_->Update(outcome).error;
    ++last_step_;
  }
  return scales;
}

// What the scales of an attempt depend on within a step.
std::vector<double> ScenarioPolicy::Key() const {
  std::vector<double> key = {policy_->Scale()};
  if (policy_->OwnsLayerScales())
    for (const std::string& layer : path_.choosers()) key.push_back(policy_->LayerScale(layer));
  return key;
}

std::vector<double> ScenarioPolicy::ScalesNow(const StepHistograms& histograms) const {
  const auto start = static_cast<float>(policy_->Scale());
  const ScalePath::Scales path =
      policy_->OwnsLayerScales() ? PathNow(histograms) : ScalePath::Scales();
  std::vector<double> scales;
  for (std::size_t i = 0; i < histograms.size(); ++i) {
    const HistogramOfTensor& t = histograms[i];
    const auto found = path.find({t.layer, t.tensor});
    const double carried = static_cast<double>(found != path.end() ? found->second : start);
    // A per-tensor scale follows the values that carry S: under another S their product is what it
    // was. A policy that chooses a scale for each layer replaces that of the tensor.
    const bool follows = !policy_->OwnsLayerScales() && t.per_tensor_scale != 1;
    scales.push_back(t.carries_s() && !follows ? carried : t.scale);
  }
  return scales;
}

ScalePath::Scales ScenarioPolicy::PathNow(const StepHistograms& histograms) const {
  ScalePath::Choice choose;
  choose.layer = [&](const std::string& layer, const std::string& tensor, float scale_in) {
    const std::string name = DecisionOf(layer, tensor);
    const std::size_t i = histograms.Find(layer, tensor);
    const bool known = i < histograms.size();
    // An entry of precision.layers may leave ds in fp32: it is not rounded, and decides nothing.
    if (!known && tensor == "ds") return scale_in;
    if (rules_.at(name).method == scaling::LayerMethod::kState)
      return static_cast<float>(policy_->LayerScale(name));
    static const ExponentBins kEmpty;
    return ScaleWithForesight(rules_.at(name), known ? histograms.format(i) : kFp32,
                              known ? *histograms[i].bins : kEmpty, scale_in);
  };
  // The rule for sums of branches (src/scaling/README.md): the largest scale at which all fit. Only
  // the exponents of the branches' sum are known: it is taken for the largest of them.
  choose.sum = [&](const std::string& layer, const std::vector<float>& branches) {
    const auto differs = [&](float scale) { return scale != branches[0]; };
    if (std::none_of(branches.begin(), branches.end(), differs)) return branches[0];
    const std::size_t i = histograms.Find(layer, "dy");
    const bool known = i < histograms.size() && histograms[i].bins->nonzero() > 0;
    const double largest = known ? std::ldexp(1.0, TopExponent(*histograms[i].bins) + 1) : 0;
    const double u_max = known ? histograms.format(i).largest() : kFp32.largest();
    return scaling::BranchTarget(branches.data(), static_cast<int>(branches.size()), largest,
                                 u_max);
  };
  return path_.Walk(static_cast<float>(policy_->Scale()), choose);
}

scaling::StepOutcome ScenarioPolicy::OutcomeAt(const StepHistograms& histograms,
                                               const std::vector<double>& scales) const {
  const scaling::StatsRequest request = policy_->RequiredStats();
  scaling::StepOutcome outcome;
  outcome.overflow = histograms.NotFinite(scales);
  if (request.amax)
    outcome.amax =
        outcome.overflow ? std::numeric_limits<double>::infinity() : histograms.LargestGradient();
  if (request.edge > 0) {
    const double above = histograms.CountAbove(request.edge, scales);
    outcome.above = std::llround(above);
    outcome.below = histograms.CountDx() - outcome.above;
  }
  if (request.layers) MarkLayers(histograms, scales, outcome);
  return outcome;
}

// As in training, what is not finite makes everything that is computed from it so, and with it the
// layers that chose those scales. If no layer is found, all are.
void ScenarioPolicy::MarkLayers(const StepHistograms& histograms, const std::vector<double>& scales,
                                scaling::StepOutcome& outcome) const {
  if (path_.choosers().empty()) return;
  for (const std::string& layer : path_.choosers()) outcome.layer_overflow[layer] = false;
  const auto breaks = [&](const std::string& layer, const std::string& tensor) {
    const std::size_t i = histograms.Find(layer, tensor);
    return i < histograms.size() && histograms.Breaks(i, scales[i]);
  };
  // The walk carries 1 for what is finite and NaN for what is not.
  constexpr float kFinite = 1, kNotFinite = std::numeric_limits<float>::quiet_NaN();
  bool any = false;
  ScalePath::Choice choose;
  choose.layer = [&](const std::string& layer, const std::string& tensor, float arriving) {
    if (!std::isnan(arriving) && !breaks(layer, tensor)) return kFinite;
    outcome.layer_overflow[DecisionOf(layer, tensor)] = any = true;
    return kNotFinite;
  };
  choose.sum = [&](const std::string& layer, const std::vector<float>& branches) {
    const auto broken = [](float branch) { return std::isnan(branch); };
    const bool any_broken = std::any_of(branches.begin(), branches.end(), broken);
    return any_broken || breaks(layer, "dy") ? kNotFinite : kFinite;
  };
  choose.other = [&](const std::string& layer, float arriving) {
    const bool broken = std::isnan(arriving) || breaks(layer, "dx") || breaks(layer, "dx2");
    return broken ? kNotFinite : kFinite;
  };
  path_.Walk(breaks("loss", "dx") || breaks("loss", "dx2") ? kNotFinite : kFinite, choose);
  if (any || !outcome.overflow) return;
  for (auto& layer : outcome.layer_overflow) layer.second = true;
}

scaling::StateMap ScenarioPolicy::SaveState() const {
  scaling::StateMap state;
  for (const auto& [key, value] : policy_->SaveState()) state["policy " + key] = value;
  state["last_step"] = std::to_string(last_step_);
  state["ended"] = ended_;
  return state;
}

void ScenarioPolicy::LoadState(const scaling::StateMap& state) {
  scaling::StateMap own, policy;
  const std::string prefix = "policy ";
  for (const auto& [key, value] : state)
    key.starts_with(prefix) ? policy[key.substr(prefix.size())] = value : own[key] = value;
  scaling::ExpectKeys(own, "what_if", {"last_step", "ended"});
  const std::int64_t last_step = scaling::ReadInteger(own, "last_step");
  policy_->LoadState(policy);
  last_step_ = last_step;
  ended_ = own.at("ended");
}

// A bad combination is found here, before any step is judged; the message has the entry's place
// where it comes from a file.
Scenario::Scenario(const config::WhatIfConfig& config, const config::ModelConfig& model)
    : name_(NameFor(config)), choice_(config::NameOf(config)), scale_(config.scale) {
  ADA_CHECK(config.block_format() == nullptr);
  if (config.format) format_ = std::get<NumberFormat>(*config.format);
  if (config.scale && config.scaling) {
    const bool placed = !config.where.file.empty() || config.where.line != 0;
    throw ConfigError((placed ? ToString(config.where) + ": " : "") + "scenario " + name_ +
                      ": a scale and a policy exclude each other; leave one out (policy fixed has "
                      "a scale of its own)");
  }
  if (config.scaling) policy_ = std::make_unique<ScenarioPolicy>(*config.scaling, model);
}

Scenario::~Scenario() = default;

// The policy is advanced even where it has ended, which does nothing.
std::vector<telemetry::WhatIfRow> Scenario::Judge(std::int64_t step, std::int64_t epoch,
                                                  const std::vector<HistogramOfTensor>& tensors) {
  const StepHistograms histograms(tensors, format_);
  std::vector<double> scales;
  if (policy_) scales = policy_->Advance(step, histograms);
  std::vector<telemetry::WhatIfRow> rows;
  if (!ended().empty()) return rows;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const double scale = policy_ ? scales.at(i) : scale_.value_or(tensors[i].scale);
    rows.push_back(RowOf(tensors[i], histograms.format(i), scale));
    rows.back().step = step;
    rows.back().epoch = epoch;
    rows.back().scenario = name_;
  }
  return rows;
}

scaling::StateMap Scenario::SaveState() const {
  scaling::StateMap state = policy_ ? policy_->SaveState() : scaling::StateMap();
  state[kChoice] = choice_;
  return state;
}

bool Scenario::LoadState(scaling::StateMap state) {
  const auto choice = state.find(kChoice);  // not in checkpoints of earlier versions
  if (choice != state.end()) {
    if (choice->second != choice_) return false;
    state.erase(choice);
  }
  policy_ ? policy_->LoadState(state) : scaling::ExpectKeys(state, "what_if", {});
  return true;
}

}  // namespace ada::judge

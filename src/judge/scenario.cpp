// Asks the policy of a scenario for its scales in a step, and the histograms for what they lose.
#include "judge/scenario.h"

#include <cmath>

#include "config/load.h"
#include "error.h"
#include "scaling/rules/state_text.h"

namespace ada::judge {
namespace {

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
  row.underflow_unsure_pct = lost.nonzero > 0 ? 100.0 * static_cast<double>(lost.underflow_unsure) /
                                                    static_cast<double>(lost.nonzero)
                                              : NAN;
  row.overflow_unsure = lost.overflow_unsure;
  return row;
}

}  // namespace

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

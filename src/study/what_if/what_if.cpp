// what-if: the histograms of a run through a scenario of judge/, which log.what_if uses during a
// run. This file makes the scenario from options and prints what it gives.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <ostream>

#include "config/load.h"
#include "error.h"
#include "io/text.h"
#include "judge/scenario.h"
#include "study/commands.h"
#include "study/row_output.h"
#include "study/run_files.h"
#include "study/what_if/summary.h"
#include "telemetry/rows.h"

namespace ada::study {
namespace {

// The policy that --policy names, as its overrides and --scale shape it.
// Read as a text of YAML, so that --policy and --set have the checks and hints of a configuration.
std::optional<scaling::Settings> AskedPolicy(const WhatIfOptions& options, std::ostream& notes) {
  if (options.policy.empty()) return std::nullopt;
  config::Overrides overrides = options.overrides;
  if (options.scale && options.policy != "fixed")
    throw ConfigError("--scale " + ShortestText(*options.scale) + ": policy " + options.policy +
                      " chooses its scales itself; leave out --scale or --policy");
  if (options.scale) overrides.emplace_back("scaling.scale", ShortestText(*options.scale));
  const config::LoadedScaling loaded =
      config::LoadScalingText("policy: " + config::YamlText(options.policy), "--policy", overrides);
  for (const std::string& note : loaded.notes) notes << note << '\n';
  return loaded.scaling;
}

// The scale belongs to policy fixed where that is named, else to the scenario itself.
config::WhatIfConfig ScenarioOf(const WhatIfOptions& options, std::ostream& notes) {
  config::WhatIfConfig scenario;
  scenario.format = options.format;
  scenario.scaling = AskedPolicy(options, notes);
  if (!scenario.scaling) scenario.scale = options.scale;
  return scenario;
}

bool RoundsBySign(const config::PrecisionConfig& precision) {
  const auto by_sign = [](config::RoundingKind kind) {
    return kind == config::RoundingKind::kTowardPositive ||
           kind == config::RoundingKind::kTowardNegative;
  };
  return by_sign(precision.rounding) ||
         std::any_of(precision.schedule.begin(), precision.schedule.end(), [&](const auto& change) {
           return change.rounding && by_sign(*change.rounding);
         });
}

// How a policy was judged.
std::string PolicyNote(const config::WhatIfConfig& choice) {
  if (!choice.scaling) return "";
  scaling::Settings settings = *choice.scaling;
  scaling::FillDefaults(settings);
  const std::unique_ptr<scaling::Policy> policy = scaling::MakePolicy(settings);
  if (!policy->ConstantScale()) return "  each step stands for all attempts since the one before\n";
  if (!policy->OwnsLayerScales()) return "";
  return "  adaptive is judged with foresight: each layer's scale comes from the gradient that it "
         "is\n    about to round, by the rule of exact_range; methods that see mean and deviation "
         "alone differ\n";
}

void ExpectGradients(const HistogramStep& step, const std::string& folder) {
  for (const judge::HistogramOfTensor& t : step.tensors)
    if (t.carries_s()) return;
  throw DataError(folder +
                  "/histograms.csv: has no dx and no dy, whose scales a policy decides; run again "
                  "with them in log.statistics");
}

}  // namespace

void WhatIf(const WhatIfOptions& options, std::ostream& out, std::ostream& notes) {
  const config::WhatIfConfig choice = ScenarioOf(options, notes);
  const config::Config config = ReadRunConfig(options.folder);
  const bool csv = options.view == View::kCsv, json = options.view == View::kJson;
  // The second one changes nothing.
  judge::Scenario scenario(choice, config.model), unchanged({}, config.model);
  WhatIfSummary summary(scenario.name());
  OrderedJson page = CommandJson("what-if");
  page["run"] = options.folder;
  page["scenario"] = scenario.name();
  page["rows"] = OrderedJson::array();
  const FormatHistory formats = ReadFormatHistory(options.folder, config);
  using Rows = std::vector<telemetry::WhatIfRow>;
  bool first = true;
  EachHistogramStep(options.folder, formats, [&](const HistogramStep& step) {
    if (choice.scaling) ExpectGradients(step, options.folder);
    if (first && csv) out << telemetry::Header<telemetry::WhatIfRow>() << '\n';
    first = false;
    // After the step in which the policy ends the run the rest of the file is only passed over.
    if (!scenario.ended().empty()) return;
    const Rows rows = scenario.Judge(step.step, step.epoch, step.tensors);
    const Rows were = csv || json ? Rows() : unchanged.Judge(step.step, step.epoch, step.tensors);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (csv) out << telemetry::FieldsOf(rows[i]).text() << '\n';
      if (json) page["rows"].push_back(RowJson(rows[i]));
      const ExponentBins& bins = *step.tensors[i].bins;
      summary.Add(rows[i],
                  {were.empty() ? NAN : were[i].underflow_pct_nonzero, bins.inf + bins.nan > 0});
    }
    if (!scenario.ended().empty()) summary.End(step.step, scenario.ended());
  });
  if (json) {
    page["ended"] = scenario.ended();
    PrintJson(page, out);
  }
  if (!csv && !json)
    EachRow<TensorRow>(options.folder, [&](const TensorRow& row) { summary.AddLogged(row); });
  std::ostream& text = csv || json ? notes : out;
  if (formats.stochastic)
    text << "the run rounds stochastically; the shares are those of rounding to nearest\n";
  if (RoundsBySign(config.precision))
    text << "the run rounds by sign, which histograms do not know: of what lies below the smallest "
            "number half counts as lost\n";
  if (csv || json) {
    text << summary.Text() << PolicyNote(choice);
  } else {
    summary.PrintTable(PolicyNote(choice), text);
  }
}

}  // namespace ada::study

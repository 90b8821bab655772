// assign: what was found, as a table and as YAML, and a training that proves it.
#include <algorithm>
#include <optional>
#include <ostream>
#include <variant>

#include "io/file.h"
#include "io/json_output.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "judge/serving.h"
#include "run/fork/fork.h"
#include "study/assign/assigner.h"
#include "study/commands.h"
#include "study/config_changes.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

// Written by hand, not by the tables of config/: it should contain only what differs from the usual
// format, one entry a line. Other keys of the configuration are set to what was measured, because
// they would change it where the fragment is laid over them.
std::string FragmentOf(const config::PrecisionConfig& precision, const config::Config& before) {
  std::string text = "precision:\n  format: " + FormatName(precision.format) + "\n";
  config::Config then = before;
  then.precision = precision;
  for (const auto& [key, value] : ChangedKeys("precision", before, then))
    if (key != "format" && (key != "layers" || precision.layers.empty()))
      text += "  " + key + ": " + value + "\n";
  if (!precision.layers.empty()) text += "  layers:\n";
  for (const config::LayerPrecisionConfig& entry : precision.layers) {
    text += "    - {match: " + config::YamlText(entry.match);
    const auto add = [&](const char* key, const std::optional<NumberFormat>& format) {
      if (format) text += std::string(", ") + key + ": " + FormatName(*format);
    };
    add("format", entry.format);
    add("activations", entry.activations);
    add("weights", entry.weights);
    add("gradients", entry.gradients);
    if (entry.operands.given())
      text += ", operands: " + FormatName(*entry.operands.by_operand.front()->format);
    text += "}\n";
  }
  return text;
}

// The mean loss of the last steps, with the formats and in fp32.
struct Proof {
  double with = 0, without = 0;
};
// The training with the formats compared with the one in fp32, from the same start.
// Gradients of one batch were the measure of the search; whether a training bears the formats only
// a training shows. Both have the same start and batches.
std::optional<Proof> Prove(const run::ForkSource& source, const AssignOptions& options,
                           const Assigner& found) {
  if (options.steps == 0) return std::nullopt;
  // The mean of some last losses is less a matter of chance than the last one.
  const auto last = [&](const config::PrecisionConfig& precision) {
    run::ForkSpec spec;
    spec.precision = precision;
    spec.steps = options.steps;
    const std::vector<double> losses = source.Run(spec).losses;
    const std::size_t some = std::min<std::size_t>(losses.size(), 10);
    double sum = 0;
    for (std::size_t i = losses.size() - some; i < losses.size(); ++i) sum += losses[i];
    return sum / static_cast<double>(some);
  };
  return Proof{last(found.Precision(found.formats())), last(config::PrecisionConfig())};
}

double MeanBits(const Assigner& found) {
  double bits = 0;
  for (const AnyFormat& format : found.formats()) bits += judge::BitsOf(format);
  return bits / static_cast<double>(found.formats().size());
}

void PrintAssigned(const AssignOptions& options, const Assigner& found,
                   const std::optional<Proof>& proof, std::ostream& out) {
  TextTable table({"layer", "format", "bits"});
  bool blocks = false;
  for (std::size_t i = 0; i < found.layers().size(); ++i) {
    const AnyFormat& format = found.formats()[i];
    table.Row({found.layers()[i].name, FormatName(format), ShortestText(judge::BitsOf(format))});
    blocks = blocks || std::holds_alternative<BlockFormat>(format);
  }
  table.Print(out, kTerminalWidth);
  if (blocks)
    PrintWrapped(
        "A block-scaled format is of a layer's operands (bits: of a value with its share of the "
        "scale); the layer is stored as the configuration says.",
        0, out);
  out << "Weight gradients of the first batch differ from those in fp32 by "
      << PercentText(100 * found.error()) << " (budget " << PercentText(100 * options.budget)
      << "), "
      << "with " << Formatted("%.3g", MeanBits(found)) << " bits\nfor the mean layer; "
      << Counted(found.forks(), "fork") << ".\n";
  if (!proof) return;
  out << "After " << Counted(options.steps, "step")
      << " the loss (mean of the last ten at most) is " << Formatted("%.5g", proof->with)
      << ", in fp32 " << Formatted("%.5g", proof->without) << ": "
      << Formatted("%+.3g %%", 100 * (proof->with - proof->without) / proof->without) << ".\n";
}

void PrintAssignedJson(const AssignOptions& options, const Assigner& found,
                       const std::optional<Proof>& proof, const std::string& fragment,
                       std::ostream& out) {
  OrderedJson json = CommandJson("assign");
  json["layers"] = OrderedJson::array();
  for (std::size_t i = 0; i < found.layers().size(); ++i)
    json["layers"].push_back({{"layer", found.layers()[i].name},
                              {"format", FormatName(found.formats()[i])},
                              {"bits", judge::BitsOf(found.formats()[i])}});
  json["error"] = found.error();
  json["budget"] = options.budget;
  json["mean_bits"] = MeanBits(found);
  json["forks"] = found.forks();
  json["proof"] = OrderedJson();
  if (proof)
    json["proof"] = {
        {"steps", options.steps}, {"loss", proof->with}, {"loss_fp32", proof->without}};
  json["yaml"] = fragment;
  PrintJson(json, out);
}

}  // namespace

// Throws what a fork throws before anything is printed; the file is written last.
void Assign(const AssignOptions& options, std::ostream& out, telemetry::Log& log) {
  const run::ForkSource source = run::ForkSource::OfConfig(options.config);
  Assigner assigner(source, options, log);
  assigner.Find();
  log.SetStatus("");
  const std::optional<Proof> proof = Prove(source, options, assigner);
  const std::string fragment = FragmentOf(assigner.Precision(assigner.formats()), options.config);
  if (options.json) {
    PrintAssignedJson(options, assigner, proof, fragment, out);
  } else {
    PrintAssigned(options, assigner, proof, out);
    out << "\n" << VisibleLines(fragment);
  }
  if (!options.yaml.empty()) WriteFileAtomically(options.yaml, fragment);
}

}  // namespace ada::study

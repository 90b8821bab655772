// assign: the cheapest format of each layer with which the gradients of a network stay as they are
// in fp32, within a budget, as a table and as YAML; and a training that proves it. A search by
// bisection: if a group of layers does not tolerate a format, each half is tried separately, in
// addition to what was accepted before. It needs few forks if most layers tolerate it; the result
// need not be the cheapest set of all.
#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "io/file.h"
#include "io/json_output.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "judge/serving.h"
#include "number/blocks/block_format.h"
#include "run/fork/fork.h"
#include "study/blame/findings.h"
#include "study/commands.h"
#include "study/config_changes.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

bool IsFp32(const AnyFormat& format) { return format == AnyFormat(kFp32); }

// Those that round something where formats are below fp32, for which bf16 stands.
std::vector<run::ForkLayer> LayersThatRound(const run::ForkSource& source) {
  config::PrecisionConfig narrow;
  narrow.format = kBf16;
  const std::vector<run::ForkLayer> all = source.Layers(narrow);
  std::vector<run::ForkLayer> layers = source.Layers(source.config().precision), rounding;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].rounds) rounding.push_back(layers[i]);
  return rounding;
}

// Block-scaled formats are of operands, which only products have.
bool Takes(const run::ForkLayer& layer, const AnyFormat& format) {
  return layer.has_weight || std::holds_alternative<NumberFormat>(format);
}

// A layer whose operands are in a block-scaled format is stored as the configuration says.
config::LayerPrecisionConfig EntryFor(const run::ForkLayer& layer, const AnyFormat& format) {
  config::LayerPrecisionConfig entry;
  entry.match = layer.name;
  if (const auto* plain = std::get_if<NumberFormat>(&format)) {
    entry.format = *plain;
    return entry;
  }
  entry.operands.by_operand.fill(config::OperandConfig{format});
  if (layer.activations == layer.weights && layer.weights == layer.gradients) {
    entry.format = layer.activations;
    return entry;
  }
  entry.activations = layer.activations;
  entry.weights = layer.weights;
  entry.gradients = layer.gradients;
  return entry;
}

// The search: the constructor, then Find once, then the results. Each try is a fork of one step
// (run/fork/fork.h), which costs a forward and a backward pass.
class Assigner {
 public:
  // Computes the gradients in fp32. All of them outlive this.
  Assigner(const run::ForkSource& source, const AssignOptions& options, telemetry::Log& log)
      : source_(source),
        options_(options),
        log_(log),
        layers_(LayersThatRound(source)),
        formats_(layers_.size(), kFp32) {
    reference_ = Gradients(formats_);
  }
  // Tries the formats, the cheapest first, on the layers that have none yet: by groups, each half
  // of one that does not fit for itself.
  void Find() {
    std::vector<AnyFormat> formats = options_.formats;
    // Formats of equal bits keep the order of the command line.
    std::stable_sort(formats.begin(), formats.end(), [](const auto& a, const auto& b) {
      return judge::BitsOf(a) < judge::BitsOf(b);
    });
    for (const AnyFormat& format : formats) {
      std::vector<std::size_t> open;
      for (std::size_t i = 0; i < layers_.size(); ++i)
        if (IsFp32(formats_[i]) && Takes(layers_[i], format)) open.push_back(i);
      if (!open.empty()) Try(open, format);
    }
  }

  // Those that round anything, as the configuration stores them, and what was found for each.
  const std::vector<run::ForkLayer>& layers() const { return layers_; }
  const std::vector<AnyFormat>& formats() const { return formats_; }
  // The distance of blame (study/blame/findings.h) between the gradients with formats() and those
  // in fp32.
  double error() const { return error_; }
  int forks() const { return forks_; }
  // Returns the section for these formats. A block-scaled one is of a layer's operands; the layer
  // is stored as the configuration says.
  config::PrecisionConfig Precision(const std::vector<AnyFormat>& formats) const {
    config::PrecisionConfig precision;
    precision.format = Usual(formats);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      config::LayerPrecisionConfig entry = EntryFor(layers_[i], formats[i]);
      if (entry.format == precision.format) entry.format.reset();
      if (entry.format || entry.activations || entry.operands.given())
        precision.layers.push_back(entry);
    }
    return precision;
  }

 private:
  // The format in which most layers are stored; fp32 too counts as one that layers have.
  // A fragment with the most frequent format as `format` needs the fewest entries.
  NumberFormat Usual(const std::vector<AnyFormat>& formats) const {
    std::vector<NumberFormat> stored;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      if (const auto format = EntryFor(layers_[i], formats[i]).format) stored.push_back(*format);
    if (stored.empty()) return kFp32;
    return *std::max_element(stored.begin(), stored.end(), [&](const auto& a, const auto& b) {
      return std::count(stored.begin(), stored.end(), a) <
             std::count(stored.begin(), stored.end(), b);
    });
  }
  run::ForkResult Gradients(const std::vector<AnyFormat>& formats) {
    log_.SetStatus("fork " + std::to_string(++forks_));
    run::ForkSpec spec;
    spec.precision = Precision(formats);
    spec.gradients = true;
    return source_.Run(spec);
  }
  // Gives `format` to as many layers of the group as bear it.
  void Try(const std::vector<std::size_t>& group, const AnyFormat& format) {
    std::vector<AnyFormat> tried = formats_;
    for (const std::size_t i : group) tried[i] = format;
    // The whole network with all formats so far is measured, since errors of layers add up.
    const double error = Distance(Gradients(tried), reference_);
    if (error <= options_.budget) {
      formats_ = std::move(tried);
      error_ = error;
      return;
    }
    if (group.size() == 1) return;
    const auto middle = group.begin() + static_cast<std::ptrdiff_t>(group.size() / 2);
    Try({group.begin(), middle}, format);
    Try({middle, group.end()}, format);
  }

  const run::ForkSource& source_;
  const AssignOptions& options_;
  telemetry::Log& log_;
  std::vector<run::ForkLayer> layers_;
  std::vector<AnyFormat> formats_;  // of layers_
  run::ForkResult reference_;
  double error_ = 0;
  int forks_ = 0;
};

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

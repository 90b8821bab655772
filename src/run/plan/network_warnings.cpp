// Warnings about keys that probably do not do what they were written for.
#include <algorithm>
#include <variant>

#include "config/load.h"
#include "graph/network/precision.h"
#include "graph/network/shapes.h"
#include "io/text.h"
#include "run/plan/plan_reports.h"

namespace ada::run {
namespace {

using Names = std::vector<std::string>;

// What an entry of precision.layers can change at one name, the network's input or a layer.
struct Rounds {
  std::string name;
  bool output = false;     // its output
  bool gradients = false;  // gradients by its output, in its format
  bool weight = false, weight_gradient = false, within_attention = false;
};
std::vector<Rounds> RoundsOf(const graph::Graph& graph) {
  std::vector<Rounds> all;
  if (!graph.reads_tokens()) all.push_back({.name = graph::kInputName, .output = true});
  for (const graph::LayerRow& layer : graph.layers()) {
    Rounds& rounds = all.emplace_back(Rounds{.name = layer.name, .weight = layer.has_weight});
    rounds.within_attention = layer.kind == "attention";
    for (const graph::RoundingPoint& point : graph.roundings()) {
      if (point.layer != layer.name) continue;
      if (point.tensor == "y") rounds.output = rounds.gradients = true;
      rounds.weight_gradient = rounds.weight_gradient || point.tensor == "dw";
    }
  }
  return all;
}
bool GivesAttention(const config::OperandsConfig& operands) {
  return std::any_of(operands.attention.begin(), operands.attention.end(),
                     [](const auto& one) { return one.has_value(); });
}
bool Changes(const config::LayerPrecisionConfig& entry, const Rounds& rounds) {
  return ((entry.format || entry.activations) && rounds.output) ||
         ((entry.format || entry.gradients) && rounds.gradients) ||
         ((entry.format || entry.weights || entry.operands.given()) && rounds.weight) ||
         (entry.weight_gradients && rounds.weight_gradient) ||
         (GivesAttention(entry.operands) && rounds.within_attention) ||
         (entry.accumulate.given() && (rounds.weight || rounds.within_attention)) ||
         ((entry.probabilities || entry.score_gradients) && rounds.within_attention);
}

// Collects a line for each pattern that matches no name of the graph, or nothing that its entry
// changes.
class Finder {
 public:
  explicit Finder(const graph::Graph& graph) : rounds_(RoundsOf(graph)) {
    for (const graph::LayerRow& layer : graph.layers()) layers_.push_back(layer.name);
    // Gradients within a layer too, which policies reach as LAYER.ds.
    for (const graph::ScalePoint& point : graph.scales()) {
      layers_.push_back(point.layer);
      (point.scaler != nullptr ? deciding_ : meeting_).push_back(point.layer);
    }
    for (const graph::Parameter& p : graph.parameters())
      if (p.gradient) parameters_.push_back(p.name);
  }

  void OnLayers(const std::string& key, const std::string& pattern, const Location& where) {
    Check(layers_, key, pattern, where, kLayer);
  }
  void OnPrecision(const std::string& key, const config::LayerPrecisionConfig& entry) {
    Names names;
    for (const Rounds& rounds : rounds_) {
      names.push_back(rounds.name);
      if (GlobMatch(entry.match, rounds.name) && Changes(entry, rounds)) return;
    }
    if (!Check(names, key, entry.match, entry.where, kLayer)) return;
    lines_.push_back(Place(key, entry.where) + "'" + entry.match +
                     "' has no effect: nothing that it matches rounds what the entry names (layers "
                     "that only move values keep their formats)");
  }
  // For entries of a policy that decides layer by layer. Under `reference` an entry also says
  // whether the branches that meet at a layer are brought to one scale.
  void OnScaling(const std::string& key, const scaling::LayerSettings& entry, bool reference) {
    const auto matches = [&](const std::string& name) { return GlobMatch(entry.match, name); };
    if (!Check(layers_, key, entry.match, entry.where, kLayer)) return;
    if (std::any_of(deciding_.begin(), deciding_.end(), matches)) return;
    if (reference && std::any_of(meeting_.begin(), meeting_.end(), matches)) return;
    lines_.push_back(Place(key, entry.where) + "'" + entry.match +
                     "' has no effect: no layer that it matches decides a scale (scales.csv has "
                     "those that do)");
  }
  void OnParameters(const std::string& key, const std::string& pattern, const Location& where) {
    std::string named;
    for (std::size_t i = 0; i < std::min<std::size_t>(parameters_.size(), 3); ++i)
      named += (i == 0 ? "" : ", ") + parameters_[i];
    Check(parameters_, key, pattern, where,
          "parameter of this model (they are called " + named + " ...)");
  }
  Names Take() { return std::move(lines_); }

 private:
  static std::string Place(const std::string& key, const Location& where) {
    const std::string place = ToString(where);
    return place + (place == "--set " + key ? "" : ": " + key) + ": ";
  }
  static constexpr const char* kLayer = "layer of this model (--dry-run lists them)";
  // Whether it matches any.
  bool Check(const Names& names, const std::string& key, const std::string& pattern,
             const Location& where, const std::string& what) {
    const bool used = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return GlobMatch(pattern, name);
    });
    if (used) return true;
    lines_.push_back(Place(key, where) + "'" + pattern + "' matches no " + what);
    return false;
  }

  std::vector<Rounds> rounds_;
  Names layers_, deciding_, meeting_, parameters_, lines_;
};

// The precision of each stretch of the run between two switches.
std::vector<config::PrecisionConfig> PrecisionsOf(const config::PrecisionConfig& precision) {
  std::vector<config::PrecisionConfig> all = {config::PrecisionAt(precision, 1)};
  for (const config::PrecisionSwitchConfig& change : precision.schedule)
    all.push_back(config::PrecisionAt(precision, change.from_step));
  return all;
}

// The last entry that gives the layer's weight a format; `end`: none does.
auto WeightEntry(const std::vector<config::LayerPrecisionConfig>& entries,
                 const std::string& layer) {
  return std::find_if(entries.rbegin(), entries.rend(), [&](const auto& entry) {
    return (entry.weights || entry.format) && GlobMatch(entry.match, layer);
  });
}
// A tied layer multiplies its owner's weight, rounded as the owner's entries say.
void WarnOfTiedFormats(const config::PrecisionConfig& precision, const graph::Graph& graph,
                       Names* lines) {
  const std::ptrdiff_t own = std::ssize(precision.layers);  // entries of switches follow them
  for (const config::PrecisionConfig& now : PrecisionsOf(precision))
    for (const graph::Parameter& p : graph.parameters())
      for (const std::string& tied : p.tied_layers) {
        const auto entry = WeightEntry(now.layers, tied);
        if (entry == now.layers.rend() ||
            graph::FormatsOf(now, tied).weights == graph::FormatsOf(now, p.layer).weights)
          continue;
        const bool scheduled = now.layers.rend() - entry > own;
        const std::string line = ToString(entry->where) +
                                 (scheduled ? ": precision.schedule[].layers[].match: '"
                                            : ": precision.layers[].match: '") +
                                 entry->match + "': the weight of " + tied + " is that of " +
                                 p.layer + ", whose format it keeps";
        if (!Contains(*lines, line)) lines->push_back(line);
      }
}

// With blocks: of any kind; otherwise only plain ones.
bool HasFormat(const config::OperandsConfig& operands, bool blocks) {
  const auto plain = [blocks](const auto& one) {
    return one && one->format && (blocks || std::holds_alternative<NumberFormat>(*one->format));
  };
  return std::any_of(operands.by_operand.begin(), operands.by_operand.end(), plain) ||
         std::any_of(operands.attention.begin(), operands.attention.end(), plain);
}
// Blocks have scales of their own.
void WarnOfUnusedTensorScaling(const config::PrecisionConfig& precision, Names* lines) {
  using Kind = config::TensorScalingConfig::Kind;
  const auto& scaling = precision.operands.tensor_scaling;
  if (!scaling || scaling->kind == Kind::kNone) return;
  const bool blocks = scaling->kind == Kind::kAdaptive;
  for (const config::PrecisionConfig& now : PrecisionsOf(precision)) {
    if (HasFormat(now.operands, blocks)) return;
    for (const config::LayerPrecisionConfig& entry : now.layers)
      if (HasFormat(entry.operands, blocks)) return;
  }
  lines->push_back(
      std::string("precision.operands.tensor_scaling has no effect: no operand has a ") +
      (blocks ? "" : "plain ") + "format");
}

// A network that sees what it is to predict reaches a loss that says nothing.
void WarnOfSeenTokens(const config::Config& config, Names* lines) {
  if (config.task != Task::kLanguage) return;
  for (const config::LayerConfig& layer : config.model.layers)
    if (layer.kind == "attention" && !layer.causal)
      lines->push_back(ToString(layer.where) + ": model.layers[].causal: " + layer.name +
                       " sees the tokens that it is to predict (task: language); causal: true "
                       "hides them");
}

// One value has no variance: its output is beta, its gradient 0, and it moves the running variance
// towards 0. PyTorch refuses such a batch. What is left of the last batch of an epoch is cut into
// micro-batches, and each process has its part of one.
void WarnOfSingleValues(const config::Config& config, const graph::Graph& graph,
                        std::int64_t images, Names* lines) {
  const std::int64_t batch = config.data.batch_size, micro = batch / config.train.accumulate;
  const std::int64_t tail = config.data.drop_last ? 0 : images % batch % micro;
  const std::int64_t parts =
      config.parallel.sync_batch_norm ? 1 : std::max<std::int64_t>(config.parallel.ranks, 1);
  const bool each = micro / parts == 1;
  if (!each && (tail == 0 || tail / parts != 1)) return;
  for (const graph::LayerRow& layer : graph.layers()) {
    if (layer.kind != "batch_norm" || layer.output.h * layer.output.w != 1) continue;
    lines->push_back(
        "batch norm " + layer.name + " sees a single value a channel in " +
        (each ? "each micro-batch" : "the last micro-batch of an epoch") +
        (parts > 1 ? " of one image in some process: use parallel.sync_batch_norm: true"
         : !each   ? ", of one image: use data.drop_last: true"
         : config.train.accumulate > 1 ? " of one image: use a smaller train.accumulate"
                                       : " of one image: use a larger data.batch_size"));
    return;
  }
}

void FindInPrecision(const config::PrecisionConfig& precision, Finder& finder) {
  for (const auto& entry : precision.layers) finder.OnPrecision("precision.layers[].match", entry);
  for (const config::PrecisionSwitchConfig& change : precision.schedule)
    for (const auto& entry : change.layers)
      finder.OnPrecision("precision.schedule[].layers[].match", entry);
}

}  // namespace

std::vector<std::string> PrecisionWarnings(const config::PrecisionConfig& precision,
                                           const graph::Graph& graph) {
  Finder finder(graph);
  FindInPrecision(precision, finder);
  std::vector<std::string> lines = finder.Take();
  WarnOfTiedFormats(precision, graph, &lines);
  return lines;
}

std::vector<std::string> NetworkWarnings(const config::Config& config, const graph::Graph& graph,
                                         std::int64_t images, std::int64_t total_steps) {
  Finder finder(graph);
  FindInPrecision(config.precision, finder);
  const config::LogConfig& log = config.log;
  if (log.dump_every > 0)
    for (std::size_t i = 0; i < log.dump_where.size(); ++i)
      if (!GlobMatch(log.dump[i], "loss"))
        finder.OnLayers("log.dump", log.dump[i], log.dump_where[i]);
  for (const auto& entry : config.scaling.layers)
    finder.OnScaling("scaling.layers[].match", entry, config.scaling.reference);
  for (const config::WhatIfConfig& scenario : log.what_if)
    if (scenario.scaling)
      for (const auto& entry : scenario.scaling->layers)
        finder.OnLayers("log.what_if[].scaling.layers[].match", entry.match, entry.where);
  const config::OptimizerConfig& optimizer = config.optimizer;
  for (std::size_t i = 0; i < optimizer.no_decay_where.size(); ++i)
    if (optimizer.no_decay[i] != config::kVectors)
      finder.OnParameters("optimizer.no_decay", optimizer.no_decay[i], optimizer.no_decay_where[i]);
  for (const config::ParameterGroupConfig& group : optimizer.groups)
    finder.OnParameters("optimizer.groups[].match", group.match, group.where);
  for (const config::InitParametersConfig& entry : config.model.init.parameters)
    finder.OnParameters("model.init.parameters[].match", entry.match, entry.where);
  std::vector<std::string> lines = finder.Take();
  WarnOfTiedFormats(config.precision, graph, &lines);
  WarnOfUnusedTensorScaling(config.precision, &lines);
  WarnOfSeenTokens(config, &lines);
  WarnOfSingleValues(config, graph, images, &lines);
  for (const config::PrecisionSwitchConfig& change : config.precision.schedule)
    if (change.from_step > total_steps)
      lines.push_back(ToString(change.where) +
                      ": precision.schedule[].from_step: " + std::to_string(change.from_step) +
                      " never comes, the run has " + Counted(total_steps, "step"));
  const config::InitConfig& init = config.model.init;
  if (init.zero_gamma && graph.last_norms().empty())
    lines.push_back(ToString(init.where) +
                    ": model.init.zero_gamma: no batch norm of this model feeds an addition");
  return lines;
}

}  // namespace ada::run

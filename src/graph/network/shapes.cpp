// Resolves layers one after the other, each by the row of its kind, and checks how their outputs
// are used.
#include "graph/network/shapes.h"

#include <algorithm>
#include <map>
#include <optional>

#include "error.h"
#include "graph/network/zoo.h"
#include "io/text.h"

namespace ada::graph {
namespace {

using config::LayerConfig;

std::vector<std::string> NamesOf(const std::vector<LayerConfig>& layers) {
  std::vector<std::string> names = {kInputName};
  for (const LayerConfig& layer : layers) names.push_back(layer.name);
  return names;
}

// Throws ConfigError "file:line:column: layer NAME: message".
[[noreturn]] void FailLayer(const LayerConfig& layer, const std::string& message) {
  throw ConfigError(PlacePrefix(layer.where) + "layer " + layer.name + ": " + message);
}

// Names are keys of logs and checkpoints, so each must be unique.
void CheckNames(const std::vector<LayerConfig>& layers) {
  std::map<std::string, const LayerConfig*> seen;
  for (const LayerConfig& layer : layers) {
    if (layer.name == kInputName || layer.name == "loss") {
      FailLayer(layer,
                "the name is taken (`input`: the network's images, `loss`: the loss in the "
                "logs); choose another");
    }
    const auto [first, is_new] = seen.emplace(layer.name, &layer);
    if (is_new) continue;
    const std::string place = PlacePrefix(first->second->where);
    FailLayer(layer,
              "a second layer of this name" +
                  (place.empty() ? "" : "; the first is at " + place.substr(0, place.size() - 2)));
  }
}

// Returns the value that `name` refers to, as seen from node `index`. The error
// distinguishes three mistakes: the layer itself, a later layer, or an unknown
// name.
int FindValue(const std::vector<LayerConfig>& layers, int index, const std::string& name) {
  if (name == kInputName) return 0;
  for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
    if (layers[i].name != name) continue;
    if (i < index) return i + 1;
    if (i == index) FailLayer(layers[index], "it cannot be its own input");
    FailLayer(layers[index], "input " + name + " comes later; a layer stands after its inputs");
  }
  FailLayer(layers[index], "unknown input '" + name + "'" + Nearest(name, NamesOf(layers)));
}

const layers::LayerKind& KindOf(const LayerConfig& layer) {
  if (const layers::LayerKind* kind = layers::FindLayerKind(layer.kind)) return *kind;
  std::vector<std::string> known;
  for (const layers::LayerKind& kind : layers::LayerKinds()) known.emplace_back(kind.name);
  FailLayer(layer, "unknown kind '" + layer.kind + "'" + Nearest(layer.kind, known));
}

void CheckInputCount(const LayerConfig& layer, const layers::LayerKind& kind, std::size_t count) {
  if (kind.joins ? count >= static_cast<std::size_t>(kind.least_inputs) : count == 1) return;
  const std::string found = ", found " + std::to_string(count);
  FailLayer(layer, layer.kind + (kind.joins ? " takes at least two `inputs`" + found
                                            : " takes one input" + found + " in `inputs`"));
}

// Layers that join are a sequence if any input of all their positions is one, in whatever order the
// inputs stand: a gate, or a table of positions, is none.
bool GivesSequence(const layers::LayerKind& kind, const layers::LayerShapes& shapes) {
  if (kind.positions != layers::Positions::kAsInput)
    return kind.positions == layers::Positions::kSequence;
  return std::any_of(shapes.inputs.begin(), shapes.inputs.end(), [&](const auto& input) {
    const bool whole = input.shape.h == shapes.output.h && input.shape.w == shapes.output.w;
    return input.sequence && (whole || !kind.joins);
  });
}

// Fills in what follows from the shapes of the inputs. The functions of rows throw without a place,
// which is added here. A tied layer's weight is removed from its parameters, because its owner has
// it.
void Infer(Node& node, layers::LayerShapes shapes) {
  const layers::LayerKind& kind = *node.kind;
  try {
    kind.infer(node.config, shapes);
    layers::RequireSize(shapes.output, "its output");
    if (kind.parameters) node.parameters = kind.parameters(node.config, shapes);
    if (node.tied_to >= 0) node.parameters.erase(node.parameters.begin());
    for (const layers::ParameterSpec& p : node.parameters)
      layers::RequireSize(p.shape, "its " + p.name);
  } catch (const ConfigError& error) {
    FailLayer(node.config, error.what());
  }
  node.input = shapes.input();
  node.output = shapes.output;
  node.mflop = shapes.mflop;
  node.sequence = GivesSequence(kind, shapes);
  for (const layers::OwnDecision& decision : kind.decisions)
    node.decision_fans.push_back(decision.fan(node.config, shapes));
}

// The node whose positions a layer reads.
int FindPool(const std::vector<LayerConfig>& layers, int index, const Network& network) {
  const LayerConfig& layer = layers[index];
  std::vector<std::string> pools;
  for (int i = 0; i < index; ++i) {
    if (!network.nodes[i].kind->gives_positions) continue;
    if (layers[i].name == layer.pool) return i;
    pools.push_back(layers[i].name);
  }
  const bool is_layer = std::any_of(layers.begin(), layers.end(), [&](const LayerConfig& other) {
    return other.name == layer.pool;
  });
  FailLayer(layer, is_layer ? "pool " + layer.pool + " is no max_pool that stands before it"
                            : "unknown pool '" + layer.pool + "'" + Nearest(layer.pool, pools));
}

// The node that owns the weight which a layer uses.
int FindWeight(const std::vector<LayerConfig>& layers, int index, const Network& network) {
  const LayerConfig& layer = layers[index];
  std::vector<std::string> owners;
  for (int i = 0; i < index; ++i) {
    const Node& node = network.nodes[i];
    const bool linear = node.config.kind == layer.kind;
    if ((!node.kind->gathers_weight && !linear) || node.tied_to >= 0) continue;
    if (layers[i].name == layer.weight_of) return i;
    owners.push_back(layers[i].name);
  }
  const bool is_layer = std::any_of(layers.begin(), layers.end(), [&](const LayerConfig& other) {
    return other.name == layer.weight_of;
  });
  FailLayer(layer, is_layer ? "weight_of " + layer.weight_of +
                                  " is no embedding or linear layer with a weight of its own that "
                                  "stands before it"
                            : "weight_of: unknown layer '" + layer.weight_of + "'" +
                                  Nearest(layer.weight_of, owners));
}

// Layers are resolved in order, so that everything a node may refer to is in `network` already.
Node ResolveNode(const std::vector<LayerConfig>& layers, int index, const Network& network) {
  const LayerConfig& layer = layers[index];
  Node node;
  node.config = layer;
  node.kind = &KindOf(layer);
  for (const std::string& name : layer.inputs) {
    node.inputs.push_back(FindValue(layers, index, name));
  }
  if (node.inputs.empty()) node.inputs.push_back(index);
  CheckInputCount(layer, *node.kind, node.inputs.size());
  layers::LayerShapes shapes;
  for (const int value : node.inputs) {
    shapes.inputs.push_back({value == 0 ? kInputName : layers[value - 1].name, network.shape(value),
                             value > 0 && network.nodes[value - 1].sequence});
  }
  if (node.kind->reads_tokens && node.inputs[0] != 0)
    FailLayer(layer, layer.kind + " reads tokens, the network's `input` alone");
  if (node.kind->reads_positions) {
    node.pool = FindPool(layers, index, network);
    const Node& pool = network.nodes[node.pool];
    shapes.pool = {pool.config, pool.input, pool.output};
  }
  if (!layer.weight_of.empty()) {
    node.tied_to = FindWeight(layers, index, network);
    shapes.tied = network.nodes[node.tied_to].parameters[0].shape;
  }
  Infer(node, std::move(shapes));
  return node;
}

bool HasImages(Task task) {
  return task == Task::kClassification || task == Task::kSegmentation || task == Task::kDetection;
}

// An embedding reads tokens, which no task of images has.
void CheckTokens(const Network& network, Task task) {
  for (const Node& node : network.nodes)
    if (node.kind->reads_tokens && HasImages(task))
      FailLayer(node.config, node.config.kind +
                                 " reads tokens, and the data of this task are images; tokens are "
                                 "those of task: language");
}

// Learned positions refuse longer sequences themselves; rotary ones have no rows that could be too
// few.
void CheckContext(const Network& network, const config::ModelConfig& model) {
  const std::optional<int>& context = model.transformer.context;
  if (model.zoo.empty() || !network.reads_tokens() || !context) return;
  if (network.input.h <= *context) return;
  throw ConfigError(PlacePrefix(model.where) + "model.context: sequences have " +
                    std::to_string(network.input.h) + " tokens, more than context " +
                    std::to_string(*context) + " of " + model.zoo);
}

// An output that no layer reads is a wiring mistake, which would otherwise silently cost memory and
// time.
void CheckUse(const Network& network) {
  const auto consumers = network.Consumers();
  for (const int node : consumers[0]) {
    if (!network.reads_tokens() || network.nodes[node].kind->reads_tokens) continue;
    FailLayer(network.nodes[node].config,
              "`input` is tokens, as an embedding reads it; read the embedding's output");
  }
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    if (!consumers[i + 1].empty() || network.IsOutput(static_cast<int>(i) + 1)) continue;
    FailLayer(network.nodes[i].config, "no layer uses its output (" +
                                           ToString(network.nodes[i].output) +
                                           "); remove it or name it in `inputs`");
  }
}

}  // namespace

std::int64_t Node::trained_numel() const {
  std::int64_t sum = 0;
  for (const layers::ParameterSpec& parameter : parameters) {
    if (parameter.trained) sum += parameter.shape.numel();
  }
  return sum;
}

bool Node::rounds_output() const { return kind->RoundsOutput(config); }

bool Node::rounds_gradient() const {
  if (kind->rounds_gradient) return kind->rounds_gradient(config);
  return rounds_output() && !kind->joins;
}

bool Network::IsOutput(int value) const {
  return std::find(outputs.begin(), outputs.end(), value) != outputs.end();
}

bool Network::reads_tokens() const {
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const Node& node) { return node.kind->reads_tokens; });
}

bool Network::MultipliesWeight(int node) const {
  if (nodes[node].kind->has_weight) return nodes[node].tied_to < 0;
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const Node& other) { return other.tied_to == node; });
}

std::int64_t Network::trained_numel() const {
  std::int64_t sum = 0;
  for (const Node& node : nodes) sum += node.trained_numel();
  return sum;
}

double Network::mflop() const {
  double sum = 0;
  for (const Node& node : nodes) sum += node.mflop;
  return sum;
}

std::vector<std::vector<int>> Network::Consumers() const {
  std::vector<std::vector<int>> consumers(nodes.size() + 1);
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    for (const int value : nodes[i].inputs) consumers[value].push_back(i);
  }
  return consumers;
}

std::vector<bool> Network::NeedsGradient() const {
  std::vector<bool> needs(nodes.size() + 1, false);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    needs[i + 1] = nodes[i].kind->is_trained();
    for (const int value : nodes[i].inputs) needs[i + 1] = needs[i + 1] || needs[value];
  }
  return needs;
}

// Checks go from the parts to the whole, so that the first error is about the cause.
Network Resolve(const config::ModelConfig& model, const Shape& input, Task task) {
  CheckZooTask(model, task);
  std::vector<LayerConfig> layers = model.zoo.empty() ? model.layers : ExpandZoo(model);
  for (LayerConfig& layer : layers) {
    if (layer.is_per_class) layer.channels = layer.features = model.classes;
  }
  if (layers.empty()) {
    throw ConfigError(PlacePrefix(model.where) +
                      "model: the network has no layers; expected `zoo` or `layers`");
  }
  CheckNames(layers);
  Network network;
  network.input = {1, input.h, input.w, input.c};
  network.nodes.reserve(layers.size());
  for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
    network.nodes.push_back(ResolveNode(layers, i, network));
  }
  CheckTokens(network, task);
  CheckContext(network, model);
  network.outputs = FindOutputs(model, layers, task);
  CheckUse(network);
  CheckOutputs(network, model, task);
  if (network.trained_numel() == 0) {
    throw ConfigError(PlacePrefix(model.where) +
                      "model: no layer has weights, so there is nothing to train; add a conv2d or "
                      "linear layer");
  }
  return network;
}

}  // namespace ada::graph

// See shapes.h: totals, names and inputs. The rule of each kind of layer stands in infer.cpp.
#include "graph/network/shapes.h"

#include <map>

#include "core/error.h"
#include "core/text.h"
#include "graph/network/infer.h"
#include "graph/network/zoo.h"

namespace ada::graph {
namespace {

using config::LayerConfig;

constexpr const char* kInputName = "input";

std::vector<std::string> NamesOf(const std::vector<LayerConfig>& layers) {
  std::vector<std::string> names = {kInputName};
  for (const LayerConfig& layer : layers) names.push_back(layer.name);
  return names;
}

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
    const std::string place = Place(first->second->where);
    FailLayer(layer,
              "a second layer of this name" +
                  (place.empty() ? "" : "; the first is at " + place.substr(0, place.size() - 2)));
  }
}

// The value that `name` stands for, seen from node `index`.
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

Node ResolveNode(const std::vector<LayerConfig>& layers, int index, const Network& network) {
  const LayerConfig& layer = layers[index];
  Node node;
  node.config = layer;
  node.kind = KindOf(layer);
  for (const std::string& name : layer.inputs) {
    node.inputs.push_back(FindValue(layers, index, name));
  }
  if (node.inputs.empty()) node.inputs.push_back(index);
  std::vector<InputShape> inputs;
  for (const int value : node.inputs) {
    inputs.push_back({value == 0 ? kInputName : layers[value - 1].name, network.shape(value)});
  }
  Infer(node, inputs);
  return node;
}

void CheckUse(const Network& network) {
  const auto consumers = network.Consumers();
  for (std::size_t i = 0; i + 1 < network.nodes.size(); ++i) {
    if (!consumers[i + 1].empty()) continue;
    FailLayer(network.nodes[i].config, "no layer uses its output (" +
                                           ToString(network.nodes[i].output) +
                                           "); remove it or name it in `inputs`");
  }
}

void CheckLogits(const Network& network, int classes) {
  const Node& last = network.nodes.back();
  if (last.output == Shape{1, 1, 1, classes}) return;
  FailLayer(last.config, "the last layer gives the logits: expected output " +
                             std::to_string(classes) + " (model.classes), found " +
                             ToString(last.output));
}

}  // namespace

std::string Place(const Location& where) {
  return where.file.empty() && where.line == 0 ? "" : ToString(where) + ": ";
}

std::string Nearest(const std::string& name, const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
}

std::int64_t Network::parameters() const {
  std::int64_t sum = 0;
  for (const Node& node : nodes) sum += node.parameters;
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
    needs[i + 1] = nodes[i].is_trained();
    for (const int value : nodes[i].inputs) needs[i + 1] = needs[i + 1] || needs[value];
  }
  return needs;
}

Network Resolve(const config::ModelConfig& model, const Shape& input) {
  const std::vector<LayerConfig> layers = model.zoo.empty() ? model.layers : ExpandZoo(model);
  if (layers.empty()) {
    throw ConfigError(Place(model.where) +
                      "model: the network has no layers; expected `zoo` or `layers`");
  }
  CheckNames(layers);
  Network network;
  network.input = {1, input.h, input.w, input.c};
  network.nodes.reserve(layers.size());
  for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
    network.nodes.push_back(ResolveNode(layers, i, network));
  }
  CheckUse(network);
  CheckLogits(network, model.classes);
  if (network.parameters() == 0) {
    throw ConfigError(Place(model.where) +
                      "model: no layer has weights, so there is nothing to train; add a conv2d or "
                      "linear layer");
  }
  return network;
}

}  // namespace ada::graph

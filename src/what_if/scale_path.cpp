#include "what_if/scale_path.h"

#include <algorithm>

#include "core/error.h"
#include "graph/layers/layer_kind.h"
#include "graph/network/zoo.h"

namespace ada::what_if {

// Builds no graph: names of layers and their kinds are enough, and no shape has to fit.
ScalePath::ScalePath(const config::ModelConfig& model, bool scales_batch_norms) {
  const auto layers = model.zoo.empty() ? model.layers : graph::ExpandZoo(model);
  std::map<std::string, int> values = {{"input", 0}};
  for (const config::LayerConfig& layer : layers) {
    const auto index = static_cast<int>(nodes_.size());
    Node node;
    node.name = layer.name;
    const graph::LayerKind* kind = graph::FindLayerKind(layer.kind);
    ADA_CHECK(kind != nullptr);
    node.chooses = kind->Chooses(scales_batch_norms);
    node.trained = kind->is_trained();
    node.rounds_output = kind->RoundsOutput(layer);
    for (const std::string& input : layer.inputs) node.inputs.push_back(values.at(input));
    if (node.inputs.empty()) node.inputs.push_back(index);
    const bool before = std::any_of(node.inputs.begin(), node.inputs.end(),
                                    [this](int value) { return Needs(value); });
    if (node.chooses && before) choosers_.push_back(node.name);
    node.needs_gradient = node.trained || before;
    values[layer.name] = index + 1;
    nodes_.push_back(std::move(node));
  }
  for (const std::string& name : graph::OutputNames(model, layers))
    outputs_.push_back(values.at(name));
}

// From the last layer to the first, as the backward pass goes: when a layer is reached all its
// consumers have left their scales.
ScalePath::Scales ScalePath::Walk(float start, const Choice& choose) const {
  Scales scales = {{{"loss", "dx"}, start}};
  if (outputs_.size() > 1) scales[{"loss", "dx2"}] = start;
  std::vector<std::vector<float>> arriving(nodes_.size() + 1);  // by value
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    std::vector<float>& branches = arriving[i + 1];
    const auto value = static_cast<int>(i) + 1;
    if (std::find(outputs_.begin(), outputs_.end(), value) != outputs_.end())
      branches.insert(branches.begin(), start);  // read after all layers
    if (branches.empty()) continue;
    float scale = branches[0];
    if (branches.size() > 1) scales[{node.name, "dy"}] = scale = choose.sum(node.name, branches);
    if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](int v) { return Needs(v); }))
      continue;
    if (node.chooses) scale = choose.layer(node.name, scale);
    scales[{node.name, "dx"}] = scales[{node.name, "dx2"}] = scale;
    for (const int value : node.inputs)
      if (Needs(value)) arriving[value].push_back(scale);
  }
  return scales;
}

// Tensor dx of the loss belongs to the first output, dx2 to the second.
std::string ScalePath::FormatOwner(const std::string& layer, const std::string& tensor) const {
  int value = tensor == "dx2" ? outputs_.back() : outputs_.front();  // of the loss
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].name == layer)
      value = tensor == "dy"    ? static_cast<int>(i) + 1
              : tensor == "dx2" ? nodes_[i].inputs.back()
                                : nodes_[i].inputs[0];
  while (value > 0 && !nodes_[value - 1].rounds_output) value = nodes_[value - 1].inputs[0];
  return value > 0 ? nodes_[value - 1].name : "";
}

}  // namespace ada::what_if

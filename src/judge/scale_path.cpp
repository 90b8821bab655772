// Walks the layers from the last to the first, as a backward pass does, and notes which scale each
// gradient carries.
#include "judge/scale_path.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "error.h"
#include "graph/network/zoo.h"
#include "io/tensor_names.h"
#include "io/text.h"
#include "layers/layer_kind.h"

namespace ada::judge {

// Builds no graph: names of layers and their kinds are enough, and no shape has to fit.
ScalePath::ScalePath(const config::ModelConfig& model, bool scales_batch_norms,
                     bool scales_attention)
    : scales_attention_(scales_attention) {
  const auto layers = model.zoo.empty() ? model.layers : graph::ExpandZoo(model);
  std::map<std::string, int> values = {{"input", 0}};
  for (const config::LayerConfig& layer : layers) {
    const auto index = static_cast<int>(nodes_.size());
    Node node;
    node.name = layer.name;
    const layers::LayerKind* kind = layers::FindLayerKind(layer.kind);
    ADA_CHECK(kind != nullptr);
    node.chooses = kind->Chooses(scales_batch_norms);
    node.trained = kind->is_trained();
    node.rounds_output = kind->RoundsOutput(layer);
    node.is_attention = !kind->decisions.empty();
    node.rounds_scores = layer.score_gradients != "fp32";
    for (const std::string& input : layer.inputs) node.inputs.push_back(values.at(input));
    if (node.inputs.empty()) node.inputs.push_back(index);
    const bool before = std::any_of(node.inputs.begin(), node.inputs.end(),
                                    [this](int value) { return Needs(value); });
    if (node.chooses && before) choosers_.push_back(node.name);
    node.needs_gradient = node.trained || before;
    std::vector<std::string> within;
    EachWithin(node,
               [&](const std::string& tensor) { within.push_back(DecisionOf(node.name, tensor)); });
    choosers_.insert(choosers_.end(), within.rbegin(), within.rend());
    values[layer.name] = index + 1;
    nodes_.push_back(std::move(node));
  }
  for (const std::string& name : graph::OutputNames(model, layers))
    outputs_.push_back(values.at(name));
}

// The order of LayerKind::decisions, in which they are taken.
void ScalePath::EachWithin(const Node& node,
                           const std::function<void(const std::string& tensor)>& use) const {
  if (!node.is_attention || !node.needs_gradient || !scales_attention_) return;
  for (const char* tensor : {"dv", "ds", "dq", "dk"})
    if (node.rounds_scores || std::string_view(tensor) != "ds") use(tensor);
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
    if (node.is_attention) {
      WalkAttention(node, scale, choose, scales, arriving);
      continue;
    }
    if (node.chooses)
      scale = choose.layer(node.name, "dx", scale);
    else if (choose.other)
      scale = choose.other(node.name, scale);
    scales[{node.name, "dx"}] = scales[{node.name, "dx2"}] = scale;
    for (const int value : node.inputs)
      if (Needs(value)) arriving[value].push_back(scale);
  }
  return scales;
}

// dq and dk are products of ds. One input holds queries, keys and values side by side: their
// gradients meet there as branches do.
void ScalePath::WalkAttention(const Node& node, float scale_in, const Choice& choose,
                              Scales& scales, std::vector<std::vector<float>>& arriving) const {
  for (const char* tensor : {"dv", "ds", "dq", "dk"}) scales[{node.name, tensor}] = scale_in;
  EachWithin(node, [&](const std::string& tensor) {
    const bool of_scores = tensor == "dq" || tensor == "dk";
    const float in = of_scores ? scales.at({node.name, "ds"}) : scale_in;
    scales[{node.name, tensor}] = choose.layer(node.name, tensor, in);
  });
  const std::array<const char*, 3> tensors = {"dq", "dk", "dv"};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const int value = node.inputs.size() == 1 ? node.inputs[0] : node.inputs.at(i);
    if (Needs(value)) arriving[value].push_back(scales.at({node.name, tensors[i]}));
  }
}

// Tensor dx of the loss belongs to the first output, dx2 to the second.
std::string ScalePath::FormatOwner(const std::string& layer, const std::string& tensor) const {
  if (IsOfAttention(tensor)) return layer;
  int value = tensor == "dx2" ? outputs_.back() : outputs_.front();  // of the loss
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].name == layer)
      value = tensor == "dy"    ? static_cast<int>(i) + 1
              : tensor == "dx2" ? nodes_[i].inputs.back()
                                : nodes_[i].inputs[0];
  while (value > 0 && !nodes_[value - 1].rounds_output) value = nodes_[value - 1].inputs[0];
  return value > 0 ? nodes_[value - 1].name : "";
}

// S of the walk is the number of the entry, from 1, or 0 where a rule of the layer decides.
int TotalScaleEntry(const config::Config& config, const std::string& layer,
                    const std::string& tensor) {
  const scaling::Settings& scaling = config.scaling;
  const auto entry_of = [&](const std::string& name) {
    std::size_t last = 0;
    for (std::size_t i = 0; i < scaling.layers.size(); ++i)
      if (scaling.layers[i].total_scale && GlobMatch(scaling.layers[i].match, name)) last = i + 1;
    return static_cast<float>(last);
  };
  if (scaling.policy != "adaptive") return -1;
  const ScalePath path(config.model, scaling.adaptive.batch_norm, scaling.adaptive.attention);
  const ScalePath::Scales scales =
      path.Walk(0, {[&](const std::string& decided, const std::string& of, float) {
                      return entry_of(DecisionOf(decided, of));
                    },
                    [](const std::string&, const std::vector<float>& branches) {
                      return *std::max_element(branches.begin(), branches.end());
                    }});
  const auto found = scales.find({layer, tensor});
  return found == scales.end() ? -1 : static_cast<int>(found->second) - 1;
}

}  // namespace ada::judge

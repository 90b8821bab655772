// Finds the outputs of a network by name, and checks their shapes against what the task's loss
// takes.
#include <algorithm>

#include "error.h"
#include "graph/network/shapes.h"
#include "graph/network/zoo.h"
#include "io/text.h"

namespace ada::graph {
namespace {

using config::LayerConfig;
using config::ModelConfig;

// If names come from model.outputs, the message points at that entry, otherwise at the section
// `model`.
[[noreturn]] void FailOutputs(const ModelConfig& model, std::size_t index,
                              const std::string& message) {
  const bool placed = index < model.outputs_where.size();
  throw ConfigError(PlacePrefix(placed ? model.outputs_where[index] : model.where) +
                    "model.outputs: " + message);
}

// Throws where `node` does not give what `takes` names.
void CheckOutput(const Node& node, const Shape& expected, const std::string& takes) {
  if (node.output == expected) return;
  throw ConfigError(PlacePrefix(node.config.where) + "layer " + node.config.name + ": " + takes +
                    ", found " + ToString(node.output));
}

void CheckDetection(const Node& locations, const Node& scores, int classes) {
  const std::int64_t boxes = locations.output.w;
  CheckOutput(locations, {1, 1, boxes, 4},
              "the first output gives the locations of boxes: expected 1xBOXESx4, as concat_boxes "
              "gives");
  CheckOutput(scores, {1, 1, boxes, classes + 1},
              "the second output gives the scores of boxes: expected " +
                  ToString(Shape{1, 1, boxes, classes + 1}) + " (as many boxes as layer " +
                  locations.config.name + ", model.classes and the background)");
}

}  // namespace

std::vector<int> FindOutputs(const ModelConfig& model, const std::vector<LayerConfig>& layers,
                             Task task) {
  const std::vector<std::string> names = OutputNames(model, layers);
  std::vector<int> outputs;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = std::find_if(layers.begin(), layers.end(), [&](const LayerConfig& layer) {
      return layer.name == names[i];
    });
    if (found == layers.end()) {
      std::vector<std::string> known;
      for (const LayerConfig& layer : layers) known.push_back(layer.name);
      FailOutputs(model, i, "no layer is called '" + names[i] + "'" + Nearest(names[i], known));
    }
    const int value = static_cast<int>(found - layers.begin()) + 1;
    if (std::find(outputs.begin(), outputs.end(), value) != outputs.end())
      FailOutputs(model, i, "'" + names[i] + "' stands twice");
    outputs.push_back(value);
  }
  const bool detects = task == Task::kDetection;
  if (outputs.size() != (detects ? 2U : 1U))
    FailOutputs(model, 0,
                (detects ? std::string("`task: detection` takes two, locations and scores")
                         : std::string("the loss of this task takes one")) +
                    "; found " + std::to_string(outputs.size()));
  return outputs;
}

void CheckOutputs(const Network& network, const ModelConfig& model, Task task) {
  const auto node = [&](std::size_t output) -> const Node& {
    return network.nodes[static_cast<std::size_t>(network.outputs[output] - 1)];
  };
  const std::string classes = std::to_string(model.classes);
  switch (task) {
    case Task::kClassification:
      return CheckOutput(
          node(0), {1, 1, 1, model.classes},
          "the last layer gives the logits: expected output " + classes + " (model.classes)");
    case Task::kSegmentation:
      return CheckOutput(node(0), {1, network.input.h, network.input.w, model.classes},
                         "the last layer gives the logits of each pixel: expected output " +
                             ToString(Shape{1, network.input.h, network.input.w, model.classes}) +
                             " (the image's size, model.classes)");
    case Task::kLanguage:
      return CheckOutput(node(0), {1, network.input.h, 1, model.classes},
                         "the last layer gives the logits of each token: expected output " +
                             ToString(Shape{1, network.input.h, 1, model.classes}) +
                             " (data.context, the vocabulary)");
    case Task::kDetection:
      return CheckDetection(node(0), node(1), model.classes);
  }
}

}  // namespace ada::graph

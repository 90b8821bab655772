// From layer configurations to a checked network: which output feeds which layer, every shape, the
// number of parameters and operations. No tensors, no backend.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/task.h"
#include "core/tensor.h"
#include "graph/layers/layer_kind.h"

namespace ada::graph {

// A layer whose inputs are found and whose shapes are known. Values are numbered: 0 is the
// network's input, i + 1 the output of node i.
struct Node {
  config::LayerConfig config;
  const LayerKind* kind = nullptr;
  std::vector<int> inputs;  // values
  int pool = -1;            // of a kind that reads positions: the node that gives them
  // The node whose weight it multiplies, its own parameters being the others; -1: its own.
  int tied_to = -1;
  bool sequence = false;                  // the positions of its output are tokens
  Shape input, output;                    // of the first input and of the output, one image (n = 1)
  std::vector<ParameterSpec> parameters;  // its own
  std::vector<double> decision_fans;      // by LayerKind::decisions
  double mflop = 0;  // of a product; forward, one image, a multiply-add counted as 2

  std::int64_t trained_numel() const;  // of its parameters, without running statistics
  bool rounds_output() const;
  bool rounds_gradient() const;  // of its dx
  // The node whose first parameter it multiplies or gathers.
  int weight_owner(int self) const { return tied_to >= 0 ? tied_to : self; }
};

struct Network {
  Shape input;  // n = 1
  std::vector<Node> nodes;
  // Values that the loss is of: the logits; of a detection network locations, then scores.
  std::vector<int> outputs;

  bool IsOutput(int value) const;
  // Whether its input is tokens, of which embeddings alone read: [n, tokens, 1, 1].
  bool reads_tokens() const;
  // Whether a rounded copy of the node's own weight is multiplied, by it or a layer tied to it.
  bool MultipliesWeight(int node) const;
  const Shape& shape(int value) const { return value == 0 ? input : nodes[value - 1].output; }
  std::int64_t trained_numel() const;
  double mflop() const;
  // For each value the nodes that read it, in layer order; a node that reads it twice stands twice.
  // The loss, which reads the outputs, is no node.
  std::vector<std::vector<int>> Consumers() const;
  // For each value whether its gradient is needed: something before it is trained.
  std::vector<bool> NeedsGradient() const;
};

// Expands model.zoo (or takes model.layers), finds inputs by name (`input` is the network's own;
// none given: the layer before) and infers shapes from `input` (n is ignored). Throws ConfigError,
// "file:line:column: layer NAME: ...", naming both shapes where shapes do not fit. The outputs are
// what the task's loss takes:
//   classification  logits [classes]
//   segmentation    logits [h, w, classes] of the input's h and w
//   language        logits [tokens, 1, vocabulary] of the input's tokens, h
//   detection       locations [1, boxes, 4] and scores [1, boxes, 1 + classes], the background
//   first
Network Resolve(const config::ModelConfig& model, const Shape& input,
                Task task = Task::kClassification);

// "file:line:column: ", the start of a message; "" where the place is not known.
std::string PlacePrefix(const Location& where);
// "; did you mean 'NAME'?", or "" where no known name is near.
std::string Nearest(const std::string& name, const std::vector<std::string>& known);

// The outputs of a network, which the loss reads: found by name, and checked against what the
// task's loss takes (Resolve in shapes.h says it).

// Values. Throws ConfigError where a name of model.outputs is unknown or stands twice, or where the
// task's loss takes another number of outputs.
std::vector<int> FindOutputs(const config::ModelConfig& model,
                             const std::vector<config::LayerConfig>& layers, Task task);

// Throws ConfigError, naming the layer, where an output has another shape than the loss takes.
void CheckOutputs(const Network& network, const config::ModelConfig& model, Task task);

}  // namespace ada::graph

// From layer configurations to a checked network: which output feeds which layer, every shape, the
// number of parameters and operations. No tensors, no backend.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "io/task.h"
#include "layers/layer_kind.h"
#include "number/tensor.h"

namespace ada::graph {

// The name of the network's own input, which no layer may have.
inline constexpr const char* kInputName = "input";

// A layer whose inputs have been found and whose shapes are known. Values are numbered: 0 is the
// network's input, i + 1 the output of node i.
struct Node {
  config::LayerConfig config;
  const layers::LayerKind* kind = nullptr;
  std::vector<int> inputs;  // values
  int pool = -1;            // for a kind that reads positions: the node that records them
  // The node whose weight it multiplies by (its other parameters are its own); -1: its own weight.
  int tied_to = -1;
  bool sequence = false;  // the positions of its output are tokens
  Shape input, output;    // of the first input and of the output, one image (n = 1)
  std::vector<layers::ParameterSpec> parameters;  // its own
  std::vector<double> decision_fans;  // number of terms in a sum, by LayerKind::decisions
  double mflop = 0;  // of a matmul; forward, one image, one multiply-add counted as 2

  std::int64_t trained_numel() const;  // of its parameters, without running statistics
  bool rounds_output() const;
  bool rounds_gradient() const;  // of its dx
  // The node that owns the weight which this one multiplies by or gathers from.
  int weight_owner(int self) const { return tied_to >= 0 ? tied_to : self; }
};

struct Network {
  Shape input;  // n = 1
  std::vector<Node> nodes;
  // Values that the loss reads: the logits; for detection the locations, then the scores.
  std::vector<int> outputs;

  bool IsOutput(int value) const;
  // Whether its input is tokens, [n, tokens, 1, 1], which only embeddings read.
  bool reads_tokens() const;
  // Whether a rounded copy of the node's own weight is multiplied, by it or a layer tied to it.
  bool MultipliesWeight(int node) const;
  const Shape& shape(int value) const { return value == 0 ? input : nodes[value - 1].output; }
  std::int64_t trained_numel() const;
  double mflop() const;
  // For each value the nodes that read it, in layer order; a node that reads it twice is listed
  // twice. The loss, which reads the outputs, is not a node.
  std::vector<std::vector<int>> Consumers() const;
  // For each value whether its gradient is needed: whether anything before it is trained.
  std::vector<bool> NeedsGradient() const;
};

// Expands model.zoo (or uses model.layers), finds inputs by name (`input` is the network's own; if
// none is given, the layer before) and infers shapes from `input` (n is ignored). Throws
// ConfigError, "file:line:column: layer NAME: ...", naming both shapes, if shapes do not fit. The
// outputs are the inputs of the task's loss:
//   classification  logits [classes]
//   segmentation    logits [h, w, classes] of the input's h and w
//   language        logits [tokens, 1, vocabulary] of the input's tokens, h
//   detection       locations [1, boxes, 4] and scores [1, boxes, 1 + classes], the
//                   background first
Network Resolve(const config::ModelConfig& model, const Shape& input,
                Task task = Task::kClassification);

// Finds the outputs of a network, which the loss reads, by name, and returns them as values. Throws
// ConfigError if a name of model.outputs is unknown or given twice, or if the task's loss needs
// another number of outputs (see Resolve).
std::vector<int> FindOutputs(const config::ModelConfig& model,
                             const std::vector<config::LayerConfig>& layers, Task task);

// Throws ConfigError, naming the layer, if an output has not the shape that the loss needs.
void CheckOutputs(const Network& network, const config::ModelConfig& model, Task task);

}  // namespace ada::graph

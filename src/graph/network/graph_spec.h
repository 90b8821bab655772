// What a graph is built from: the model, its precision, the largest batch, and what the policy says
// of each layer.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "graph/network/precision.h"
#include "io/task.h"
#include "number/tensor.h"
#include "scaling/rules/accumulator.h"
#include "scaling/rules/rules.h"

namespace ada::graph {

// What the builder asks of the policy for each layer that computes a dx.
struct ScalerRequest {
  std::string layer;
  double fan_reference, fan_exact;
  NumberFormat gradient_format;    // of its dx: the gradient format of the layer that made x
  bool has_weight;                 // true for a batch norm too; false: kind scale
  NumberFormat dy_format = kFp32;  // of the dy that its backward pass reads
};
// Made by train/ from the policy. Called once for each decision while the graph is built.
using RuleFor = std::function<scaling::LayerRule(const ScalerRequest&)>;

// What a graph is built from. It is read only during the build: pointers and functions need not
// live any longer.
struct GraphSpec {
  const config::ModelConfig* model = nullptr;
  Task task = Task::kClassification;  // which decides the loss at the end of the network
  Precision precision;
  Shape input;           // n: images of the largest batch
  bool training = true;  // false: no gradients are allocated, buffers are reused
  bool fuse = true;      // let the backend fuse batch norm, add and relu
  // With `fuse`: does not store the output of a batch norm whose only consumer is a convolution or
  // linear layer; the consumer recomputes it. Changes no result; observers see neither this output
  // nor its gradient.
  bool recompute = true;
  float label_smoothing = 0;         // classification
  bool mixes = false;                // classification: images may have two labels
  std::vector<float> class_weights;  // segmentation: by class; empty: 1 each
  double negatives = 3;              // detection: background boxes per positive box, in the loss
  bool reads_background = false;     // see MultiboxLossSpec
  RuleFor rule_for;                  // for training only; empty: every alpha is 1
  bool scales_batch_norms = false;   // batch norms ask for a rule too: their dx get an alpha
  bool scales_attention = true;      // the gradients within attention each ask for a rule
  bool reference = false;  // branch sums and the logit gradient as in the authors' program
  // Under `reference`: whether the gradients that meet at this layer's output are brought to one
  // scale before they are summed. None: all are.
  std::function<bool(const std::string& layer)> rescales_branches;
  // The tensors, out of y w dx dw dy, whose TensorStats are filled in full in a pass that counts,
  // and those for which ExponentBins are filled.
  std::vector<std::string> counted = {"y", "w", "dx", "dw", "dy"};
  std::vector<std::string> histograms;
  // Accumulators whose sums are made and counted, besides those of the training, in passes with
  // Pass::bins: of convolutions, linear layers and attention.
  std::vector<scaling::Accumulator> judged_sums;
  // Block-scaled formats whose effect on the operands of attention is counted in such passes.
  std::vector<BlockFormat> judged_formats;
};

}  // namespace ada::graph

// The network as a static graph: named layers in topological order, each one op of a backend (or
// part of a fused one). Built once from the configuration; then Forward and Backward only call ops.
// Knows no scaling policy (it asks for each layer's rule) and no optimizer.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "core/task.h"
#include "core/tensor.h"
#include "graph/log_points.h"
#include "graph/network/layer_table.h"
#include "graph/network/parameters.h"
#include "graph/network/precision.h"
#include "graph/shared_arena.h"
#include "parallel/communicator.h"

namespace ada::graph {

// What the builder asks of the policy for each layer that computes a dx.
struct ScalerRequest {
  std::string layer;
  double fan_reference, fan_exact;
  NumberFormat gradient_format;    // of its dx: the gradient format of the layer that made x
  bool has_weight;                 // of a batch norm too; false: kind scale
  NumberFormat dy_format = kFp32;  // of what it reads in the backward pass
};
// Made by train/ from the policy. Called once for each decision while the graph is built.
using RuleFor = std::function<scaling::LayerRule(const ScalerRequest&)>;

// What a graph is built from; read only while it is built. Pointers and functions need not live
// longer.
struct GraphSpec {
  const config::ModelConfig* model = nullptr;
  Task task = Task::kClassification;  // whose loss stands at the end
  Precision precision;
  Shape input;           // n: images of the largest batch
  bool training = true;  // false: no gradients are allocated, buffers are reused
  bool fuse = true;      // let the backend fuse batch norm, add and relu
  // With `fuse`: the output of a batch norm whose one consumer is a convolution or linear layer is
  // not stored, the consumer computes it anew. Changes no result; an observer is shown neither it
  // nor its gradient.
  bool recompute = true;
  float label_smoothing = 0;         // classification
  bool mixes = false;                // classification: images may have two labels
  std::vector<float> class_weights;  // segmentation: by class; empty: 1 each
  double negatives = 3;              // detection: background boxes a positive one, in the loss
  bool reads_background = false;     // MultiboxLossSpec's
  RuleFor rule_for;                  // training only; none: every alpha is 1
  bool scales_batch_norms = false;   // they ask for a rule too, and their dx have per-tensor scales
  bool scales_attention = true;      // the gradients within attention ask for rules of their own
  bool reference = false;  // branch sums and the logit gradient as in the authors' program
  // Under `reference`: whether the gradients that meet at this layer's output are brought to one
  // scale before they are summed. None: all are.
  std::function<bool(const std::string& layer)> rescales_branches;
  // Out of y w dx dw dy, the tensors whose TensorStats are filled in full in a pass that counts,
  // and those of which ExponentBins are taken.
  std::vector<std::string> counted = {"y", "w", "dx", "dw", "dy"};
  std::vector<std::string> histograms;
};

// Is told within a backward pass which gradients are complete, to sum them over processes.
class GradientTaker {
 public:
  virtual ~GradientTaker() = default;
  // Takes the parameters of the last op that ran; indices of Graph::parameters. The backend may
  // still be at work on it.
  virtual void Take(const std::vector<int>& parameters) = 0;
  // Whether the backend sums as part of the pass. Then the pass calls Finish at its end, after
  // which gradients are sums, and finishes them; and Take and Finish may be replayed.
  virtual bool sums_in_pass() const { return false; }
  virtual void Finish() = 0;
};

// A training run has one for training and one for evaluation that shares its parameters. All passes
// go to one backend, which must outlive the graph. One thread at a time may call it. A step is
// SetBatch, Forward, Backward, Collect; then the lists show what was counted, the caller changes
// masters and scalers, and calls RefreshWeights before the next Forward.
class Graph {
 public:
  // Throws ConfigError naming the layer and both shapes where shapes do not fit. With `share`,
  // parameters are those of another graph of the same model (the evaluation graph). Masters are
  // zero until Initialize (or a checkpoint) fills them; then RefreshWeights makes the copies.
  static std::unique_ptr<Graph> Build(const GraphSpec& spec, backend::Backend& backend,
                                      const Graph* share = nullptr);

  // Images [rows, h, w, c] and the targets of the task's loss, both copied before it returns; rows
  // at most input.n.
  void SetBatch(const float* images, const backend::Targets& targets, int rows);
  // Images with a label each (second: or two, GraphSpec::mixes).
  void SetBatch(const float* images, const std::int32_t* labels, int rows,
                const backend::SecondLabels& second = {}) {
    SetBatch(images, backend::Targets{labels, second, nullptr}, rows);
  }
  // The same where the network reads tokens: [rows, h, w] of the input, each below its embedding's
  // vocabulary and not below 0.
  void SetTokens(const std::int32_t* tokens, const backend::Targets& targets, int rows);
  bool reads_tokens() const { return static_cast<bool>(tokens_); }
  // The same of images that the byte_feed took.
  void SetTargets(const backend::Targets& targets, int rows) { loss_->SetTargets(targets, rows); }
  backend::ByteFeed* byte_feed() const { return input_ ? input_->byte_feed() : nullptr; }
  const Shape& input_shape() const { return images_.shape; }  // of images
  // Backend memory of the next pass's images and labels, for what fills it instead of SetBatch;
  // without memory for labels that is the only way.
  float* image_memory() const { return images_.f32(); }
  std::int32_t* label_memory() const { return loss_->LabelMemory(); }
  // An observer is shown every tensor when it has been written: x and y of each op (an addition: y
  // alone), dy of each layer, dx of each op, the gradients of the outputs as loss.dx (logits;
  // locations) and loss.dx2 (scores). A fused op has the x of
  // its first layer and the y of its last, where it is not recomputed: to see everything, build
  // without fusion; to see every gradient that is rounded, without `recompute`. Without an
  // observer, the calls may be replayed by the backend (Backend::Run) and need not be over on
  // return.
  void Forward(const backend::Pass& pass, TensorObserver* observer = nullptr);
  void Backward(const backend::Pass& pass, TensorObserver* observer = nullptr,
                GradientTaker* taker = nullptr);
  // The parameters that have gradients, in the order in which a backward pass completes them.
  // Indices of `parameters`.
  std::vector<int> GradientOrder() const;
  // The sums of all processes are in the gradients (Pass::part).
  void FinishGradients(const backend::Pass& pass);
  // What was counted of weights' gradients is of an earlier step.
  void ForgetGradientCounts();
  // Several processes share the batch (Pass::part): after Collect, counts, moments and (Pass::bins)
  // histograms of all roundings become those of all rows, in the lists below, until the next
  // Collect. Where processes decided about scales on their own, values are brought to the scale of
  // the first.
  void Join(parallel::Communicator& communicator, const backend::Pass& pass);
  // Call it after masters or tensor scales of weights changed. It reads count, bins, seed and draw
  // of `pass`.
  void RefreshWeights(const backend::Pass& pass);
  // Sums over all Forwards since the last whose pass did not accumulate. Waits for them.
  backend::LossResult Result() { return loss_->Result(); }
  // Runs `body`, which may call all passes above, a GradientTaker's sums among them, and an
  // UpdateOp, as one Backend::Run. kind: below kMostKinds, tells apart what `body` calls.
  static constexpr std::uint64_t kMostKinds = 128;
  void Together(std::uint64_t kind, const backend::Pass& pass, const std::function<void()>& body);
  // What of the lists below is wanted besides the decisions of branches, which are few.
  struct Wanted {
    bool counts = true;   // statistics, moments, scales; histograms where the pass takes them
    bool scalers = true;  // of layers
  };
  // Waits for all that was asked for; then the lists below tell what ops wrote, as far as it is
  // wanted: all else is of an earlier call, where the backend's memory is not the host's. It reads
  // bins of `pass`.
  void Collect(const backend::Pass& pass, const Wanted& wanted);
  void Collect(const backend::Pass& pass) { Collect(pass, {}); }
  // Layers' scalers alone, as the last pass left them.
  void CollectLayerScalers() { Collect({}, {.counts = false}); }
  // The caller changed scalers of layers, or of tensors: ops see them from now on. To be called
  // when all passes are over and scalers were collected.
  void SendLayerScalers() { layer_scalers_.Send(); }
  void SendTensorScales() { tensor_scales_.Send(); }

  const std::vector<LayerRow>& layers() const { return layers_; }
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<RoundingPoint>& roundings() const { return roundings_; }  // execution order
  const std::vector<ScalePoint>& scales() const { return scales_; }
  // Tensors with a per-tensor scale (delayed scaling), in a fixed order; empty where there are
  // none. With `share`, the scalers of y and w are the other graph's.
  const std::vector<ScaledTensor>& scaled_tensors() const { return scaled_tensors_; }
  const NumberFormat& input_format() const { return input_format_; }  // of the rounded images
  const std::vector<std::string>& last_norms() const { return last_norms_; }  // LastNorms
  // What the loss is of, valid after Forward: the logits; or locations, then scores.
  const std::vector<Tensor>& outputs() const { return outputs_; }
  const Tensor& logits() const { return outputs_.back(); }  // or the scores
  // How many logits or scores one image, pixel or box has.
  int classes() const { return static_cast<int>(outputs_.back().shape.c); }

  ~Graph();
  Graph(const Graph&) = delete;

 private:
  // nodes: of the network.
  // The number of nodes sizes the arenas' first blocks.
  Graph(backend::Backend& backend, std::size_t nodes);
  friend class Builder;
  // What Backend::Run tells apart: its variant is the graph's number and one of these, or a kind of
  // Together after them.
  enum class Part { kRefresh, kForward, kBackward, kBackwardAndSums, kTogether };
  void Run(Part part, const backend::Pass& pass, const std::function<void()>& body,
           std::uint64_t kind = 0);
  // Waits for the backend, then shows the tensors.
  void Observe(const std::vector<ObservedTensor>& tensors, const backend::Pass& pass,
               TensorObserver& observer);

  backend::Backend& backend_;
  const std::uint64_t number_;  // tells the graphs of a process apart
  std::vector<LayerRow> layers_;
  std::vector<std::string> last_norms_;
  NumberFormat input_format_;
  std::vector<Parameter> parameters_;
  std::vector<RoundingPoint> roundings_;
  std::vector<ScalePoint> scales_;
  Tensor images_, tokens_;  // the input: one of them
  std::vector<Tensor> outputs_;
  ObservationPlan observed_;
  // What ops write (results_, bins_, branches_: decisions), read (tensor_scales_) and do both with
  // (layer_scalers_).
  SharedArena results_, bins_, branches_, tensor_scales_, layer_scalers_;
  SharedArray<scaling::LayerScaler> scalers_;  // by node, then within nodes; of layer_scalers_
  std::vector<ScaledTensor> scaled_tensors_;
  std::vector<std::unique_ptr<TensorScale>> owned_scales_;  // those of tensor_scales_
  std::unique_ptr<backend::InputOp> input_;
  std::unique_ptr<backend::LossOp> loss_;
  std::vector<std::unique_ptr<backend::Op>> ops_;  // made once
  std::vector<backend::Op*> forward_, backward_;   // execution orders
  std::vector<std::vector<int>> completes_;        // by step of backward_: parameters
};

}  // namespace ada::graph

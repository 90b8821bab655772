// The network as a static graph: named layers in topological order, each one op of a backend (or
// part of a fused one). Built once from the configuration; then Forward and Backward only call ops.
// It knows no scaling policy (only the rule of each layer) and no optimizer.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/log_points.h"
#include "graph/network/graph_spec.h"
#include "graph/network/layer_table.h"
#include "graph/network/parameters.h"
#include "graph/shared_arena.h"
#include "io/task.h"
#include "number/tensor.h"
#include "parallel/communicator.h"

namespace ada::graph {

// Is told during a backward pass which gradients are complete, to sum them over processes.
class GradientReducer {
 public:
  virtual ~GradientReducer() = default;
  // Takes the gradients of the parameters of the last op that ran (indices of Graph::parameters).
  // The backend may still be working on it.
  virtual void Reduce(const std::vector<int>& parameters) = 0;
  // Whether the backend sums as part of the pass. If so the pass calls Finish at its end, after
  // which gradients are sums, and then finishes them; and Reduce and Finish may be replayed.
  virtual bool sums_in_pass() const { return false; }
  virtual void Finish() = 0;
};

// A training run has one for training and one for evaluation that shares its parameters. All passes
// go to one backend, which must outlive the graph. One thread at a time may call it. A step is
// SetBatch, Forward, Backward, Collect; then the lists show what was counted, the caller changes
// masters and scalers, and calls RefreshWeights before the next Forward.
class Graph {
 public:
  // Throws ConfigError, naming the layer and both shapes, if shapes do not fit. With `share`, the
  // parameters are those of another graph of the same model (for evaluation). Masters are zero
  // until Initialize (or a checkpoint) fills them; after that RefreshWeights makes the copies.
  static std::unique_ptr<Graph> Build(const GraphSpec& spec, backend::Backend& backend,
                                      const Graph* share = nullptr);

  // Copies the images [rows, h, w, c] and the targets of the task's loss before it returns; rows is
  // at most input.n.
  void SetBatch(const float* images, const backend::Targets& targets, int rows);
  // For images with one label each (second: with two, GraphSpec::mixes).
  void SetBatch(const float* images, const std::int32_t* labels, int rows,
                const backend::SecondLabels& second = {}) {
    SetBatch(images, backend::Targets{labels, second, nullptr}, rows);
  }
  // The same for a network that reads tokens: [rows, h, w] of the input, each from 0 to below the
  // vocabulary of its embedding.
  void SetTokens(const std::int32_t* tokens, const backend::Targets& targets, int rows);
  bool reads_tokens() const { return static_cast<bool>(tokens_); }
  // The same for images that were sent through byte_feed.
  void SetTargets(const backend::Targets& targets, int rows) { loss_->SetTargets(targets, rows); }
  backend::ByteFeed* byte_feed() const { return input_ ? input_->byte_feed() : nullptr; }
  const Shape& input_shape() const { return images_.shape; }  // of images
  // Backend memory for the images and labels of the next pass, for code that fills it instead of
  // SetBatch; if label_memory is null only SetBatch works.
  float* image_memory() const { return images_.f32(); }
  std::int32_t* label_memory() const { return loss_->LabelMemory(); }
  // An observer is shown every tensor when it has been written: x and y of each op (only y of
  // an addition), dy of each layer, dx of each op, and the gradients of the outputs as loss.dx
  // (of logits or locations) and loss.dx2 (of scores). For a fused op it sees x of the first
  // layer and, unless it is recomputed, y of the last: to see everything, build without
  // fusion; to see every gradient that is rounded, build without `recompute`. Without an
  // observer the backend may replay the calls (Backend::Run), and they need not have finished
  // on return.
  void Forward(const backend::Pass& pass, TensorObserver* observer = nullptr);
  void Backward(const backend::Pass& pass, TensorObserver* observer = nullptr,
                GradientReducer* reducer = nullptr);
  // The parameters that have gradients, in the order in which a backward pass completes them.
  // Indices of `parameters`.
  std::vector<int> GradientOrder() const;
  // Call it when the gradients hold the sums over all processes (Pass::part).
  void FinishGradients(const backend::Pass& pass);
  // Clears the counts of weight gradients, which belong to an earlier step.
  void ForgetGradientCounts();
  // For processes that share the batch (Pass::part), after Collect: replaces counts, moments and
  // (Pass::bins) histograms of all roundings by those of all rows, in the lists below, until the
  // next Collect. Where each process decided about scales on its own, values are converted to the
  // scale of the first process.
  void Join(parallel::Communicator& communicator, const backend::Pass& pass);
  // To be called after masters or tensor scales of weights changed. Reads count, bins, seed and
  // draw of `pass`.
  void RefreshWeights(const backend::Pass& pass);
  // Sums over all Forwards since the last one that did not accumulate. Waits for them.
  backend::LossResult Result() { return loss_->Result(); }
  // Runs `body`, which may call all passes above, including a GradientReducer's sums, and an
  // UpdateOp, as one Backend::Run. kind: below kMostKinds, a number for what `body` calls.
  static constexpr std::uint64_t kMostKinds = 128;
  void RunAsOne(std::uint64_t kind, const backend::Pass& pass, const std::function<void()>& body);
  // What to fetch for the lists below in addition to the decisions of branches, which are few.
  struct Wanted {
    bool counts = true;   // statistics, moments, scales; histograms where the pass takes them
    bool scalers = true;  // of layers
  };
  // Waits for all work asked for; then the lists below hold what ops wrote, as far as it is wanted.
  // Where the backend's memory is not the host's, all else keeps the values of an earlier call.
  // Reads bins of `pass`.
  void Collect(const backend::Pass& pass, const Wanted& wanted);
  void Collect(const backend::Pass& pass) { Collect(pass, {}); }
  // Fetches only the layers' scalers, as the last pass left them.
  void CollectLayerScalers() { Collect({}, {.counts = false}); }
  // Makes ops use scalers of layers, or of tensors, that the caller has changed. To be called when
  // all passes are over and scalers were collected.
  void SendLayerScalers() { layer_scalers_.Send(); }
  void SendTensorScales() { tensor_scales_.Send(); }

  const std::vector<LayerRow>& layers() const { return layers_; }
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<RoundingPoint>& roundings() const { return roundings_; }  // execution order
  // Lists products with an accumulator, by layer, then by product.
  const std::vector<SumPoint>& sums() const { return sums_; }
  // The same of GraphSpec::judged_sums, one rule after the other.
  const std::vector<SumPoint>& judged_sums() const { return judged_sums_; }
  const std::vector<ScalePoint>& scales() const { return scales_; }
  // Tensors with a per-tensor scale (delayed scaling), in a fixed order; empty where there are
  // none. With `share`, the scalers of y and w are the other graph's.
  const std::vector<ScaledTensor>& scaled_tensors() const { return scaled_tensors_; }
  const NumberFormat& input_format() const { return input_format_; }  // of the rounded images
  const std::vector<std::string>& last_norms() const { return last_norms_; }  // LastNorms
  // The inputs of the loss, valid after Forward: the logits; or locations, then scores.
  const std::vector<Tensor>& outputs() const { return outputs_; }
  const Tensor& logits() const { return outputs_.back(); }  // or the scores
  // The number of logits or scores of one image, pixel or box.
  int classes() const { return static_cast<int>(outputs_.back().shape.c); }

  ~Graph();
  Graph(const Graph&) = delete;

 private:
  // nodes: of the network.
  // The number of nodes sizes the arenas' first blocks.
  Graph(backend::Backend& backend, std::size_t nodes);
  friend class Builder;
  // Distinguishes recordings: the variant given to Backend::Run is made from the graph's number and
  // one of these, where kinds of RunAsOne are counted up from kAsOne.
  enum class Part { kRefresh, kForward, kBackward, kBackwardAndSums, kAsOne };
  void Run(Part part, const backend::Pass& pass, const std::function<void()>& body,
           std::uint64_t kind = 0);
  // Waits for the backend, then shows the tensors.
  void Observe(const std::vector<ObservedTensor>& tensors, const backend::Pass& pass,
               TensorObserver& observer);

  backend::Backend& backend_;
  const std::uint64_t number_;  // distinguishes the graphs of a process
  std::vector<LayerRow> layers_;
  std::vector<std::string> last_norms_;
  NumberFormat input_format_;
  std::vector<Parameter> parameters_;
  std::vector<RoundingPoint> roundings_;
  std::vector<SumPoint> sums_, judged_sums_;
  std::vector<ScalePoint> scales_;
  Tensor images_, tokens_;  // the input is one of them
  std::vector<Tensor> outputs_;
  ObservationPlan observed_;
  // Memory that ops write (results_, bins_, branches_: decisions), read (tensor_scales_), or both
  // (layer_scalers_).
  SharedArena results_, bins_, branches_, tensor_scales_, layer_scalers_;
  SharedArray<scaling::LayerScaler> scalers_;  // by node, then within nodes; of layer_scalers_
  std::vector<ScaledTensor> scaled_tensors_;
  std::vector<std::unique_ptr<TensorScale>> owned_scales_;  // those of tensor_scales_
  std::unique_ptr<backend::InputOp> input_;
  std::unique_ptr<backend::LossOp> loss_;
  std::vector<std::unique_ptr<backend::Op>> ops_;  // each op once
  std::vector<backend::Op*> forward_, backward_;   // execution orders
  std::vector<std::vector<int>> completes_;        // by step of backward_: gradients complete then
};

// Initialize of a graph's parameters.
inline WeightsCover Initialize(Graph& graph, const config::InitConfig& init, std::uint64_t seed,
                               backend::Backend& backend) {
  return Initialize(graph.parameters(), graph.last_norms(), init, seed, backend);
}

}  // namespace ada::graph

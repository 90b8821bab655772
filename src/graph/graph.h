// The network as a static graph: named layers in topological order, each one op of a backend (or
// part of a fused one). Built once from the configuration; then Forward and Backward only call ops.
// It knows no scaling policy (only the rule of each layer) and no optimizer.
//
// Plain objects that ops write and the host reads (counts, moments, decisions, scales), or the
// reverse, lie in memory that the backend shares with the host.
#pragma once
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "backend/backend.h"
#include "graph/network/graph_spec.h"
#include "graph/network/layer_table.h"
#include "graph/network/parameters.h"
#include "io/task.h"
#include "io/tensor_names.h"
#include "number/tensor.h"
#include "parallel/communicator.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::graph {

// Consecutive objects.
template <typename T>
struct SharedArray {
  T* backend = nullptr;  // for specs
  T* host = nullptr;
  std::size_t count = 0;
  backend::SharedMemory memory() const {
    return {reinterpret_cast<std::byte*>(backend), reinterpret_cast<std::byte*>(host),
            count * sizeof(T)};
  }
};

// A graph has one for each group of objects that is copied together. Few blocks mean few copies,
// which matters if each is a transfer. Objects live as long as the backend.
class SharedArena {
 public:
  // `backend` must outlive the arena; it owns the memory. A new block is allocated when one is
  // full; with block_bytes 0, for each Add.
  SharedArena(backend::Backend& backend, std::size_t block_bytes)
      : backend_(backend), block_bytes_(block_bytes) {}
  SharedArena(const SharedArena&) = delete;

  // Objects are initialized by T() on the host; ops see them after the next Send. They never move.
  template <typename T>
  SharedArray<T> Add(std::size_t count = 1) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    const backend::SharedMemory memory = Take(count * sizeof(T));
    const SharedArray<T> added{reinterpret_cast<T*>(memory.backend),
                               reinterpret_cast<T*>(memory.host), count};
    for (std::size_t i = 0; i < count; ++i) new (added.host + i) T();
    return added;
  }

  // Copies all of it from the backend to the host (readable after Backend::Synchronize), or back.
  void Fetch();
  void Send();

 private:
  static constexpr std::size_t kAlignment = 16;
  struct Block {
    backend::SharedMemory memory;
    std::size_t used;
  };
  backend::SharedMemory Take(std::size_t bytes);

  backend::Backend& backend_;
  const std::size_t block_bytes_;
  std::vector<Block> blocks_;
};

// --- What it offers for logging ---

// The per-tensor scale of a tensor (delayed scaling), and the history that it is computed from.
// Only the host uses `history`: the trainer adds largest magnitudes to it, and it gives the scale
// of the next step; `predicted`, where it is set, does so in its place. Ops read the scaler.
struct TensorScale {
  SharedArray<scaling::TensorScaler> per_tensor_scale;
  scaling::TensorScaleHistory history;
  std::optional<scaling::PredictedScale> predicted = {};

  // For checkpoints. Load throws DataError naming `tensor`. switched: the precision has changed
  // since; a history then goes on where both formats have one, and what is predicted begins anew.
  scaling::StateMap Save() const;
  void Load(const scaling::StateMap& state, const std::string& tensor, bool switched);
};

// A rounding that is counted: one row of underflow.csv. `scale` null: the tensor carries none (1).
// Here and below pointers to stats, scales, scalers, decisions and bins are to host memory (except
// backend_stats), which is up to date after Graph::Collect.
struct RoundingPoint {
  std::string layer;
  std::string tensor;  // y w dx dx2 dw dy p dv ds dq dk or an operand (io/tensor_names.h)
  NumberFormat format;
  const TensorStats* stats;
  const TensorStats* backend_stats;  // the same, for ops
  const float* scale;
  // The per-tensor scale (delayed or current, of blocks the power of two by which exact_range
  // enlarged it), which the values carry in addition to `scale`; null: there is none.
  scaling::TensorScaler* per_tensor_scale = nullptr;
  const ExponentBins* bins = nullptr;  // null: no histogram is taken of it
  // The block-scaled format of an operand, whose elements have `format`; null: it is plain.
  std::optional<BlockFormat> block = {};
  const BlockCounts* blocks = nullptr;
  backend::HadamardRule hadamard = {};  // of a block-scaled operand, before it is rounded
  // An operand may have scales of rows, and the blocks or rows of another one; unset: its own.
  bool row_scaled = false;
  std::optional<Operand> laid_as = {};
  std::optional<scaling::BlockRangeRule> adaptive = {};  // of the scale beside those of blocks
  AnyFormat named_format() const { return block ? AnyFormat(*block) : AnyFormat(format); }
  // Where several processes share the batch, the one with the largest magnitude (Graph::Join of the
  // last pass); -1 for a weight, which all of them have.
  int largest_at = -1;
  double per_tensor_factor() const {
    return per_tensor_scale != nullptr ? static_cast<double>(per_tensor_scale->scale) : 1.0;
  }
  // S, which the values that `stats` and `blocks` are of carry.
  double carried() const { return scale != nullptr ? static_cast<double>(*scale) : 1.0; }
  // The factor by which its values are multiplied when they are rounded.
  double total_scale() const { return carried() * per_tensor_factor(); }
  // The largest magnitude as it was rounded.
  float scaled_largest() const {
    return per_tensor_scale != nullptr ? stats->max_abs * per_tensor_scale->scale : stats->max_abs;
  }
  // The scales of rows and of blocks bring their largest magnitudes into the format.
  bool leaves_format() const {
    if (row_scaled || block) return !std::isfinite(stats->max_abs);
    return !std::isfinite(RoundTo(format, scaled_largest()));
  }
};

// Sums of one product that an accumulator makes: one row of accumulators.csv.
struct SumPoint {
  std::string layer;
  scaling::LayerMatmul matmul;
  scaling::Accumulator rule;
  const scaling::AccumulatorCounts* counts;
  std::size_t judged = 0;  // of a rule that is judged: its index
};

// What a block-scaled format would do to an operand of attention: a row of what_if_blocks.csv.
struct JudgedOperandPoint {
  std::string layer;
  AttentionOperand operand;
  std::size_t format;         // of GraphSpec::judged_formats
  const BlockCounts* counts;  // of the last pass with bins; none where the backend counts none
  const float* scale;         // S that it carries; null: none
};

// A tensor of one layer in memory, when it has been written.
struct ObservedTensor {
  std::string layer;
  std::string tensor;  // x y dy dx dx2 dq dk dv
  Tensor value;
  const float* scale = nullptr;  // S that it carries; null: none
  // Whether its values come from a rounding that is counted under these names (otherwise it is
  // another layer's tensor, or exact).
  bool rounded = false;
};
// The tensors to show after each forward op, and after the loss and each step of the backward pass.
// Indexed by call: forward[i] belongs to the i-th op, backward[0] to the loss, and backward[i + 1]
// to the i-th step.
struct ObservationPlan {
  std::vector<std::vector<ObservedTensor>> forward, backward;
};
// Looks at tensors while a pass runs; changes nothing.
class TensorObserver {
 public:
  virtual ~TensorObserver() = default;
  virtual void Observe(const ObservedTensor& seen, const backend::Pass& pass) = 0;
};

// A decision that is logged: one row of scales.csv, in the order of the backward pass. layer: for a
// branch point the layer whose output the branches share; for a gradient of attention LAYER.ds.
struct ScalePoint {
  std::string layer;
  const scaling::ScaleDecision* decision;
  scaling::LayerScaler* scaler;  // null at a branch point
};

// A tensor with a per-tensor scale: "conv1" and "y", "fc" and "forward.w", "loss" and "dx". stats:
// of its last rounding; null in an evaluation graph.
struct ScaledTensor {
  std::string layer, tensor;
  TensorScale* scale;
  const TensorStats* stats;
  std::string name() const { return layer + "." + tensor; }
};

// What was counted of an operand of attention.
struct AttentionOperandStats {
  TensorStats stats;
  BlockCounts blocks;  // of a block-scaled format
};
// What was counted at one layer's roundings; a graph that does not train counts nothing.
struct LayerStats {
  TensorStats y, w, dx, dx2, dw, dy;
  TensorStats p, dv, ds, dq, dk;                // of attention
  std::array<TensorStats, kOperands> operands;  // by Operand
  std::array<BlockCounts, kOperands> blocks;    // of those of block-scaled formats
  std::array<scaling::AccumulatorCounts, scaling::kLayerMatmuls> sums;  // by scaling::LayerMatmul
};
// The member of a gradient that is rounded.
inline TensorStats LayerStats::*StatsOf(std::string_view gradient) {
  if (gradient == "dy") return &LayerStats::dy;
  if (gradient == "dx2") return &LayerStats::dx2;
  if (gradient == "dv") return &LayerStats::dv;
  if (gradient == "dq") return &LayerStats::dq;
  if (gradient == "dk") return &LayerStats::dk;
  return &LayerStats::dx;
}

// --- The graph ---

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
  // The update after a batch: calls of an UpdateOp alone. kind: of backend::UpdatePlan.
  struct Update {
    std::uint64_t kind = 0;
    std::function<void()> run;
  };
  void RunUpdate(const backend::Pass& pass, const Update& update);
  // All of a micro-batch that the host need not look at, in this order; both passes always are.
  enum class Stage { kForward, kBackward, kUpdate };
  struct MicroBatch {
    bool refreshes = false;              // weights, before all else
    GradientReducer* reducer = nullptr;  // of the backward pass
    std::function<void()> check = {};    // after it: calls of an UpdateOp; empty: none
    std::optional<Update> update = {};   // after that
    // Called after each stage where it is not replayed, on the host; empty: not.
    std::function<void(Stage)> after = {};
  };
  // As one Backend::Run, which a device may replay.
  void RunMicroBatch(const backend::Pass& pass, const MicroBatch& batch);
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
  // Lists matmuls with an accumulator, by layer, then by matmul.
  const std::vector<SumPoint>& sums() const { return sums_; }
  // The same of GraphSpec::judged_sums, one rule after the other.
  const std::vector<SumPoint>& judged_sums() const { return judged_sums_; }
  // By layer, operand and format.
  const std::vector<JudgedOperandPoint>& judged_operands() const { return judged_operands_; }
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
  // Distinguishes recordings: the variant given to Backend::Run is made from the graph's number,
  // one of these, and what of the part varies.
  enum class Part { kRefresh, kForward, kBackward, kBackwardAndSums, kUpdate, kMicroBatch };
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
  std::vector<JudgedOperandPoint> judged_operands_;
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

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
#include "core/tensor.h"
#include "graph/shared_arena.h"

namespace ada::graph {

// A trained tensor or a running statistic, named as in PyTorch (conv1.weight, bn1.running_mean).
struct Parameter {
  std::string name;
  std::vector<std::int64_t> dims;  // PyTorch's: [out, in, kh, kw], [out, in], [c]
  Tensor value;                    // fp32 master, bytes in the order of dims
  Tensor gradient;                 // fp32, unscaled; empty for a running statistic
  std::int64_t numel() const;
};

// One row of the layer table (--dry-run) and what the logs name.
struct LayerRow {
  std::string name, kind;
  Shape output;  // of one image: n is 1
  std::int64_t parameters = 0;
  double mflop = 0;         // forward, one image, a multiply-add counted as 2
  NumberFormat format;      // of its output
  bool has_weight = false;  // conv2d, linear
};

// A scale of a tensor's own (delayed scaling), and what it is made of.
struct TensorScale {
  SharedArray<scaling::TensorScaler> own_scale;
  scaling::TensorScaleHistory history;
};

// Pointers to stats, scales, scalers, decisions and bins in the lists below are the host's: what
// ops wrote is there after Graph::Collect.

// A rounding that is counted: one row of underflow.csv. `scale` null: the tensor carries none (1).
struct RoundingPoint {
  std::string layer;
  std::string tensor;  // y w dx dw dy
  NumberFormat format;
  const TensorStats* stats;
  const TensorStats* backend_stats;  // the same, for ops
  const float* scale;
  // The tensor's own scale (delayed scaling), which its values carry beside `scale`; null: none.
  scaling::TensorScaler* own_scale = nullptr;
  const ExponentBins* bins = nullptr;  // null: no histogram is taken of it
  // The factor that its values carry.
  double carried() const {
    return (scale != nullptr ? static_cast<double>(*scale) : 1.0) *
           (own_scale != nullptr ? static_cast<double>(own_scale->scale) : 1.0);
  }
};

// A tensor of one layer as it lies in memory when it has been written.
struct ObservedTensor {
  std::string layer;
  std::string tensor;  // x y dy dx
  Tensor value;
  const float* scale = nullptr;  // S that it carries; null: none
  // Its values come from a rounding that is counted under these names (else it is another layer's
  // tensor, or exact).
  bool rounded = false;
};
// What is shown after each forward op, and (first: after the loss) after each step of the backward
// pass.
struct ObservationPlan {
  std::vector<std::vector<ObservedTensor>> forward, backward;
};
// Looks at tensors while a pass runs; changes nothing.
class TensorObserver {
 public:
  virtual ~TensorObserver() = default;
  virtual void See(const ObservedTensor& seen, const backend::Pass& pass) = 0;
};

// A decision that is logged: one row of scales.csv, in the order of the backward pass. layer of a
// branch point: the one whose output the branches share.
struct ScalePoint {
  std::string layer;
  const scaling::ScaleDecision* decision;
  scaling::LayerScaler* scaler;  // null at a branch point
};

// A tensor with a scale of its own: "conv1.y", "input.y", "loss.dx". stats of its last rounding
// (max_abs is of x * scale); null in an evaluation graph.
struct ScaledTensor {
  std::string name;
  TensorScale* scale;
  const TensorStats* stats;
};

// What was counted at the roundings of one layer; a graph that does not train counts nothing.
struct LayerStats {
  TensorStats y, w, dx, dw, dy;
};

// What the builder asks of the policy for each layer that computes a dx.
struct ScalerRequest {
  std::string layer;
  double fan_reference, fan_exact;
  NumberFormat gradient_format;    // of its dx: the gradient format of the layer that made x
  bool has_weight;                 // false: kind scale
  NumberFormat dy_format = kFp32;  // of what it reads in the backward pass
};
using RuleFor = std::function<scaling::LayerRule(const ScalerRequest&)>;

// What each layer rounds to, by role (graph/precision.h resolves the configuration).
struct LayerFormats {
  NumberFormat activations, weights, gradients, weight_gradients;
};
// How a graph rounds: formats by layer name, and what holds for all of it.
struct Precision {
  LayerFormats base;  // of the network's input and of layers where `formats_of` is empty
  std::function<LayerFormats(const std::string& layer)> formats_of;
  bool stochastic = false;  // training alone; evaluation rounds to nearest
  // Delayed scaling: of y and w, and of gradients where no per-layer policy owns their scale.
  bool scaled_forward = false, scaled_backward = false;
  scaling::TensorScaleRule tensor_scale;  // format_max is filled in by tensor
};

struct GraphSpec {
  const config::ModelConfig* model = nullptr;
  Precision precision;
  Shape input;           // n: images of the largest batch
  bool training = true;  // false: no gradients are allocated, buffers are reused
  bool fuse = true;      // let the backend fuse batch norm, add and relu
  // With `fuse`: the output of a batch norm whose one consumer is a convolution or linear layer is
  // not stored, the consumer computes it anew. Changes no result; an observer does not see it, nor
  // its gradient.
  bool recompute = true;
  float label_smoothing = 0;
  RuleFor rule_for;        // training only; none: every alpha is 1
  bool reference = false;  // branch sums and the logit gradient as in the authors' program
  // Under `reference`: whether the gradients that meet at this layer's output are brought to one
  // scale before they are summed. None: all are.
  std::function<bool(const std::string& layer)> rescales_branches;
  // Of y w dx dw dy: tensors whose TensorStats are filled in full in a pass that counts, and those
  // of which ExponentBins are taken.
  std::vector<std::string> counted = {"y", "w", "dx", "dw", "dy"};
  std::vector<std::string> histograms;
};

class Graph {
 public:
  // Throws ConfigError naming the layer and both shapes where shapes do not fit. With `share`,
  // parameters are those of another graph of the same model (the evaluation graph). Masters are
  // zero until Initialize (or a checkpoint) fills them; then RefreshWeights makes the copies.
  static std::unique_ptr<Graph> Build(const GraphSpec& spec, backend::Backend& backend,
                                      const Graph* share = nullptr);

  // Images [rows, h, w, c] and labels, both copied before it returns; rows at most input.n.
  void SetBatch(const float* images, const std::int32_t* labels, int rows);
  // Backend memory of the next pass's images and labels, for what fills it instead of SetBatch;
  // without memory for labels that is the only way.
  float* image_memory() const { return images_.f32(); }
  std::int32_t* label_memory() const { return loss_->LabelMemory(); }
  // A watcher is shown every tensor when it has been written: x and y of each op (an addition: y
  // alone), dy of each layer, dx of each op, the logit gradient as loss.dx. A fused op has the x of
  // its first layer and the y of its last, where it is not recomputed: to see everything, build
  // without fusion; to see every gradient that is rounded, without `recompute`. Where nobody
  // watches, the calls may be replayed by the backend (Backend::Run) and need not be over on
  // return.
  void Forward(const backend::Pass& pass, TensorObserver* watcher = nullptr);
  void Backward(const backend::Pass& pass, TensorObserver* watcher = nullptr);
  // After masters or tensor scales of weights changed. Of `pass`: count, bins, seed, draw.
  void RefreshWeights(const backend::Pass& pass);
  // Sums over all Forwards since the last whose pass did not accumulate. Waits for them.
  backend::LossResult Result() { return loss_->Result(); }
  // Waits for all that was asked for; then the lists below tell what ops wrote. Of `pass`: bins.
  void Collect(const backend::Pass& pass);
  // The caller changed scalers of layers, or of tensors: ops see them from now on. To be called
  // when all passes have been collected.
  void SendLayerScalers() { backend_.Send(scalers_.memory()); }
  void SendTensorScales() { tensor_scales_.Send(); }

  const std::vector<LayerRow>& layers() const { return layers_; }
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<RoundingPoint>& roundings() const { return roundings_; }  // execution order
  const std::vector<ScalePoint>& scales() const { return scales_; }
  // Tensors with a scale of their own (delayed scaling), in a fixed order; empty where there are
  // none. With `share`, the scalers of y and w are the other graph's.
  const std::vector<ScaledTensor>& scaled_tensors() const { return scaled_tensors_; }
  int classes() const;                              // logits of one image
  const Tensor& logits() const { return logits_; }  // valid after Forward

  ~Graph();
  Graph(const Graph&) = delete;

 private:
  explicit Graph(backend::Backend& backend);
  friend class Builder;
  enum class Part { kRefresh, kForward, kBackward };
  void Run(Part part, const backend::Pass& pass, const std::function<void()>& body);
  void Show(const std::vector<ObservedTensor>& tensors, const backend::Pass& pass,
            TensorObserver& watcher);

  backend::Backend& backend_;
  const std::uint64_t number_;  // tells the graphs of a process apart
  std::vector<LayerRow> layers_;
  std::vector<Parameter> parameters_;
  std::vector<RoundingPoint> roundings_;
  std::vector<ScalePoint> scales_;
  Tensor images_, logits_;
  ObservationPlan watched_;
  // What ops write (notes_, bins_) and read (tensor_scales_).
  SharedArena notes_, bins_, tensor_scales_;
  SharedArray<scaling::LayerScaler> scalers_;  // by node; of notes_
  std::vector<ScaledTensor> scaled_tensors_;
  std::vector<std::unique_ptr<TensorScale>> owned_scales_;  // those of tensor_scales_
  std::unique_ptr<backend::InputOp> input_;
  std::unique_ptr<backend::LossOp> loss_;
  std::vector<std::unique_ptr<backend::Op>> ops_;  // made once
  std::vector<backend::Op*> forward_, backward_;   // execution orders
};

// Fills the masters by config.init.scheme (fan-in He normal and so on; gamma 1, beta and biases 0,
// running variance 1) from counter-based random numbers keyed by seed and parameter name, then
// overrides from config.init.weights (safetensors; num_batches_tracked is ignored). Throws
// DataError on unknown names or wrong shapes. The caller refreshes the copies of weights.
void Initialize(Graph& graph, const config::InitConfig& init, std::uint64_t seed,
                backend::Backend& backend);

}  // namespace ada::graph

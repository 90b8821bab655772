// A layer as ada-train computes it: rounding, largest magnitudes and moments as in a step that is
// not logged. See ops.h.
#include <deque>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "ops.h"

namespace ada::bench {
namespace {

using backend::Conv2dSpec;
using backend::Gradient;
using backend::Op;

// The layer's tensors and two ops on them: with the data gradient and without.
class Ours {
 public:
  Ours(const Layer& layer, const NumberFormat& format, int threads)
      : layer_(layer), format_(format), backend_(backend::cpu::MakeCpuBackend(threads)) {
    pass_.rows = static_cast<int>(layer.x.n);
    pass_.loss_terms = layer.x.n;
    scaler_.rule.method = scaling::LayerMethod::kFixed;
    scaler_.rule.fixed_scale = 1;
    Conv2dSpec spec = MakeSpec();
    without_ = MakeOp(spec);
    if (layer.data_gradient) {
      spec.dx = MakeGradient(layer.x);
      spec.scaler = &scaler_;
      with_ = MakeOp(spec);
    }
    for (Op* op : {without_.get(), with_.get()})
      if (op != nullptr) op->RefreshWeights(pass_);
  }

  bool has_data_gradient() const { return with_ != nullptr; }
  void Forward() { without_->Forward(pass_); }
  void WeightGradient() { without_->Backward(pass_); }
  void BothGradients() { with_->Backward(pass_); }
  // An op may keep parts of its last forward pass for its backward pass.
  void PrepareGradients() {
    without_->Forward(pass_);
    if (with_ != nullptr) with_->Forward(pass_);
  }

 private:
  Tensor Make(const Shape& shape, const NumberFormat& format) {
    Tensor t{shape, format, StorageFor(format), nullptr};
    t.data = backend_->Allocate(t.bytes());
    return t;
  }
  void Fill(const Tensor& t, float deviation) {
    const auto count = static_cast<std::size_t>(t.shape.numel());
    std::vector<float> values(count);
    FillNormal(values.data(), count, deviation);
    if (t.storage == Storage::kF32) {
      backend_->Upload(t.data, values.data(), t.bytes());
      return;
    }
    std::vector<std::uint16_t> codes(count);
    const auto encode = t.storage == Storage::kF16 ? EncodeFp16 : EncodeBf16;
    for (std::size_t i = 0; i < count; ++i) codes[i] = encode(values[i]);
    backend_->Upload(t.data, codes.data(), t.bytes());
  }
  Gradient MakeGradient(const Shape& shape) {
    Gradient g;
    g.tensor = Make(shape, format_);
    g.scale = &scales_.emplace_back(1.0f);
    g.stats = &stats_.emplace_back();
    g.moments = &moments_.emplace_back();
    return g;
  }
  Conv2dSpec MakeSpec() {
    Conv2dSpec spec;
    spec.layer = layer_.Text();
    spec.x = Make(layer_.x, format_);
    spec.y = Make(layer_.y, format_);
    spec.w = Make(layer_.w, kFp32);
    spec.dw = Make(layer_.w, kFp32);
    if (layer_.bias) {
      spec.b = Make({1, 1, 1, layer_.y.c}, kFp32);
      spec.db = Make(spec.b.shape, kFp32);
    }
    spec.dy = MakeGradient(layer_.y);
    Fill(spec.x, 1);
    Fill(spec.w, 0.1f);
    Fill(spec.dy.tensor, 0.01f);
    spec.w_format = format_;
    spec.y_stats = &stats_.emplace_back();
    spec.w_stats = &stats_.emplace_back();
    spec.dw_stats = &stats_.emplace_back();
    spec.stride = layer_.stride, spec.padding = layer_.padding;
    spec.dilation = layer_.dilation, spec.groups = layer_.groups;
    return spec;
  }
  std::unique_ptr<Op> MakeOp(const Conv2dSpec& spec) {
    if (!layer_.linear) return backend_->Make(spec);
    backend::LinearSpec linear;
    static_cast<backend::MatmulSpec&>(linear) = spec;
    return backend_->Make(linear);
  }

  Layer layer_;
  NumberFormat format_;
  std::unique_ptr<backend::Backend> backend_;
  backend::Pass pass_;
  scaling::LayerScaler scaler_;
  std::deque<float> scales_;
  std::deque<TensorStats> stats_;
  std::deque<TensorMoments> moments_;
  std::unique_ptr<Op> without_, with_;
};

}  // namespace

Program MakeOurs(const Layer& layer, const std::string& name, const NumberFormat& format,
                 int threads) {
  const auto ours = std::make_shared<Ours>(layer, format, threads);
  ours->PrepareGradients();
  Program program;
  program.name = name;
  program.size = static_cast<int>(BytesOf(StorageFor(format)));
  program.forward = [ours] { ours->Forward(); };
  program.weight_gradient = [ours] { ours->WeightGradient(); };
  if (ours->has_data_gradient()) program.both_gradients = [ours] { ours->BothGradients(); };
  program.owner = ours;
  return program;
}

}  // namespace ada::bench

// A layer as ada-train computes it: rounding, largest magnitudes and moments as in a step that is
// not logged. See ops.h.
#include <deque>
#include <memory>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "ops.h"

namespace ada::bench {
namespace {

// An op with its tensors, in a step in which nothing is logged.
class Ours {
 public:
  Ours(const Layer& layer, Part part, const NumberFormat& format, int threads)
      : layer_(layer), format_(format), backend_(backend::cpu::MakeCpuBackend(threads)) {
    pass_.rows = static_cast<int>(layer.x.n);
    pass_.loss_terms = layer.x.n;
    op_ = layer.attention() ? MakeAttention() : MakeMatmul(part == Part::kBothGradients);
    op_->RefreshWeights(pass_);
    op_->Forward(pass_);  // an op may keep parts of it for its backward pass
  }
  void Forward() { op_->Forward(pass_); }
  void Backward() { op_->Backward(pass_); }

 private:
  // Filled with normal numbers, in fp32, fp16 or bf16, where a deviation is given.
  Tensor Make(const Shape& shape, const NumberFormat& format, float deviation = 0) {
    Tensor t{shape, format, StorageFor(format), nullptr};
    t.data = backend_->Allocate(t.bytes());
    if (deviation == 0) return t;
    const auto count = static_cast<std::size_t>(shape.numel());
    std::vector<float> values(count);
    FillNormal(values.data(), count, deviation);
    if (t.storage == Storage::kF32) {
      backend_->Upload(t.data, values.data(), t.bytes());
      return t;
    }
    std::vector<std::uint16_t> codes(count);
    const auto encode = t.storage == Storage::kF16 ? EncodeFp16 : EncodeBf16;
    for (std::size_t i = 0; i < count; ++i) codes[i] = encode(values[i]);
    backend_->Upload(t.data, codes.data(), t.bytes());
    return t;
  }
  backend::Gradient MakeGradient(const Shape& shape, float deviation = 0) {
    backend::Gradient g;
    g.tensor = Make(shape, format_, deviation);
    g.scale = &scales_.emplace_back(1.0f);
    g.stats = &stats_.emplace_back();
    g.moments = &moments_.emplace_back();
    return g;
  }
  // The scaler of a gradient whose alpha is 1.
  scaling::LayerScaler* FixedScaler() {
    scaling::LayerScaler& scaler = scalers_.emplace_back();
    scaler.rule.method = scaling::LayerMethod::kFixed;
    scaler.rule.fixed_scale = 1;
    return &scaler;
  }

  std::unique_ptr<backend::Op> MakeMatmul(bool data_gradient) {
    backend::Conv2dSpec spec;
    spec.layer = layer_.Text();
    spec.x = Make(layer_.x, format_, 1);
    spec.y = Make(layer_.y, format_);
    spec.w = Make(layer_.w, kFp32, 0.1f);
    spec.dw = Make(layer_.w, kFp32);
    if (layer_.bias) {
      spec.b = Make({1, 1, 1, layer_.y.c}, kFp32);
      spec.db = Make(spec.b.shape, kFp32);
    }
    spec.dy = MakeGradient(layer_.y, 0.01f);
    if (data_gradient) {
      spec.dx = MakeGradient(layer_.x);
      spec.scaler = FixedScaler();
    }
    spec.w_format = format_;
    for (TensorStats** stats : {&spec.y_stats, &spec.w_stats, &spec.dw_stats})
      *stats = &stats_.emplace_back();
    spec.stride = layer_.stride, spec.padding = layer_.padding;
    spec.dilation = layer_.dilation, spec.groups = layer_.groups;
    if (!layer_.linear) return backend_->Make(spec);
    backend::LinearSpec linear;
    static_cast<backend::MatmulSpec&>(linear) = spec;
    return backend_->Make(linear);
  }

  std::unique_ptr<backend::Op> MakeAttention() {
    const Shape keys{layer_.x.n, layer_.keys, 1, layer_.kv_heads * (layer_.x.c / layer_.heads)};
    backend::AttentionSpec spec;
    spec.layer = layer_.Text();
    for (const Shape& shape : {layer_.x, keys, keys}) {
      spec.x.push_back(Make(shape, format_, 1));
      spec.dx.push_back(MakeGradient(shape));
    }
    spec.y = Make(layer_.y, format_);
    spec.dy = MakeGradient(layer_.y, 0.01f);
    spec.heads = layer_.heads, spec.kv_heads = layer_.kv_heads, spec.causal = layer_.causal;
    spec.p_format = spec.ds_format = format_;
    for (TensorStats** stats : {&spec.y_stats, &spec.p_stats, &spec.ds_stats})
      *stats = &stats_.emplace_back();
    spec.ds_scale = &scales_.emplace_back(1.0f);
    for (scaling::LayerScaler*& scaler : spec.scalers) scaler = FixedScaler();
    return backend_->Make(spec);
  }

  Layer layer_;
  NumberFormat format_;
  std::unique_ptr<backend::Backend> backend_;
  std::deque<scaling::LayerScaler> scalers_;
  std::deque<float> scales_;
  std::deque<TensorStats> stats_;
  std::deque<TensorMoments> moments_;
  backend::Pass pass_;
  std::unique_ptr<backend::Op> op_;
};

}  // namespace

Work MakeOurs(const Layer& layer, Part part, const NumberFormat& format, int threads) {
  const auto ours = std::make_shared<Ours>(layer, part, format, threads);
  if (part == Part::kForward) return [ours] { ours->Forward(); };
  return [ours] { ours->Backward(); };
}

}  // namespace ada::bench

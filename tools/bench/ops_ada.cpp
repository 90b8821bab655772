// A layer as ada-train computes it: rounding, largest magnitudes and moments as in a step that is
// not logged. See ops.h.
#include <deque>

#include "backend/cpu/cpu_backend.h"
#include "ops.h"

namespace ada::bench {
namespace {

// A step in which nothing is logged, over all images of x.
backend::Pass WholePass(const Shape& x) {
  backend::Pass pass;
  pass.rows = static_cast<int>(x.n);
  pass.loss_terms = x.n;
  return pass;
}

class OpTensors {
 public:
  OpTensors(const NumberFormat& format, int threads)
      : format_(format), backend_(backend::cpu::MakeCpuBackend(threads)) {}

  backend::Backend& backend() { return *backend_; }
  const NumberFormat& format() const { return format_; }

  Tensor Make(const Shape& shape) { return Make(shape, format_); }
  Tensor Make(const Shape& shape, const NumberFormat& format) {
    Tensor t{shape, format, StorageFor(format), nullptr};
    t.data = backend_->Allocate(t.bytes());
    return t;
  }
  // Fills a tensor in fp32, fp16 or bf16.
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
  backend::Gradient MakeGradient(const Shape& shape) {
    backend::Gradient g;
    g.tensor = Make(shape);
    g.scale = Scale();
    g.stats = Stats();
    g.moments = &moments_.emplace_back();
    return g;
  }
  float* Scale() { return &scales_.emplace_back(1.0f); }
  TensorStats* Stats() { return &stats_.emplace_back(); }
  // The scaler of a gradient whose alpha is 1.
  scaling::LayerScaler* FixedScaler() {
    scaling::LayerScaler& scaler = scalers_.emplace_back();
    scaler.rule.method = scaling::LayerMethod::kFixed;
    scaler.rule.fixed_scale = 1;
    return &scaler;
  }

 private:
  NumberFormat format_;
  std::unique_ptr<backend::Backend> backend_;
  std::deque<scaling::LayerScaler> scalers_;
  std::deque<float> scales_;
  std::deque<TensorStats> stats_;
  std::deque<TensorMoments> moments_;
};

using backend::Conv2dSpec;
using backend::Op;

// The layer's tensors and two ops on them: with the data gradient and without.
class Ours {
 public:
  Ours(const Layer& layer, const NumberFormat& format, int threads)
      : layer_(layer), tensors_(format, threads) {
    pass_ = WholePass(layer.x);
    Conv2dSpec spec = MakeSpec();
    without_ = MakeOp(spec);
    if (layer.data_gradient) {
      spec.dx = tensors_.MakeGradient(layer.x);
      spec.scaler = tensors_.FixedScaler();
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
  Conv2dSpec MakeSpec() {
    Conv2dSpec spec;
    spec.layer = layer_.Text();
    spec.x = tensors_.Make(layer_.x);
    spec.y = tensors_.Make(layer_.y);
    spec.w = tensors_.Make(layer_.w, kFp32);
    spec.dw = tensors_.Make(layer_.w, kFp32);
    if (layer_.bias) {
      spec.b = tensors_.Make({1, 1, 1, layer_.y.c}, kFp32);
      spec.db = tensors_.Make(spec.b.shape, kFp32);
    }
    spec.dy = tensors_.MakeGradient(layer_.y);
    tensors_.Fill(spec.x, 1);
    tensors_.Fill(spec.w, 0.1f);
    tensors_.Fill(spec.dy.tensor, 0.01f);
    spec.w_format = tensors_.format();
    spec.y_stats = tensors_.Stats();
    spec.w_stats = tensors_.Stats();
    spec.dw_stats = tensors_.Stats();
    spec.stride = layer_.stride, spec.padding = layer_.padding;
    spec.dilation = layer_.dilation, spec.groups = layer_.groups;
    return spec;
  }
  std::unique_ptr<Op> MakeOp(const Conv2dSpec& spec) {
    if (!layer_.linear) return tensors_.backend().Make(spec);
    backend::LinearSpec linear;
    static_cast<backend::MatmulSpec&>(linear) = spec;
    return tensors_.backend().Make(linear);
  }

  Layer layer_;
  OpTensors tensors_;
  backend::Pass pass_;
  std::unique_ptr<Op> without_, with_;
};

class OurAttention {
 public:
  OurAttention(const Layer& layer, const NumberFormat& format, int threads)
      : tensors_(format, threads), pass_(WholePass(layer.x)) {
    const std::int64_t key_channels = layer.kv_heads * (layer.x.c / layer.heads);
    const Shape keys{layer.x.n, layer.keys, 1, key_channels};
    backend::AttentionSpec spec;
    spec.layer = layer.Text();
    spec.x = {tensors_.Make(layer.x), tensors_.Make(keys), tensors_.Make(keys)};
    spec.y = tensors_.Make(layer.y);
    spec.dy = tensors_.MakeGradient(layer.y);
    for (const Tensor& x : spec.x) {
      tensors_.Fill(x, 1);
      spec.dx.push_back(tensors_.MakeGradient(x.shape));
    }
    tensors_.Fill(spec.dy.tensor, 0.01f);
    spec.heads = layer.heads, spec.kv_heads = layer.kv_heads, spec.causal = layer.causal;
    spec.p_format = spec.ds_format = format;
    spec.y_stats = tensors_.Stats();
    spec.p_stats = tensors_.Stats();
    spec.ds_stats = tensors_.Stats();
    spec.ds_scale = tensors_.Scale();
    for (scaling::LayerScaler*& scaler : spec.scalers) scaler = tensors_.FixedScaler();
    op_ = tensors_.backend().Make(spec);
  }
  void Forward() { op_->Forward(pass_); }
  void Backward() { op_->Backward(pass_); }

 private:
  OpTensors tensors_;
  backend::Pass pass_;
  std::unique_ptr<backend::Op> op_;
};

}  // namespace

Program MakeOurs(const Layer& layer, const NumberFormat& format, int threads) {
  Program program;
  if (layer.attention()) {
    const auto ours = std::make_shared<OurAttention>(layer, format, threads);
    ours->Forward();  // the backward pass reads what it keeps
    program.forward = [ours] { ours->Forward(); };
    program.data_gradient = [ours] { ours->Backward(); };
    program.owner = ours;
    return program;
  }
  const auto ours = std::make_shared<Ours>(layer, format, threads);
  ours->PrepareGradients();
  program.forward = [ours] { ours->Forward(); };
  program.weight_gradient = [ours] { ours->WeightGradient(); };
  if (ours->has_data_gradient()) program.both_gradients = [ours] { ours->BothGradients(); };
  program.owner = ours;
  return program;
}

}  // namespace ada::bench

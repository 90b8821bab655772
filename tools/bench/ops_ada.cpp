// A convolution or linear layer as ada-train computes it: rounding, largest magnitudes and moments
// as in a step that is not logged. See ops.h.
#include "op_tensors.h"
#include "ops.h"

namespace ada::bench {
namespace {

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

// Tensors of a layer that is timed by itself, filled with random values, in memory of a backend of
// its own, and what its ops write beside them.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "ops.h"

namespace ada::bench {

// A step in which nothing is logged, over all images of x.
inline backend::Pass WholePass(const Shape& x) {
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

}  // namespace ada::bench

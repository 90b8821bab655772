// Calls the passes of the convolution that is transposed in exchange for its own, and adds the
// bias, which that one has not.
#include <utility>
#include <vector>

#include "backend/cpu/matmul/plan/fp32_matmul.h"

namespace ada::backend::cpu {
namespace {

// The bias belongs to the transposed layer, so that the convolution below has none: it is added,
// and its gradient summed, here.
class TransposedMatmul final : public Matmul {
 public:
  TransposedMatmul(const MatmulGeometry& geometry, int images, std::unique_ptr<Matmul> convolution)
      : geometry_(geometry),
        pixels_(images * geometry.y.h * geometry.y.w),
        convolution_(std::move(convolution)) {}

  void Forward(const float* x, const float* w, const float* b, float* y, std::byte* pad) override {
    convolution_->BackwardData(x, w, y, pad);
    if (b == nullptr) return;
    const std::int64_t channels = geometry_.y.c;
    for (std::int64_t pixel = 0; pixel < pixels_; ++pixel, y += channels)
      for (std::int64_t c = 0; c < channels; ++c) y[c] += b[c];
  }
  void BackwardWeights(const float* x, const float* dy, float* dw, float* db,
                       std::byte* pad) override {
    convolution_->BackwardWeights(dy, x, dw, nullptr, pad);
    if (geometry_.bias) SumPixels(dy, db);
  }
  void BackwardData(const float* dy, const float* w, float* dx, std::byte* pad) override {
    convolution_->Forward(dy, w, nullptr, dx, pad);
  }

  std::shared_ptr<const WeightLayout> forward_layout() const override {
    return convolution_->data_layout();
  }
  std::shared_ptr<const WeightLayout> data_layout() const override {
    const bool wanted = geometry_.training && geometry_.data_gradient;
    return wanted ? convolution_->forward_layout() : nullptr;
  }
  std::shared_ptr<const WeightLayout> gradient_layout() const override {
    return geometry_.training ? convolution_->gradient_layout() : nullptr;
  }
  std::size_t scratchpad_bytes() const override { return convolution_->scratchpad_bytes(); }

 private:
  // By channel, in double, pixel by pixel.
  void SumPixels(const float* dy, float* db) const {
    const auto channels = static_cast<std::size_t>(geometry_.y.c);
    std::vector<double> sums(channels);
    for (std::int64_t pixel = 0; pixel < pixels_; ++pixel, dy += channels)
      for (std::size_t c = 0; c < channels; ++c) sums[c] += static_cast<double>(dy[c]);
    for (std::size_t c = 0; c < channels; ++c) db[c] = static_cast<float>(sums[c]);
  }

  MatmulGeometry geometry_;
  std::int64_t pixels_;  // of y
  std::unique_ptr<Matmul> convolution_;
};

}  // namespace

// Every pass of it is needed, even for a forward pass alone, which is its data gradient.
MatmulGeometry ConvolutionOf(const MatmulGeometry& geometry) {
  MatmulGeometry convolution = geometry;
  std::swap(convolution.x, convolution.y);
  convolution.transposed = convolution.bias = false;
  convolution.training = convolution.data_gradient = true;
  return convolution;
}

std::unique_ptr<Matmul> MakeTransposed(const MatmulGeometry& geometry, int images,
                                       std::unique_ptr<Matmul> convolution) {
  return std::make_unique<TransposedMatmul>(geometry, images, std::move(convolution));
}

}  // namespace ada::backend::cpu

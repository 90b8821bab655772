// Weight gradients of 3x3 convolutions by Winograd's algorithm (winograd.h). A partial gradient
// holds the sums of V . Z; what they are of dw is worked out once, at the end.
#pragma once
#include "backend/cpu/matmul/plan/partial_gradients.h"
#include "backend/cpu/matmul/plan/winograd.h"

namespace ada::backend::cpu {

// Partial gradients are 16 / 9 as large as dw, and added up before they are transformed, which is
// linear.
class WinogradGradient final : public PartialGradients {
 public:
  WinogradGradient(const WinogradKernels& kernels, const MatmulGeometry& geometry);

  std::size_t scratch_bytes(int images) const override;
  std::int64_t partial_values() const override;
  void Run(TensorSpan x, TensorSpan dy, int images, bool first, float* partial,
           std::byte* scratch) const override;
  const std::vector<GradientGroup>& groups() const override { return groups_; }
  void ToPlain(const GradientGroup& group, const float* partial, float* dw) const override;
  void BiasToPlain(const float* partial, float* db) const override;
  void AddPlain(const float* dw, const float* db, bool first, float* partial) const override;

 private:
  int in_blocks() const { return QuotientUp(geometry_.x.c, 16); }
  int out_blocks() const { return QuotientUp(geometry_.y.c, 16); }
  std::int64_t v_values() const {
    return kWinogradPlaces * WinogradBatch::PlaceValues(batches_.room(), in_blocks());
  }
  // The sizes for 16 output channels, and for all, without db.
  std::int64_t block_values() const { return std::int64_t{kWinogradPlaces} * 256 * in_blocks(); }
  std::int64_t sum_values() const { return out_blocks() * block_values(); }

  const WinogradKernels& kernels_;
  MatmulGeometry geometry_;
  WinogradBatches batches_;
  std::vector<GradientGroup> groups_;  // one a block of output channels
};

}  // namespace ada::backend::cpu

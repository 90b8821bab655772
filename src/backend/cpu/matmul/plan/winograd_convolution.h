// Forward products and data gradients of 3x3 convolutions by Winograd's algorithm (winograd.h).
#pragma once
#include "backend/cpu/matmul/plan/chunk_convolution.h"
#include "backend/cpu/matmul/plan/winograd.h"

namespace ada::backend::cpu {

// Nothing depends on the number of images in a call, so that there is nothing to prepare.
class WinogradConvolution final : public ChunkConvolution {
 public:
  // y from x, and dx from dy. block: images in a reduction block of the output. TakesWinograd
  // holds.
  static WinogradConvolution Forward(const WinogradKernels& kernels, const MatmulGeometry& geometry,
                                     int block);
  static WinogradConvolution DataGradient(const WinogradKernels& kernels,
                                          const MatmulGeometry& geometry, int block);

  void Prepare(int) override {}
  std::size_t scratch_bytes(int images) const override;
  std::size_t weight_bytes() const override;
  int panels() const override { return QuotientUp(out_.c, 16); }
  bool PackPanel(int panel, const float* plain, std::byte* weights) const override;
  void Run(const Call& call) const override;

 private:
  WinogradConvolution(const WinogradKernels& kernels, const Shape& in, const Shape& out,
                      std::array<int, 2> padding, bool data_gradient, int block);
  int in_blocks() const { return QuotientUp(in_.c, 16); }
  std::int64_t v_values() const {
    return kWinogradPlaces * WinogradBatch::PlaceValues(batches_.room(), in_blocks());
  }
  std::int64_t panel_values() const { return std::int64_t{kWinogradPlaces} * 256 * in_blocks(); }

  const WinogradKernels& kernels_;
  Shape in_, out_;
  std::array<int, 2> padding_;
  bool data_gradient_;
  int block_;
  WinogradBatches batches_;
};

}  // namespace ada::backend::cpu

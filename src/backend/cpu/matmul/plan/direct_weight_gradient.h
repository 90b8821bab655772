// The weight gradient from packed input (matmul/kernels/direct): x lies as a forward convolution
// reads it, dy likewise, without zeros around it; for bf16 dot a packed pixel holds the same 16
// channels of two images.
//
//   a tile of dw   16 input channels of one tap (a step of the convolution) x 16 output channels
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/matmul/kernels/direct_gradient_args.h"
#include "backend/cpu/matmul/plan/fp32_matmul.h"
#include "backend/cpu/matmul/plan/packed_convolution.h"
#include "backend/cpu/matmul/plan/partial_gradients.h"

namespace ada::backend::cpu {

// Kernels in fp32 and of bf16 pairs use it. Large linear layers are made in slices of output
// channels, each by one worker for the whole batch: groups of chunks would take a partial gradient
// each, as large as the weights.
class DirectWeightGradient final : public PartialGradients {
 public:
  // block: images in a reduction block of the output. most: images that a call of Run has.
  DirectWeightGradient(const MatmulKernels& kernels, const MatmulGeometry& geometry, int block,
                       int most);

  std::size_t scratch_bytes(int images) const override;
  std::int64_t partial_values() const override;
  void Run(TensorSpan x, TensorSpan dy, int images, bool first, float* partial,
           std::byte* scratch) const override;
  int slices() const override { return slices_; }
  void RunSlice(int slice, TensorSpan x, TensorSpan dy, int images, float* partial,
                std::byte* scratch) const override;
  const std::vector<GradientGroup>& groups() const override { return groups_; }
  void ToPlain(const GradientGroup& group, const float* partial, float* dw) const override;
  void BiasToPlain(const float* partial, float* db) const override;
  void AddPlain(const float* dw, const float* db, bool first, float* partial) const override;

 private:
  // How the images of one call lie in scratch memory.
  struct Layout {
    int groups = 1;  // of interleaved images
    std::size_t x = 0, dy = 0, rows = 0, bytes = 0;
    std::int64_t dy_plane_bytes = 0;
  };
  // Output channels of one group of channels: blocks of 16 from `first` on.
  struct Outs {
    int group = 0, first = 0, blocks = 1;
  };
  Layout LayoutOf(int images) const;
  template <class Each>
  void ForImages(TensorSpan x, TensorSpan dy, int images, Each&& each) const;
  void RunSome(const Outs& outs, TensorSpan x, TensorSpan dy, int images, bool first,
               float* partial, std::byte* scratch) const;
  void PackDy(const Outs& outs, TensorSpan dy, int images, const Layout& layout,
              std::byte* packed) const;
  // The sizes for 16 output channels and for a group of channels, without db.
  std::int64_t block_values() const { return 16 * static_cast<std::int64_t>(places_.size()); }
  std::int64_t group_values() const { return out_blocks_ * block_values(); }
  // Weights of one output, and where those of a block of outputs begin in PyTorch's order.
  std::int64_t inputs() const { return geometry_.w.c * geometry_.w.h * geometry_.w.w; }
  std::int64_t FirstOutput(const GradientGroup& group) const;
  int OutputsOf(const GradientGroup& group) const;
  template <class Visit>
  void ForWeights(const GradientGroup& group, Visit&& visit) const;
  template <class Visit>
  void ForBias(Visit&& visit) const;

  const MatmulKernels& kernels_;
  MatmulGeometry geometry_;
  PackedConvolution forward_;
  std::vector<PackedConvolution::Met> met_;  // of each step
  std::vector<std::int64_t> places_;         // of a step's values among the weights of one output
  bool in_order_ = true;                     // places_ are 0, 1, 2 ..
  std::vector<GradientGroup> groups_;        // one a block of output channels
  int out_channels_, out_blocks_;            // of a group of channels
  int pieces_, positions_, strip_rows_;  // of a row of the output; of a piece; pieces of a strip
  int slice_blocks_ = 1, slices_ = 1;    // of 16 output channels
};

}  // namespace ada::backend::cpu

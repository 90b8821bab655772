// The weight gradient of a layer by kernels of our own: some images at a time, into partial
// gradients of a layout of its own that may be added value by value. On AMX tiles and directly;
// winograd.h has a third way.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul/kernels/weight_gradient_args.h"
#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/matmul/plan/fp32_matmul.h"
#include "backend/cpu/matmul/plan/packed_convolution.h"

namespace ada::backend::cpu {

// Implemented on AMX tiles, directly and by Winograd's algorithm; KernelChunks owns one. Run and
// RunSlice are const: workers call them at the same time, with partial gradients of their own.
class PartialGradients {
 public:
  virtual ~PartialGradients() = default;

  // Scratch memory that one call of at most `images` images needs.
  virtual std::size_t scratch_bytes(int images) const = 0;
  // Values of a partial gradient: tiles of dw, then of db.
  virtual std::int64_t partial_values() const = 0;

  // partial = (first) or += dw and, with a bias, db of `images` images. x, dy: the first image, in
  // any storage. `partial` and `scratch` are aligned to 64 bytes. Products are exact, sums fp32;
  // the result depends only on the values and `images`, and every value of `partial` is written. A
  // value of x or dy that is not finite makes every value of dw to which it contributes not finite
  // (perhaps NaN where fp32 arithmetic would give inf).
  virtual void Run(TensorSpan x, TensorSpan dy, int images, bool first, float* partial,
                   std::byte* scratch) const = 0;

  // More than 1: RunSlice makes what the partial gradient holds of one slice of the output
  // channels, of all images of a batch at once; so that layers with many weights and one position
  // need no more than one partial gradient. Depends on the values and `images` alone, as Run.
  virtual int slices() const { return 1; }
  virtual void RunSlice(int /*slice*/, TensorSpan /*x*/, TensorSpan /*dy*/, int /*images*/,
                        float* /*partial*/, std::byte* /*scratch*/) const {}

  // From a partial gradient: what `group`, one of groups(), holds of dw, in PyTorch's order
  // [out][in][kernel_h][kernel_w]; and db [out].
  virtual const std::vector<GradientGroup>& groups() const = 0;
  virtual void ToPlain(const GradientGroup& group, const float* partial, float* dw) const = 0;
  virtual void BiasToPlain(const float* partial, float* db) const = 0;
  // partial = (first) or += dw and db.
  virtual void AddPlain(const float* dw, const float* db, bool first, float* partial) const = 0;
};

// The weight gradient of convolutions and linear layers on AMX tiles (matmul_kernels.h):
//
//   dw[o][ky][kx][i] = sum over images and output pixels (r, q) of
//                      dy[r][q][o] * x[r * stride + ky * dilation - padding][same of q, kx][i]
//
// The unit sums over 32 values at a time, as 16 pairs. A pair holds the same pixel of two images,
// so that a tap's shift by a pixel is one by whole pairs: tiles of x may begin at any pixel without
// a copy. Narrow images are interleaved, `pairs` pairs at a time, so that few of a tile's 16 rows
// are empty:
//
//   a plane of a row of x:  pixel 0               pixel 1               ...   (64 bytes a pair:
//                           pair 0, pair 1, ...   pair 0, pair 1, ...          16 channels x 2)
//   a tile of x             16 pairs from any pixel on
//   a tile of dy            16 output channels x 16 pairs: dy transposed
//
// A plane has 16 channels of every stride-th pixel, and each part (matmul/kernels/amx/bf16_split.h)
// its own. Few channels are gathered instead: "channels" of a plane are then those of all taps of a
// kernel row.
//
// Shapes, planes, columns and groups are fixed by the layer; how a call's images lie depends on
// their number and is planned anew in each call.
class AmxWeightGradient final : public PartialGradients {
 public:
  // `geometry` has one group. Values of x and dy are sums of at most so many bf16 parts (PartsOf).
  AmxWeightGradient(const MatmulKernels& kernels, const MatmulGeometry& geometry, int x_parts,
                    int dy_parts);

  std::size_t scratch_bytes(int images) const override;
  std::int64_t partial_values() const override;
  void Run(TensorSpan x, TensorSpan dy, int images, bool first, float* partial,
           std::byte* scratch) const override;
  const std::vector<GradientGroup>& groups() const override { return groups_; }
  void ToPlain(const GradientGroup& group, const float* partial, float* dw) const override;
  void BiasToPlain(const float* partial, float* db) const override;
  void AddPlain(const float* dw, const float* db, bool first, float* partial) const override;

 private:
  void Gather();
  void MakePlanes(int dilation);
  std::int64_t Blocks(int images, int pairs) const;
  WeightGradientPlan Plan(int images) const;
  template <class Visit>
  void ForWeights(const GradientGroup& group, Visit&& visit) const;
  std::int64_t OffsetOfBias(int channel) const;

  const MatmulKernels& kernels_;
  WeightGradientShape shape_;
  int kernel_w_ = 1;
  std::vector<GradientPlane> planes_;
  std::vector<GradientColumn> columns_;
  std::vector<GradientGroup> groups_;
  int tiles_ = 0;  // of dw
};

// The weight gradient from packed input (matmul/kernels/direct): x lies as a forward convolution
// reads it, dy likewise, without zeros around it; for bf16 dot a packed pixel holds the same 16
// channels of two images.
//
//   a tile of dw   16 input channels of one tap (a step of the convolution) x 16 output channels
//
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
  struct OutputRange {
    int group = 0, first = 0, blocks = 1;
  };
  Layout LayoutOf(int images) const;
  template <class Each>
  void ForImages(TensorSpan x, TensorSpan dy, int images, Each&& each) const;
  void RunSome(const OutputRange& outs, TensorSpan x, TensorSpan dy, int images, bool first,
               float* partial, std::byte* scratch) const;
  void PackDy(const OutputRange& outs, TensorSpan dy, int images, const Layout& layout,
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
  std::vector<ValidOutputs> valid_;      // of each step
  std::vector<std::int64_t> places_;     // of a step's values among the weights of one output
  bool in_order_ = true;                 // places_ are 0, 1, 2 ..
  std::vector<GradientGroup> groups_;    // one a block of output channels
  int out_channels_, out_blocks_;        // of a group of channels
  int pieces_, positions_, strip_rows_;  // of a row of the output; of a piece; pieces of a strip
  int slice_blocks_ = 1, slices_ = 1;    // of 16 output channels
};

}  // namespace ada::backend::cpu

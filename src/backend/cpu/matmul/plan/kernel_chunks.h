// Computes chunks of a layer with the kernels of matmul_kernels.h. Direct kernels in fp32 can
// compute everything. The others fall back to fp32: where a result is not finite an input may not
// have been, and the bf16 split and Winograd's algorithm do not treat inf as fp32 does (inf is high
// part inf, low part NaN; the difference of two is NaN); where products may be below 2^-126 an AMX
// unit would flush them to zero.
#pragma once
#include <memory>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/chunk_matmul.h"
#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/matmul/matmul_rounding.h"
#include "backend/cpu/matmul/pack/weight_copies.h"
#include "backend/cpu/matmul/plan/packed_convolution.h"
#include "backend/cpu/matmul/plan/partial_gradients.h"

namespace ada::backend::cpu {

// Why a layer cannot use these kernels, or null.
const char* WhyNoKernels(const MatmulKernels& kernels, const MatmulSpec& spec,
                         const MatmulGeometry& geometry);

// How a layer that is not refused is computed: "directly in fp32".
const char* WayOfMatmuls(const MatmulKernels& kernels, const MatmulGeometry& geometry);

// Images that a chunk should hold so that row blocks are full, where it may hold `images`.
int ImagesOfRowBlocks(const MatmulKernels& kernels, const MatmulGeometry& geometry, int images);

// Holds up to two ways for y and for dx, direct and by Winograd's algorithm, with packed weights
// for both; which one is taken is decided at each Refresh, as it depends on the weights.
class KernelChunks final : public ChunkMatmul {
 public:
  // As OnednnChunks's. The layer must not be one that WhyNoKernels names.
  KernelChunks(const MatmulKernels& kernels, const Context& context, const MatmulSpec& spec,
               const MatmulGeometry& geometry, const WeightCopies& weights,
               MatmulRounding& rounding, int most, std::size_t offset);
  ~KernelChunks() override;
  void Prepare(std::int64_t images) override;
  void Refresh() override;
  bool Forward(const Chunk& chunk, const TensorSpan& x) override;
  bool DataGradient(const Chunk& chunk, const TensorSpan& dy, float alpha) override;
  bool WeightGradient(const Chunk& chunk, const TensorSpan& x, const TensorSpan& dy, bool first,
                      float* partial) override;
  int slices() const override;
  void WeightSlice(int slice, const Chunk& batch, const TensorSpan& x, const TensorSpan& dy,
                   float* partial) override;
  bool sparse_sums_are_inexact() const override { return winograd_gradient_; }
  std::int64_t partial_values() const override;
  bool Sum(float* partials, std::int64_t count, float* dw, float* db) const override;
  void AddPlain(const float* dw, const float* db, bool first, float* partial) const override;

 private:
  // A way of computing one of the two convolutions, with its weights.
  struct Way {
    std::unique_ptr<ChunkConvolution> convolution;
    std::vector<std::byte, PageAllocator<std::byte, PageKind::kHuge>> weights;
  };
  // winograd: null if it is not used for any weights.
  struct Side {
    Way direct, winograd;
    const Way& taken(bool by_winograd) const { return by_winograd ? winograd : direct; }
  };
  struct Buffers {
    std::uint32_t* largest;  // by reduction block of the chunk
    float* values;           // of y or dx, before rounding
    std::byte* tiles;
  };
  void MakeMatmuls(const MatmulGeometry& geometry);
  void MakeWinograd(const MatmulGeometry& geometry);
  std::vector<Way*> Ways(bool winograd);
  void Own(Way& way);
  bool Pack(bool winograd);
  void Reserve();
  Buffers BuffersOf(int worker) const;
  // Runs a chunk and closes what it gave; false where that cannot be used. call.in: the first image
  // of `in`'s shape; block: images of a reduction block of the results.
  template <class Close>
  bool Convolve(const Way& way, ChunkConvolution::Call call, const Shape& in, int block,
                const Chunk& chunk, const Buffers& b, const MatmulRounding::Destination& to,
                const Close& close) const;
  bool Usable(const std::uint32_t* largest, std::int64_t blocks) const;
  bool InRange(const NumberFormat& format, const TensorSpan& values, const Shape& shape,
               std::int64_t images, int weight_exponent) const;
  int LowestBit(const NumberFormat& format, const TensorSpan& values, std::int64_t count) const;

  Context context_;
  const MatmulKernels& kernels_;
  const MatmulSpec& spec_;
  const WeightCopies& weights_;
  MatmulRounding& rounding_;
  const std::int64_t most_;
  const std::size_t offset_;
  Side forward_, data_;
  std::unique_ptr<PartialGradients> gradient_;
  const bool winograd_;           // whether the layer may be computed in this way (winograd.h)
  const bool winograd_gradient_;  // whether dw is
  bool by_winograd_ = false;      // whether y and dx are, with the weights of the last Refresh
  std::vector<float> bias_;       // rounded up to 16 channels
  bool weights_finite_ = true;    // only for fp32
  int weight_bit_ = 0;            // of the weights (LowestBit); for bf16 split and bf16 dot
  std::ptrdiff_t bytes_ = 0;
};

}  // namespace ada::backend::cpu

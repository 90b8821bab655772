// Chunks of products by kernels of our own (tile_kernels.h). Direct ones in fp32 do everything.
// What others cannot do is declined: where a result is not finite, an input may not have been, and
// parts and Winograd's algorithm do not treat inf as fp32 does (inf is high part inf, low part NaN;
// the difference of two is NaN); where products may lie below 2^-126, a matrix unit would flush
// them to zero.
#pragma once
#include <memory>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/products/chunk_convolution.h"
#include "backend/cpu/products/chunk_product.h"
#include "backend/cpu/products/partial_gradients.h"
#include "backend/cpu/products/product_rounding.h"
#include "backend/cpu/products/weight_copies.h"
#include "backend/cpu/tile_kernels.h"

namespace ada::backend::cpu {

// Why a layer cannot use such kernels at all, or null.
const char* RefuseTiles(const TileKernels& kernels, const ProductSpec& spec,
                        const ProductGeometry& geometry);

// How a layer that is not refused is computed: "directly in fp32".
const char* WayOfProducts(const TileKernels& kernels, const ProductGeometry& geometry);

// Images that a chunk should hold so that tiles are full, where it may hold `images`.
int ImagesOfTiles(const TileKernels& kernels, const ProductGeometry& geometry, int images);

class TileChunks final : public ChunkProduct {
 public:
  // As OnednnChunks's. The layer must not be one that RefuseTiles names.
  TileChunks(const TileKernels& kernels, const Context& context, const ProductSpec& spec,
             const ProductGeometry& geometry, const WeightCopies& weights,
             ProductRounding& rounding, int most, std::size_t offset);
  ~TileChunks() override;
  void Prepare(std::int64_t images) override;
  void Refresh() override;
  bool Forward(const Chunk& chunk, const TensorSpan& x) override;
  bool DataGradient(const Chunk& chunk, const TensorSpan& dy, float alpha) override;
  bool WeightGradient(const Chunk& chunk, const TensorSpan& x, const TensorSpan& dy, bool first,
                      float* partial) override;
  int slices() const override;
  void WeightSlice(int slice, const Chunk& batch, const TensorSpan& x, const TensorSpan& dy,
                   float* partial) override;
  bool few_terms_are_inexact() const override { return winograd_gradient_; }
  std::int64_t partial_values() const override;
  bool Sum(float* partials, std::int64_t count, float* dw, float* db) const override;
  void AddPlain(const float* dw, const float* db, bool first, float* partial) const override;

 private:
  // A way of computing one of the two convolutions, with its weights.
  struct Way {
    std::unique_ptr<ChunkConvolution> convolution;
    std::vector<std::byte, PageAllocator<std::byte, PageKind::kHuge>> weights;
  };
  // winograd: null where it is not taken for any weights.
  struct Side {
    Way direct, winograd;
    const Way& taken(bool by_winograd) const { return by_winograd ? winograd : direct; }
  };
  struct Buffers {
    std::uint32_t* largest;  // by reduction block of the chunk
    float* values;           // of y or dx, before rounding
    std::byte* tiles;
  };
  void MakeProducts(const ProductGeometry& geometry);
  void MakeWinograd(const ProductGeometry& geometry);
  std::vector<Way*> Ways(bool winograd);
  void Own(Way& way);
  bool Pack(bool winograd);
  void Reserve();
  Buffers BuffersOf(int worker) const;
  ChunkConvolution::Call CallFor(const Way& way, const TensorSpan& in, const Buffers& b,
                                 const Chunk& chunk) const;
  bool Usable(const std::uint32_t* largest, std::int64_t blocks) const;
  bool InRange(const NumberFormat& format, const TensorSpan& values, const Shape& shape,
               std::int64_t images, int weight_exponent) const;
  int LowestBit(const NumberFormat& format, const TensorSpan& values, std::int64_t count,
                std::int64_t channels) const;

  Context context_;
  const TileKernels& kernels_;
  const ProductSpec& spec_;
  const WeightCopies& weights_;
  ProductRounding& rounding_;
  const std::int64_t most_;
  const std::size_t offset_;
  Side forward_, data_;
  std::unique_ptr<PartialGradients> gradient_;
  const bool winograd_;           // whether the layer may be computed in this way (winograd.h)
  const bool winograd_gradient_;  // whether dw is
  bool by_winograd_ = false;      // whether y and dx are, with the weights of the last Refresh
  std::vector<float> bias_;       // rounded up to 16 channels
  bool weights_finite_ = true;    // asked of floats
  int weight_bit_ = 0;            // of the weights (LowestBit); of parts and pairs
  std::ptrdiff_t bytes_ = 0;
};

}  // namespace ada::backend::cpu

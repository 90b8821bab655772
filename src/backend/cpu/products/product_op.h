// Convolution and linear layers as ops: what surrounds the products of chunks. Decides alpha, cuts
// the batch into chunks for the workers, and makes dw of partial gradients.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/ops/recomputed_norm.h"
#include "backend/cpu/ops/rounding_stats.h"
#include "backend/cpu/products/chunk_product.h"
#include "backend/cpu/products/few_terms.h"
#include "backend/cpu/products/operands.h"
#include "backend/cpu/products/product.h"
#include "backend/cpu/products/product_rounding.h"
#include "backend/cpu/products/weight_copies.h"
#include "backend/cpu/tile_kernels.h"

namespace ada::backend::cpu {

class ProductOp final : public Op {
 public:
  // tiles: null where there are none, or RefuseTiles names the layer. taken: AsTaken(spec).
  ProductOp(const Context& context, const TileKernels* tiles, const ProductSpec& spec,
            ProductSpec taken, const ProductGeometry& geometry);
  void Forward(const Pass& pass) override;
  void Backward(const Pass& pass) override;
  void RefreshWeights(const Pass& pass) override;
  void FinishGradients(const Pass& pass) override;

 private:
  // What a chunk's products could not do on tiles.
  enum Declined : std::uint8_t { kForward = 1, kData = 2, kWeights = 4 };

  void Prepare(ChunkProduct& product, int rows) const;
  std::int64_t chunks(int rows) const;
  Chunk ChunkAt(const Pass& pass, std::int64_t index, int worker) const;
  // What a product reads: the chunk's input (in `kForward` what a batch norm makes of it is
  // counted) and gradient.
  enum class Reads : std::uint8_t { kForward, kForwardAgain, kBackward };
  TensorSpan X(const Chunk& chunk, Reads reads);
  TensorSpan Dy(std::int64_t image, Operand operand) const {
    return At(operands_.Of(operand), image);
  }

  ChannelMagnitudes MagnitudesOfWeights() const;
  float DecideAlpha(const Pass& pass);
  bool BySlices() const;
  void RunBackward(const Pass& pass, std::int64_t per_group, float alpha);
  void RunBackwardBySlices(const Pass& pass, float alpha);
  void BackwardChunk(const Chunk& chunk, bool first, float* partial, float alpha);
  bool DataGradient(ChunkProduct& product, const Chunk& chunk, const TensorSpan& x,
                    const TensorSpan& dy, float alpha);

  // product_declined.cpp
  ChunkProduct& Fp32();
  template <class Body>
  void ForDeclined(const Pass& pass, Declined what, Body&& body);
  void RedoForward(const Pass& pass);
  void RedoBackward(const Pass& pass, std::int64_t per_group, float alpha);
  void RedoWeights(ChunkProduct& product, const Chunk& chunk, float* partial);
  ChunkProduct& AllWeightsInFp32(const Pass& pass, std::int64_t per_group);

  std::int64_t GroupsAtMost() const;
  // Partial gradients of the largest batch: what lies before dw in PyTorch's order.
  std::int64_t PartialsAtMost() const;
  float* PartialOf(std::int64_t group) const;
  void FinishWeightGradient(const Pass& pass, std::int64_t per_group);
  bool SumPartials(const ChunkProduct& product, std::int64_t groups);
  float* PlainGradient(const ChunkProduct& product) const;
  bool SumFewTerms(const Pass& pass);
  void SumBias(const Pass& pass, float* db);
  void StoreWeightGradient(const Pass& pass, float* gradient);
  void StoreBiasGradient(const Pass& pass, float* gradient);
  void RoundWeightGradient(const Pass& pass, std::int64_t first, std::int64_t n,
                           std::int64_t segment);

  Context context_;
  ProductSpec spec_, taken_;
  ProductGeometry geometry_;
  int chunk_;  // images
  WeightCopies weights_;
  BatchOperands operands_;
  ProductRounding rounding_;
  std::optional<RecomputedInput> recomputed_;
  std::size_t own_bytes_ = 0;  // of a worker's scratch memory, before the products' part
  bool on_tiles_;
  std::unique_ptr<ChunkProduct> product_, fp32_;  // fp32_: where tiles decline
  std::vector<std::uint8_t> declined_;            // by chunk
  std::optional<FewTerms> few_terms_;             // where product_ asks for it
  RoundingStats dw_stats_;
};

}  // namespace ada::backend::cpu

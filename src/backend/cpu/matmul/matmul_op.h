// Convolution and linear layers as ops: what surrounds the computation of chunks. Decides alpha,
// cuts the batch into chunks for the workers, and makes dw of partial gradients.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/chunk_matmul.h"
#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/matmul/matmul_rounding.h"
#include "backend/cpu/matmul/pack/batch_operands.h"
#include "backend/cpu/matmul/pack/weight_copies.h"
#include "backend/cpu/matmul/plan/fp32_matmul.h"
#include "backend/cpu/matmul/plan/winograd.h"
#include "backend/cpu/rounding/recomputed_norm.h"
#include "backend/cpu/rounding/rounding_stats.h"

namespace ada::backend::cpu {

// One for each conv2d, conv_transpose2d and linear layer, made by the backend and called by the
// graph from one thread; it spreads chunks over the pool's workers, who write apart from each
// other. Scratch memory is all ops' (Context::scratch): nothing in it lives longer than a call.
class MatmulOp final : public Op {
 public:
  // tiles: the kernels; null if there are none, or if WhyNoKernels rejects the layer. operand_spec:
  // the result of AsOperands(spec).
  MatmulOp(const Context& context, const MatmulKernels* tiles, const MatmulSpec& spec,
           MatmulSpec operand_spec, const MatmulGeometry& geometry);
  void Forward(const Pass& pass) override;
  void Backward(const Pass& pass) override;
  void RefreshWeights(const Pass& pass) override;
  void FinishGradients(const Pass& pass) override;

 private:
  // Which parts of a chunk the kernels could not compute and fp32 has to.
  enum Fallback : std::uint8_t { kForward = 1, kData = 2, kWeights = 4 };

  // Makes what chunks of a batch of `rows` images need; the last chunk may be smaller than the
  // others.
  void Prepare(ChunkMatmul& matmul, int rows) const;
  std::int64_t chunks(int rows) const;
  Chunk ChunkAt(const Pass& pass, std::int64_t index, int worker) const;
  // What a computation reads: the chunk's input (in `kForward` what a batch norm makes of it is
  // counted) and gradient.
  enum class Reads : std::uint8_t { kForward, kForwardAgain, kBackward };
  TensorSpan X(const Chunk& chunk, Reads reads);
  TensorSpan Dy(std::int64_t image, Operand operand) const {
    return At(operands_.Of(operand), image);
  }

  // For the rule that looks at products of dy and w.
  ChannelMagnitudes MagnitudesOfWeights() const;
  float DecideAlpha(const Pass& pass);
  bool BySlices() const;
  void RunBackward(const Pass& pass, std::int64_t per_group, float alpha);
  void RunBackwardBySlices(const Pass& pass, float alpha);
  void BackwardChunk(const Chunk& chunk, bool first, float* partial, float alpha);
  bool DataGradient(ChunkMatmul& matmul, const Chunk& chunk, const TensorSpan& x,
                    const TensorSpan& dy, float alpha);

  // matmul_gradient.cpp
  ChunkMatmul& Fp32();
  template <class Body>
  void ForFallbacks(const Pass& pass, Fallback what, Body&& body);
  void ForwardInFp32(const Pass& pass);
  void BackwardInFp32(const Pass& pass, std::int64_t per_group, float alpha);
  void WeightsInFp32(ChunkMatmul& matmul, const Chunk& chunk, float* partial);
  ChunkMatmul& AllWeightsInFp32(const Pass& pass, std::int64_t per_group);

  std::int64_t GroupsAtMost() const;
  // Partial gradients of the largest batch, before they are put into PyTorch's order as dw.
  std::int64_t PartialsAtMost() const;
  float* PartialOf(std::int64_t group) const;
  void FinishWeightGradient(const Pass& pass, std::int64_t per_group);
  bool SumPartials(const ChunkMatmul& matmul, std::int64_t groups);
  float* PlainGradient(const ChunkMatmul& matmul) const;
  bool SumSparseSums(const Pass& pass);
  void SumBias(const Pass& pass, float* db);
  void StoreWeightGradient(const Pass& pass, float* gradient);
  void StoreBiasGradient(const Pass& pass, float* gradient);
  void RoundWeightGradient(const Pass& pass, std::int64_t first, std::int64_t n,
                           std::int64_t segment);

  Context context_;
  MatmulSpec spec_, operand_spec_;
  MatmulGeometry geometry_;
  int chunk_;  // images
  WeightCopies weights_;
  BatchOperands operands_;
  MatmulRounding rounding_;
  std::optional<RecomputedInput> recomputed_;
  // Holds the recomputed input of a chunk and, under `reference`, dy times alpha.
  std::size_t own_bytes_ = 0;  // of a worker's scratch memory, before the part of the chunks
  bool on_kernels_;
  std::unique_ptr<ChunkMatmul> matmul_, fp32_;  // fp32_: the fallback
  std::vector<std::uint8_t> fallbacks_;         // by chunk
  std::optional<SparseSums> sparse_sums_;       // where matmul_ asks for it
  RoundingStats dw_stats_;
};

}  // namespace ada::backend::cpu

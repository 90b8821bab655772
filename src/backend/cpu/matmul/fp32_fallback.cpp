// The fp32 fallback: computes chunks that the kernels declined and weight gradients that are not
// finite once more in fp32.
#include <algorithm>

#include "backend/cpu/matmul/matmul_op.h"
#include "backend/cpu/matmul/plan/onednn_chunks.h"
#include "backend/cpu/rounding/blocks.h"

namespace ada::backend::cpu {

// The fallback is made when it is first needed; most layers never need it.
ChunkMatmul& MatmulOp::Fp32() {
  if (!fp32_)
    fp32_ = std::make_unique<OnednnChunks>(context_, operand_spec_, geometry_, weights_, rounding_,
                                           chunk_, own_bytes_);
  return *fp32_;
}

// Calls body(matmul, chunk) for the chunks in which `what` needs the fallback.
template <class Body>
void MatmulOp::ForFallbacks(const Pass& pass, Fallback what, Body&& body) {
  std::vector<std::int64_t> indices;
  for (std::size_t i = 0; i < fallbacks_.size(); ++i)
    if ((fallbacks_[i] & what) != 0) indices.push_back(static_cast<std::int64_t>(i));
  if (indices.empty()) return;
  ChunkMatmul& matmul = Fp32();
  Prepare(matmul, pass.rows);
  context_.pool.For(static_cast<std::int64_t>(indices.size()), [&](std::int64_t i, int worker) {
    body(matmul, ChunkAt(pass, indices[static_cast<std::size_t>(i)], worker));
  });
}

// x is computed anew and not counted once more: the declined call counted it.
void MatmulOp::ForwardInFp32(const Pass& pass) {
  ForFallbacks(pass, kForward, [&](ChunkMatmul& matmul, const Chunk& chunk) {
    matmul.Forward(chunk, X(chunk, Reads::kForwardAgain));
  });
}

// Weight gradients wait for data gradients: those of one chunk are added to sums of other chunks,
// which no worker may be at work on.
void MatmulOp::BackwardInFp32(const Pass& pass, std::int64_t per_group, float alpha) {
  ForFallbacks(pass, kData, [&](ChunkMatmul& matmul, const Chunk& chunk) {
    DataGradient(matmul, chunk, X(chunk, Reads::kBackward), Dy(chunk.image, Operand::kDxDy), alpha);
  });
  // Group by group in the order of chunks: those of one share a partial gradient.
  for (std::size_t i = 0; i < fallbacks_.size(); ++i) {
    if ((fallbacks_[i] & kWeights) == 0) continue;
    Prepare(Fp32(), pass.rows);
    const auto index = static_cast<std::int64_t>(i);
    WeightsInFp32(Fp32(), ChunkAt(pass, index, 0), PartialOf(index / per_group));
  }
}

// Adds a weight gradient that was computed in fp32 to a partial gradient in matmul_'s layout.
void MatmulOp::WeightsInFp32(ChunkMatmul& matmul, const Chunk& chunk, float* partial) {
  std::vector<float> own(static_cast<std::size_t>(matmul.partial_values()));
  std::vector<float> plain(static_cast<std::size_t>(spec_.w.shape.numel() + spec_.y.shape.c));
  float* db = spec_.b ? plain.data() + spec_.w.shape.numel() : nullptr;
  matmul.WeightGradient(chunk, X(chunk, Reads::kBackward), Dy(chunk.image, Operand::kDwDy),
                        /*first=*/true, own.data());
  matmul.Sum(own.data(), 1, plain.data(), db);
  matmul_->AddPlain(plain.data(), db, /*first=*/false, partial);
}

// Computes all weight gradients in fp32, where the kernels gave something that is not finite.
// Overwrites the partial gradients, whose sums are of no use. Returns the way that made dw, since
// where it lies depends on it.
ChunkMatmul& MatmulOp::AllWeightsInFp32(const Pass& pass, std::int64_t per_group) {
  ChunkMatmul& matmul = Fp32();
  Prepare(matmul, pass.rows);
  const std::int64_t count = chunks(pass.rows), stride = matmul.partial_values();
  const std::int64_t groups = BlockCount(count, static_cast<int>(per_group));
  auto* partials = reinterpret_cast<float*>(context_.scratch.shared());
  context_.pool.For(groups, [&](std::int64_t group, int worker) {
    const std::int64_t begin = group * per_group, end = std::min(begin + per_group, count);
    for (std::int64_t index = begin; index < end; ++index) {
      const Chunk chunk = ChunkAt(pass, index, worker);
      matmul.WeightGradient(chunk, X(chunk, Reads::kBackward), Dy(chunk.image, Operand::kDwDy),
                            index == begin, partials + group * stride);
    }
  });
  SumPartials(matmul, groups);
  return matmul;
}

}  // namespace ada::backend::cpu

// What tiles could not do, in fp32: chunks that they declined, and weight gradients that are not
// finite.
#include <algorithm>

#include "backend/cpu/ops/blocks.h"
#include "backend/cpu/products/onednn_chunks.h"
#include "backend/cpu/products/product_op.h"

namespace ada::backend::cpu {

// Made when it is first needed: most layers never do.
ChunkProduct& ProductOp::Fp32() {
  if (!fp32_)
    fp32_ = std::make_unique<OnednnChunks>(context_, taken_, geometry_, weights_, rounding_, chunk_,
                                           own_bytes_);
  return *fp32_;
}

// body(product, chunk) for the chunks that declined `what`.
template <class Body>
void ProductOp::ForDeclined(const Pass& pass, Declined what, Body&& body) {
  std::vector<std::int64_t> indices;
  for (std::size_t i = 0; i < declined_.size(); ++i)
    if ((declined_[i] & what) != 0) indices.push_back(static_cast<std::int64_t>(i));
  if (indices.empty()) return;
  ChunkProduct& product = Fp32();
  Prepare(product, pass.rows);
  context_.pool.For(static_cast<std::int64_t>(indices.size()), [&](std::int64_t i, int worker) {
    body(product, ChunkAt(pass, indices[static_cast<std::size_t>(i)], worker));
  });
}

void ProductOp::RedoForward(const Pass& pass) {
  ForDeclined(pass, kForward, [&](ChunkProduct& product, const Chunk& chunk) {
    product.Forward(chunk, X(chunk, Reads::kForwardAgain));
  });
}

void ProductOp::RedoBackward(const Pass& pass, std::int64_t per_group, float alpha) {
  ForDeclined(pass, kData, [&](ChunkProduct& product, const Chunk& chunk) {
    DataGradient(product, chunk, X(chunk, Reads::kBackward), Dy(chunk.image, Operand::kDxDy),
                 alpha);
  });
  // Group by group in the order of chunks: those of one share a partial gradient.
  for (std::size_t i = 0; i < declined_.size(); ++i) {
    if ((declined_[i] & kWeights) == 0) continue;
    Prepare(Fp32(), pass.rows);
    const auto index = static_cast<std::int64_t>(i);
    RedoWeights(Fp32(), ChunkAt(pass, index, 0), PartialOf(index / per_group));
  }
}

// From fp32 to the partial gradient of product_'s layout.
void ProductOp::RedoWeights(ChunkProduct& product, const Chunk& chunk, float* partial) {
  std::vector<float> own(static_cast<std::size_t>(product.partial_values()));
  std::vector<float> plain(static_cast<std::size_t>(spec_.w.shape.numel() + spec_.y.shape.c));
  float* db = spec_.b ? plain.data() + spec_.w.shape.numel() : nullptr;
  product.WeightGradient(chunk, X(chunk, Reads::kBackward), Dy(chunk.image, Operand::kDwDy),
                         /*first=*/true, own.data());
  product.Sum(own.data(), 1, plain.data(), db);
  product_->AddPlain(plain.data(), db, /*first=*/false, partial);
}

// Where tiles gave something that is not finite: what fp32 gives.
ChunkProduct& ProductOp::AllWeightsInFp32(const Pass& pass, std::int64_t per_group) {
  ChunkProduct& product = Fp32();
  Prepare(product, pass.rows);
  const std::int64_t count = chunks(pass.rows), stride = product.partial_values();
  const std::int64_t groups = BlockCount(count, static_cast<int>(per_group));
  auto* partials = reinterpret_cast<float*>(context_.scratch.shared());
  context_.pool.For(groups, [&](std::int64_t group, int worker) {
    const std::int64_t begin = group * per_group, end = std::min(begin + per_group, count);
    for (std::int64_t index = begin; index < end; ++index) {
      const Chunk chunk = ChunkAt(pass, index, worker);
      product.WeightGradient(chunk, X(chunk, Reads::kBackward), Dy(chunk.image, Operand::kDwDy),
                             index == begin, partials + group * stride);
    }
  });
  SumPartials(product, groups);
  return product;
}

}  // namespace ada::backend::cpu

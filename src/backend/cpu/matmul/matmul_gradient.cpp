// From the partial weight gradients of a layer's groups to dw and db: sums in the order of groups,
// PyTorch's order of values, unscaled, rounded where they have a format of their own. Chunks that
// the kernels declined and weight gradients that are not finite are computed once more in fp32.
#include <algorithm>

#include "backend/cpu/matmul/matmul_op.h"
#include "backend/cpu/matmul/plan/onednn_chunks.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/reductions.h"

namespace ada::backend::cpu {

// The number for the largest batch; smaller batches use as many or fewer.
std::int64_t MatmulOp::GroupsAtMost() const {
  return MostGroups(chunks(static_cast<int>(spec_.x.shape.n)), spec_.w.shape.numel());
}
std::int64_t MatmulOp::PartialsAtMost() const { return BySlices() ? 1 : GroupsAtMost(); }

float* MatmulOp::PartialOf(std::int64_t group) const {
  const ChunkMatmul& matmul = *matmul_;
  return reinterpret_cast<float*>(context_.scratch.shared()) + group * matmul.partial_values();
}

// The place after the partial gradients of `matmul`, for dw in PyTorch's order and then db.
float* MatmulOp::PlainGradient(const ChunkMatmul& matmul) const {
  return reinterpret_cast<float*>(context_.scratch.shared()) +
         PartialsAtMost() * matmul.partial_values();
}

// Puts the sum of the partial gradients in its place. False: it is not finite.
bool MatmulOp::SumPartials(const ChunkMatmul& matmul, std::int64_t groups) {
  auto* partials = reinterpret_cast<float*>(context_.scratch.shared());
  float* plain = PlainGradient(matmul);
  return matmul.Sum(partials, groups, plain, spec_.b ? plain + spec_.w.shape.numel() : nullptr);
}

// Computes directly the values of dw that are sums of few products. False: there are too many such
// values. If the input is not stored, it is recomputed for some images at a time, because the first
// images are mostly sufficient.
bool MatmulOp::SumSparseSums(const Pass& pass) {
  if (!sparse_sums_) return true;
  float* dw = PlainGradient(*matmul_);
  sparse_sums_->Begin(dw);
  const std::int64_t step = recomputed_ ? BlockImages(spec_.x.shape) : pass.rows;
  for (std::int64_t image = 0; image < pass.rows; image += step) {
    const Chunk chunk{pass, image, std::min<std::int64_t>(step, pass.rows - image), 0};
    const TensorSpan x = X(chunk, Reads::kBackward), dy = Dy(image, Operand::kDwDy);
    if (!sparse_sums_->Take(x, dy, chunk.images)) break;
  }
  if (sparse_sums_->too_many()) return false;
  sparse_sums_->Store(dw);
  return true;
}

// A sum that is not finite may come from inf in x or dy, which the kernels do not treat as fp32
// does: then all of dw is made once more, and what comes out is what fp32 says.
void MatmulOp::FinishWeightGradient(const Pass& pass, std::int64_t per_group) {
  const std::int64_t groups = BlockCount(chunks(pass.rows), static_cast<int>(per_group));
  const ChunkMatmul* matmul = matmul_.get();
  const bool usable = SumPartials(*matmul, groups) && SumSparseSums(pass);
  if (!usable && on_kernels_) matmul = &AllWeightsInFp32(pass, per_group);
  float* plain = PlainGradient(*matmul);
  StoreWeightGradient(pass, plain);
  if (!spec_.b) return;
  float* db = plain + spec_.w.shape.numel();
  if (spec_.operands[IndexOf(Operand::kDwDy)].rounds || matmul_->whole_batch()) SumBias(pass, db);
  StoreBiasGradient(pass, db);
}

// The sum of dy as it is stored, where the weight gradient has read something else: strips of
// pixels in fp32 (reductions.h), blocks in double in their order.
void MatmulOp::SumBias(const Pass& pass, float* db) {
  const Shape& shape = spec_.y.shape;
  const auto channels = static_cast<std::size_t>(shape.c);
  const std::int64_t blocks = BlockCount(pass.rows, BlockImages(shape));
  std::vector<double> sums(static_cast<std::size_t>(blocks) * channels);
  ForBlocks(context_, shape, pass.rows,
            [&](std::int64_t image, std::int64_t images, std::int64_t block, int worker) {
              auto* wide = reinterpret_cast<float*>(context_.scratch.worker(worker));
              context_.kernels.widen(At(spec_.dy.tensor, image), wide, images * shape.per_image());
              std::vector<float> strip(channels);
              double* total = sums.data() + static_cast<std::size_t>(block) * channels;
              const Strips strips{images * shape.h * shape.w};
              for (std::int64_t i = 0; i < strips.per_image(); ++i) {
                context_.kernels.strip_sums(wide + strips.Begin(i) * shape.c, nullptr,
                                            strips.Size(i), shape.c, strip.data());
                for (std::size_t c = 0; c < channels; ++c)
                  total[c] += static_cast<double>(strip[c]);
              }
            });
  for (std::size_t c = 0; c < channels; ++c) {
    double total = 0;
    for (std::int64_t block = 0; block < blocks; ++block)
      total += sums[static_cast<std::size_t>(block) * channels + c];
    db[c] = static_cast<float>(total);
  }
}

// dw = round(gradient times the factors of its operands / S); of several micro-batches each sum is
// rounded. A part of a sum over processes stays as it is.
void MatmulOp::StoreWeightGradient(const Pass& pass, float* gradient) {
  const Kernels& kernels = context_.kernels;
  const float factor = operands_.FactorOf(Operand::kDwX) * operands_.FactorOf(Operand::kDwDy);
  ForSegments(context_, spec_.w.shape.numel(),
              [&](std::int64_t first, std::int64_t n, std::int64_t segment, int) {
                float* from = gradient + first;
                if (factor != 1)
                  kernels.round(from, factor, {from, Storage::kF32}, n, RoundOnly(kFp32));
                if (spec_.reference && dw_stats_.rounds() && !pass.part)
                  kernels.round(from, 1.0f, {from, Storage::kF32}, n, RoundOnly(spec_.dw_format));
                kernels.unscale(from, *spec_.dy.scale, pass.accumulate || spec_.adds_dw,
                                spec_.dw.f32() + first, n);
                if (!pass.part) RoundWeightGradient(pass, first, n, segment);
              });
  if (!pass.part) dw_stats_.Finish(pass);
}

void MatmulOp::RoundWeightGradient(const Pass& pass, std::int64_t first, std::int64_t n,
                                   std::int64_t segment) {
  dw_stats_.RoundInPlace(context_.kernels, pass, segment, spec_.dw.f32() + first, n);
}

// db is fp32; under `reference` it is rounded where dw is.
void MatmulOp::StoreBiasGradient(const Pass& pass, float* gradient) {
  const bool rounds = spec_.reference && !pass.part;
  const Rounding rounding = RoundOnly(spec_.reference ? spec_.dw_format : kFp32);
  const TensorSpan from{gradient, Storage::kF32}, db{spec_.db.f32(), Storage::kF32};
  const std::int64_t n = spec_.y.shape.c;
  if (rounds) context_.kernels.round(gradient, 1.0f, from, n, rounding);
  context_.kernels.unscale(gradient, *spec_.dy.scale, pass.accumulate, spec_.db.f32(), n);
  if (rounds) context_.kernels.round(spec_.db.f32(), 1.0f, db, n, rounding);
}

// Sums that carry no S any more; under `reference` they are rounded as they carried it, too.
// Called where processes share a batch, when dw and db are their sums (Pass::part).
void MatmulOp::FinishGradients(const Pass& pass) {
  const float scale = *spec_.dy.scale, inverse = 1 / scale;
  const auto as_reference = [&](float* values, std::int64_t n) {
    const TensorSpan out{values, Storage::kF32};
    context_.kernels.round(values, scale, out, n, RoundOnly(spec_.dw_format));
    context_.kernels.round(values, inverse, out, n, RoundOnly(kFp32));
  };
  ForSegments(context_, spec_.w.shape.numel(),
              [&](std::int64_t first, std::int64_t n, std::int64_t segment, int) {
                if (spec_.reference && dw_stats_.rounds()) as_reference(spec_.dw.f32() + first, n);
                RoundWeightGradient(pass, first, n, segment);
              });
  dw_stats_.Finish(pass);
  if (!spec_.b || !spec_.reference) return;
  const TensorSpan db{spec_.db.f32(), Storage::kF32};
  as_reference(spec_.db.f32(), spec_.y.shape.c);
  context_.kernels.round(spec_.db.f32(), 1.0f, db, spec_.y.shape.c, RoundOnly(spec_.dw_format));
}

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

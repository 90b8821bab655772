// From the partial weight gradients of a layer's groups to dw and db: sums in the order of groups,
// PyTorch's order of values, unscaled, rounded where they have a format of their own.
#include "backend/cpu/matmul/matmul_op.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/strips.h"

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
bool MatmulOp::SumFewTerms(const Pass& pass) {
  if (!few_terms_) return true;
  float* dw = PlainGradient(*matmul_);
  few_terms_->Begin(dw);
  const std::int64_t step = recomputed_ ? BlockImages(spec_.x.shape) : pass.rows;
  for (std::int64_t image = 0; image < pass.rows; image += step) {
    const Chunk chunk{pass, image, std::min<std::int64_t>(step, pass.rows - image), 0};
    const TensorSpan x = X(chunk, Reads::kBackward), dy = Dy(image, Operand::kDwDy);
    if (!few_terms_->Take(x, dy, chunk.images)) break;
  }
  if (few_terms_->too_many()) return false;
  few_terms_->Store(dw);
  return true;
}

// A sum that is not finite may come from inf in x or dy, which the kernels do not treat as fp32
// does: then all of dw is made once more, and what comes out is what fp32 says.
void MatmulOp::FinishWeightGradient(const Pass& pass, std::int64_t per_group) {
  const std::int64_t groups = BlockCount(chunks(pass.rows), static_cast<int>(per_group));
  const ChunkMatmul* matmul = matmul_.get();
  const bool usable = SumPartials(*matmul, groups) && SumFewTerms(pass);
  if (!usable && on_kernels_) matmul = &AllWeightsInFp32(pass, per_group);
  float* plain = PlainGradient(*matmul);
  StoreWeightGradient(pass, plain);
  if (!spec_.b) return;
  float* db = plain + spec_.w.shape.numel();
  if (spec_.operands[IndexOf(Operand::kDwDy)].rounds || matmul_->whole_batch()) SumBias(pass, db);
  StoreBiasGradient(pass, db);
}

// The sum of dy as it is stored, where the weight gradient has read something else: strips of
// pixels in fp32 (strips.h), blocks in double in their order.
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

}  // namespace ada::backend::cpu

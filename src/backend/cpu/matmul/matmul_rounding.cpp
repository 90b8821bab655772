// Rounds y and dx block by block, where they are written, and closes their statistics after each
// pass.
#include "backend/cpu/matmul/matmul_rounding.h"

#include "backend/cpu/rounding/blocks.h"
#include "backend/decisions.h"

namespace ada::backend::cpu {

MatmulRounding::MatmulRounding(const Context& context, const MatmulSpec& spec)
    : context_(context),
      spec_(spec),
      block_x_(BlockImages(spec.x.shape)),
      block_y_(BlockImages(spec.y.shape)),
      y_stats_(spec.y, spec.y_style, spec.y_stats),
      dx_stats_(spec.dx),
      tail_(context) {}

void MatmulRounding::RoundY(const Chunk& chunk, const float* y) {
  const std::int64_t per_image = spec_.y.shape.per_image();
  ForBlocksWithin(chunk.images, block_y_, [&](std::int64_t i, std::int64_t images) {
    const std::int64_t block = (chunk.image + i) / block_y_;
    context_.kernels.round(y + i * per_image, 1.0f, At(spec_.y, chunk.image + i),
                           images * per_image, y_stats_.For(chunk.pass, block));
  });
  TakeChannelMoments(chunk);
}

// Moments of the stored y, computed only in training, where a batch norm reads them.
void MatmulRounding::TakeChannelMoments(const Chunk& chunk) {
  if (spec_.y_moments.mean == nullptr || !chunk.pass.training) return;
  const Shape& shape = spec_.y.shape;
  ForBlocksWithin(chunk.images, block_y_, [&](std::int64_t i, std::int64_t images) {
    const std::int64_t block = (chunk.image + i) / block_y_;
    context_.kernels.channel_moments(At(spec_.y, chunk.image + i), images * shape.h * shape.w,
                                     shape.c, spec_.y_moments.mean + block * shape.c,
                                     spec_.y_moments.m2 + block * shape.c);
  });
}

// The tail of exact_range looks at dgrad before alpha.
void MatmulRounding::RoundDx(const Chunk& chunk, const float* dx, float alpha) {
  const std::int64_t per_image = spec_.x.shape.per_image();
  ForBlocksWithin(chunk.images, block_x_, [&](std::int64_t i, std::int64_t images) {
    const std::int64_t block = (chunk.image + i) / block_x_;
    tail_.Add(context_.kernels, dx + i * per_image, images * per_image, chunk.worker);
    context_.kernels.round(dx + i * per_image, alpha, At(spec_.dx.tensor, chunk.image + i),
                           images * per_image, dx_stats_.For(chunk.pass, block));
  });
}

// Whether storing is all of the rounding: to nearest, into the storage of the very format, with no
// counts and no scale. Then a kernel stores from its registers.
bool MatmulRounding::Plain(RoundingStats& stats, const Tensor& tensor, const Pass& pass) {
  const Rounding r = stats.For(pass, 0);
  return !r.count && !r.moments && !r.stochastic && r.scale == 1 &&
         r.format == FormatOf(tensor.storage);
}

// All that a step without counts wants is the largest magnitude.
void MatmulRounding::Measure(RoundingStats& stats, const Shape& shape, int block_images,
                             const Chunk& chunk, const std::uint32_t* largest) {
  if (!stats.wanted()) return;
  ForBlocksWithin(chunk.images, block_images, [&](std::int64_t i, std::int64_t images) {
    const std::int64_t block = (chunk.image + i) / block_images;
    BlockStats measured;
    measured.max_bits = largest[i / block_images];
    measured.values = images * shape.per_image();
    *stats.For(chunk.pass, block).stats = measured;
  });
}

MatmulRounding::Destination MatmulRounding::DestinationOfY(const Chunk& chunk, float* values) {
  if (Plain(y_stats_, spec_.y, chunk.pass))
    return {At(spec_.y, chunk.image), y_factor_, true, false};
  return {{values, Storage::kF32}, y_factor_, false, true};
}
MatmulRounding::Destination MatmulRounding::DestinationOfDx(const Chunk& chunk, float* values,
                                                            float alpha) {
  // Two factors can be combined if the product with alpha is exact.
  const bool one_factor = dx_factor_ == 1 || IsPowerOfTwo(alpha);
  if (one_factor && !tail_.wanted() && Plain(dx_stats_, spec_.dx.tensor, chunk.pass))
    return {At(spec_.dx.tensor, chunk.image), alpha * dx_factor_, true, false};
  // What a tail has added up cannot be taken back where a later block turns out to be unusable.
  return {{values, Storage::kF32}, dx_factor_, false, !tail_.wanted()};
}

void MatmulRounding::CloseY(const Chunk& chunk, const Destination& to,
                            const std::uint32_t* largest) {
  if (!to.plain) return RoundY(chunk, static_cast<const float*>(to.out.data));
  Measure(y_stats_, spec_.y.shape, block_y_, chunk, largest);
  TakeChannelMoments(chunk);
}
void MatmulRounding::CloseDx(const Chunk& chunk, const Destination& to, float alpha,
                             const std::uint32_t* largest) {
  if (!to.plain) return RoundDx(chunk, static_cast<const float*>(to.out.data), alpha);
  Measure(dx_stats_, spec_.x.shape, block_x_, chunk, largest);
}

void MatmulRounding::BeginDx() { tail_.Begin(spec_.dx ? spec_.scaler : nullptr); }
void MatmulRounding::FinishDx(const Pass& pass) {
  dx_stats_.Finish(pass);
  tail_.Finish(spec_.scaler);
}

}  // namespace ada::backend::cpu

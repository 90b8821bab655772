// A chunk, block by block: the kernels and the blocks are those of a batch norm that is stored.
//
//   raw --normalize, round, count, relu--> z (buffer) --> the consumer's product
//   raw, z, dx --mask dx, sum--> sum_dy, sum_dy_xhat of the block
#include "backend/cpu/rounding/recomputed_norm.h"

#include "backend/cpu/rounding/blocks.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

// y's rounding: that of a tensor like z. Only its shape, format and storage are looked at.
Tensor StandIn(const RecomputedNorm& norm) {
  Tensor y = norm.z;
  y.data = norm.raw.data;
  return y;
}

}  // namespace

RecomputedInput::RecomputedInput(const Context& context, const RecomputedNorm& norm)
    : context_(context),
      norm_(norm),
      block_(BlockImages(norm.raw.shape)),
      channels_(norm.raw.shape.c),
      pixels_(norm.raw.shape.h * norm.raw.shape.w),
      y_stats_(StandIn(norm), norm.y_style, norm.y_stats) {
  ADA_CHECK(norm.z.shape == norm.raw.shape);
}

std::size_t RecomputedInput::chunk_bytes(std::int64_t images) const {
  return static_cast<std::size_t>(images * norm_.z.shape.per_image()) * BytesOf(norm_.z.storage);
}

TensorSpan RecomputedInput::Forward(const Pass& pass, std::int64_t image, std::int64_t images,
                                    std::byte* buffer) {
  return Normalize(pass, image, images, buffer, /*counted=*/true);
}

TensorSpan RecomputedInput::Recompute(const Pass& pass, std::int64_t image, std::int64_t images,
                                      std::byte* buffer) {
  return Normalize(pass, image, images, buffer, /*counted=*/false);
}

TensorSpan RecomputedInput::Normalize(const Pass& pass, std::int64_t image, std::int64_t images,
                                      std::byte* buffer, bool counted) {
  ADA_CHECK(image % block_ == 0);
  const TensorSpan z{buffer, norm_.z.storage};
  ForBlocksWithin(images, block_, [&](std::int64_t i, std::int64_t n) {
    BatchNormForwardArgs a;
    a.x = At(norm_.raw, image + i), a.out = Advance(z, i * norm_.z.shape.per_image());
    a.pixels = n * pixels_, a.channels = channels_;
    a.mean = norm_.mean, a.factor = norm_.factor, a.beta = norm_.beta;
    a.relu = norm_.relu;
    a.y = y_stats_.For(pass, (image + i) / block_);
    if (!counted) a.y.stats = nullptr, a.y.bins = nullptr, a.y.count = a.y.moments = false;
    context_.kernels.batch_norm_forward(a);
  });
  return z;
}

void RecomputedInput::FinishForward(const Pass& pass) { y_stats_.Finish(pass); }

void RecomputedInput::TakeSums(std::int64_t image, std::int64_t images, TensorSpan z,
                               TensorSpan dx) const {
  ADA_CHECK(image % block_ == 0 && norm_.sum_dy != nullptr);
  const std::int64_t per_image = norm_.z.shape.per_image();
  ForBlocksWithin(images, block_, [&](std::int64_t i, std::int64_t n) {
    const std::int64_t block = (image + i) / block_;
    BatchNormSumsArgs a;
    a.x = At(norm_.raw, image + i), a.dy = Advance(dx, i * per_image);
    if (norm_.relu) a.out = Advance(z, i * per_image);
    a.pixels = n * pixels_, a.channels = channels_;
    a.mean = norm_.mean, a.inverse = norm_.inverse;
    a.sum_dy = norm_.sum_dy + block * channels_;
    a.sum_dy_xhat = norm_.sum_dy_xhat + block * channels_;
    context_.kernels.batch_norm_sums(a);
  });
}

}  // namespace ada::backend::cpu

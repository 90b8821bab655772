// Batch norm like PyTorch's: biased variance to normalise, unbiased in the running average. Sums
// over pixels are fp32 within a block and double across blocks.
#include "backend/cpu/ops/batch_norm_op.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/ops/blocks.h"
#include "backend/cpu/ops/ops.h"

namespace ada::backend::cpu {

BatchNormOp::BatchNormOp(const Context& context, const BatchNormSpec& spec)
    : context_(context),
      spec_(spec),
      block_(BlockImages(spec.x.shape)),
      channels_(spec.x.shape.c),
      pixels_(spec.x.shape.h * spec.x.shape.w),
      sum_dy_(spec.recomputed.sum_dy),
      sum_dy_xhat_(spec.recomputed.sum_dy_xhat),
      moments_(spec.x_moments) {
  const auto c = static_cast<std::size_t>(channels_);
  const std::int64_t blocks = BlockCount(spec.x.shape.n, block_);
  for (auto* v : {&mean_, &inverse_, &factor_, &mean_dy_, &slope_}) v->resize(c);
  for (auto& v : sums_) v.resize(c);
  Tensor y = spec.out;  // with addend: never stored; recomputed: the consumer's to round
  if (spec.addend) y.format = spec.y_format;
  y_notes_ = RoundingStats(y, spec.y_style, spec.y_stats);
  if (spec.addend) sum_notes_ = RoundingStats(spec.out, spec.sum_style, spec.sum_stats);
  const std::size_t partials = static_cast<std::size_t>(blocks) * c;
  if (!spec.dx && !spec.dgamma) return;  // evaluation
  dx_notes_ = RoundingStats(spec.dx);
  if (!spec.recomputed) {
    own_sum_dy_.resize(partials), own_sum_dy_xhat_.resize(partials);
    sum_dy_ = own_sum_dy_.data(), sum_dy_xhat_ = own_sum_dy_xhat_.data();
  }
  if (moments_.mean == nullptr) {
    own_mean_.resize(partials), own_m2_.resize(partials);
    moments_ = {own_mean_.data(), own_m2_.data()};
  }
}

void BatchNormOp::BatchStatistics(const Pass& pass) {
  const std::int64_t blocks = BlockCount(pass.rows, block_);
  if (!own_mean_.empty()) {
    context_.pool.For(blocks, [&](std::int64_t block, int) {
      const std::int64_t image = block * block_,
                         images = std::min<std::int64_t>(block_, pass.rows - image);
      context_.kernels.channel_moments(At(spec_.x, image), images * pixels_, channels_,
                                       own_mean_.data() + block * channels_,
                                       own_m2_.data() + block * channels_);
    });
  }
  const double count = static_cast<double>(pass.rows) * static_cast<double>(pixels_);
  MergeBlocks(pass, count);
  for (std::int64_t c = 0; c < channels_; ++c) {
    const double mean = sums_[0][static_cast<std::size_t>(c)],
                 m2 = sums_[1][static_cast<std::size_t>(c)];
    const auto i = static_cast<std::size_t>(c);
    mean_[i] = static_cast<float>(mean);
    inverse_[i] = static_cast<float>(1 / std::sqrt(m2 / count + static_cast<double>(spec_.eps)));
    // Statistics that are not finite belong to a step that is skipped: they must not outlive it.
    if (!std::isfinite(mean) || !std::isfinite(m2)) continue;
    const double m = static_cast<double>(spec_.momentum);
    float& running_mean = spec_.running_mean.f32()[c];
    float& running_var = spec_.running_var.f32()[c];
    running_mean = static_cast<float>((1 - m) * static_cast<double>(running_mean) + m * mean);
    running_var = static_cast<float>((1 - m) * static_cast<double>(running_var) +
                                     m * m2 / std::max(count - 1, 1.0));
  }
}

// Block by block over all channels: each channel's own chain of additions leaves room for the
// others.
void BatchNormOp::MergeBlocks(const Pass& pass, double count) {
  const std::int64_t blocks = BlockCount(pass.rows, block_);
  const auto pixels_of = [&](std::int64_t block) {
    return static_cast<double>(std::min<std::int64_t>(block_, pass.rows - block * block_) *
                               pixels_);
  };
  double *mean = sums_[0].data(), *m2 = sums_[1].data();
  for (auto& v : sums_) std::fill(v.begin(), v.end(), 0.0);
  for (std::int64_t b = 0; b < blocks; ++b)
    for (std::int64_t c = 0; c < channels_; ++c)
      mean[c] += pixels_of(b) * static_cast<double>(moments_.mean[b * channels_ + c]);
  for (std::int64_t c = 0; c < channels_; ++c) mean[c] /= count;
  for (std::int64_t b = 0; b < blocks; ++b)
    for (std::int64_t c = 0; c < channels_; ++c) {
      const double d = static_cast<double>(moments_.mean[b * channels_ + c]) - mean[c];
      m2[c] += static_cast<double>(moments_.m2[b * channels_ + c]) + pixels_of(b) * d * d;
    }
}

void BatchNormOp::RunningStatistics() {
  for (std::int64_t c = 0; c < channels_; ++c) {
    const auto i = static_cast<std::size_t>(c);
    mean_[i] = spec_.running_mean.f32()[c];
    inverse_[i] = static_cast<float>(1 / std::sqrt(static_cast<double>(spec_.running_var.f32()[c]) +
                                                   static_cast<double>(spec_.eps)));
  }
}

void BatchNormOp::Forward(const Pass& pass) {
  if (pass.training)
    BatchStatistics(pass);
  else
    RunningStatistics();
  for (std::size_t i = 0; i < factor_.size(); ++i) factor_[i] = spec_.gamma.f32()[i] * inverse_[i];
  if (spec_.recomputed)
    PassToConsumer();
  else
    Normalise(pass);
}

void BatchNormOp::PassToConsumer() const {
  std::copy(mean_.begin(), mean_.end(), spec_.recomputed.mean);
  std::copy(inverse_.begin(), inverse_.end(), spec_.recomputed.inverse);
  std::copy(factor_.begin(), factor_.end(), spec_.recomputed.factor);
}

void BatchNormOp::Normalise(const Pass& pass) {
  const std::int64_t blocks = BlockCount(pass.rows, block_);
  context_.pool.For(blocks, [&](std::int64_t block, int) {
    const std::int64_t image = block * block_,
                       images = std::min<std::int64_t>(block_, pass.rows - image);
    BatchNormForwardArgs a;
    a.x = At(spec_.x, image), a.out = At(spec_.out, image);
    if (spec_.addend) a.addend = At(spec_.addend, image);
    a.pixels = images * pixels_, a.channels = channels_;
    a.mean = mean_.data(), a.factor = factor_.data(), a.beta = spec_.beta.f32();
    a.relu = spec_.relu;
    a.y = y_notes_.For(pass, block);
    a.sum = sum_notes_.For(pass, block);
    context_.kernels.batch_norm_forward(a);
  });
  y_notes_.Finish(pass);
  sum_notes_.Finish(pass);
}

void BatchNormOp::TakeSums(const Pass& pass) {
  const std::int64_t blocks = BlockCount(pass.rows, block_);
  context_.pool.For(blocks, [&](std::int64_t block, int) {
    const std::int64_t image = block * block_,
                       images = std::min<std::int64_t>(block_, pass.rows - image);
    BatchNormSumsArgs a;
    a.x = At(spec_.x, image), a.dy = At(spec_.dy.tensor, image);
    if (spec_.relu) a.out = At(spec_.out, image);
    a.pixels = images * pixels_, a.channels = channels_;
    a.mean = mean_.data(), a.inverse = inverse_.data();
    a.sum_dy = sum_dy_ + block * channels_;
    a.sum_dy_xhat = sum_dy_xhat_ + block * channels_;
    context_.kernels.batch_norm_sums(a);
  });
}

void BatchNormOp::ReduceGradient(const Pass& pass) {
  const std::int64_t blocks = BlockCount(pass.rows, block_);
  const double count = static_cast<double>(pass.rows) * static_cast<double>(pixels_);
  const float scale = *spec_.dy.scale;
  for (auto& v : sums_) std::fill(v.begin(), v.end(), 0.0);
  for (std::int64_t b = 0; b < blocks; ++b)
    for (std::int64_t c = 0; c < channels_; ++c) {
      sums_[0][static_cast<std::size_t>(c)] += static_cast<double>(sum_dy_[b * channels_ + c]);
      sums_[1][static_cast<std::size_t>(c)] += static_cast<double>(sum_dy_xhat_[b * channels_ + c]);
    }
  for (std::int64_t c = 0; c < channels_; ++c) {
    const double dy = sums_[0][static_cast<std::size_t>(c)],
                 dy_xhat = sums_[1][static_cast<std::size_t>(c)];
    const auto i = static_cast<std::size_t>(c);
    mean_dy_[i] = static_cast<float>(dy / count);
    slope_[i] = static_cast<float>(dy_xhat / count) * inverse_[i];
    const float dbeta = static_cast<float>(dy) / scale,
                dgamma = static_cast<float>(dy_xhat) / scale;
    spec_.dbeta.f32()[c] = pass.accumulate ? spec_.dbeta.f32()[c] + dbeta : dbeta;
    spec_.dgamma.f32()[c] = pass.accumulate ? spec_.dgamma.f32()[c] + dgamma : dgamma;
  }
}

void BatchNormOp::Backward(const Pass& pass) {
  if (!spec_.recomputed) TakeSums(pass);
  ReduceGradient(pass);
  if (!spec_.dx) return;
  *spec_.dx.scale = *spec_.dy.scale;
  const std::int64_t blocks = BlockCount(pass.rows, block_);
  context_.pool.For(blocks, [&](std::int64_t block, int) {
    const std::int64_t image = block * block_,
                       images = std::min<std::int64_t>(block_, pass.rows - image);
    BatchNormBackwardArgs a;
    a.x = At(spec_.x, image), a.dy = At(spec_.dy.tensor, image), a.dx = At(spec_.dx.tensor, image);
    a.pixels = images * pixels_, a.channels = channels_;
    a.mean = mean_.data(), a.factor = factor_.data();
    a.mean_dy = mean_dy_.data(), a.slope = slope_.data();
    a.dx_rounding = dx_notes_.For(pass, block);
    context_.kernels.batch_norm_backward(a);
  });
  dx_notes_.Finish(pass);
}

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const BatchNormSpec& s) {
  return std::make_unique<BatchNormOp>(c, s);
}

}  // namespace ada::backend::cpu

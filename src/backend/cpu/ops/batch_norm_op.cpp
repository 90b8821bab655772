// Batch norm like PyTorch's, alone or with the residual sum and the relu after it; or recomputed:
// then it takes statistics only, and its consumer does what goes over its values
// (recomputed_norm.h). Sums over pixels are fp32 within a block and double across blocks.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/ops/batch_norm_rule.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/decisions.h"
#include "backend/formulas.h"

namespace ada::backend::cpu {
namespace {

// The op of a BatchNormSpec. Backward goes with the last Forward: it reads the mean, the deviation
// and the factors that this one left, and x and out as they are stored.
class BatchNormOp final : public Op {
 public:
  BatchNormOp(const Context& context, const BatchNormSpec& spec);
  void Forward(const Pass& pass) override;
  void Backward(const Pass& pass) override;

 private:
  void BatchStatistics(const Pass& pass);  // mean_, inverse_ of the batch; running averages move
  void MergeBlocks(const Pass& pass, double count);  // into sums_: mean, sum of squared deviations
  double JoinMoments(double count);                  // sums_ of all processes; returns their count
  double JoinGradients(double count);                // the same of gradients
  void RunningStatistics();                          // mean_, inverse_ of the running averages
  void HandOver() const;                             // mean_, inverse_, factor_ to the consumer
  void Normalize(const Pass& pass);                  // out
  void TakeSums(const Pass& pass);                   // sum_dy_, sum_dy_xhat_; masks dy
  void ReduceGradient(const Pass& pass);             // dgamma, dbeta, mean_dy_, slope_

  Context context_;
  BatchNormSpec spec_;
  int block_;
  std::int64_t channels_, pixels_;  // pixels of one image
  std::vector<float> mean_, inverse_, factor_, mean_dy_, slope_;
  std::vector<double> sums_[2];                      // by channel, over blocks
  std::vector<float> own_mean_, own_m2_;             // [blocks, c], where no convolution wrote them
  std::vector<float> own_sum_dy_, own_sum_dy_xhat_;  // [blocks, c], where no consumer writes them
  float *sum_dy_ = nullptr, *sum_dy_xhat_ = nullptr;
  ChannelMoments moments_;
  RoundingStats y_stats_, sum_stats_, dx_stats_;
  std::optional<BatchNormRule> rule_;  // none: alpha is 1
};

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
  // Where it is recomputed, the consumer rounds it.
  y_stats_ = RoundingStats(NormalizedTensorOf(spec), spec.y_style, spec.y_stats);
  if (spec.addend) sum_stats_ = RoundingStats(spec.out, spec.sum_style, spec.sum_stats);
  const std::size_t partials = static_cast<std::size_t>(blocks) * c;
  if (!spec.dx && !spec.dgamma) return;  // evaluation
  dx_stats_ = RoundingStats(spec.dx);
  if (spec.dx && spec.scaler != nullptr) rule_.emplace(context, spec);
  // A recomputed norm's consumer masks dy and writes the sums while it makes dy; the memory of the
  // sums is the graph's then.
  if (!spec.recomputed) {
    own_sum_dy_.resize(partials), own_sum_dy_xhat_.resize(partials);
    sum_dy_ = own_sum_dy_.data(), sum_dy_xhat_ = own_sum_dy_xhat_.data();
  }
  // Without x_moments no convolution before this op measures what it writes, and the op reads x
  // once more.
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
  // The count is that of this process. Under parallel.sync_batch_norm JoinMoments makes it that of
  // all, and running averages move by the moments of all.
  double count = static_cast<double>(pass.rows) * static_cast<double>(pixels_);
  MergeBlocks(pass, count);
  if (IsShared(context_.shared.norms)) count = JoinMoments(count);
  for (std::int64_t c = 0; c < channels_; ++c) {
    const double mean = sums_[0][static_cast<std::size_t>(c)],
                 m2 = sums_[1][static_cast<std::size_t>(c)];
    const auto i = static_cast<std::size_t>(c);
    mean_[i] = static_cast<float>(mean);
    inverse_[i] = InverseDeviation(m2 / count, static_cast<double>(spec_.eps));
    MoveRunning(static_cast<double>(spec_.momentum), mean, m2, count, spec_.running_mean.f32()[c],
                spec_.running_var.f32()[c]);
  }
}

// Block by block over all channels: each channel's own chain of additions leaves room for the
// others.
// Deviations of a block are about the block's own mean, and are moved to the mean of all by pixels
// * d^2 (Chan, Golub and LeVeque 1979): no difference of large sums is taken.
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

// Parts in the order of processes, as blocks are merged.
// A message has the count, then the means, then the squared deviations of all channels.
double BatchNormOp::JoinMoments(double count) {
  const auto channels = static_cast<std::size_t>(channels_);
  std::vector<double> mine = {count};
  for (const auto& v : sums_) mine.insert(mine.end(), v.begin(), v.end());
  const std::vector<double> all = GatherAll(*context_.shared.norms, mine);
  double total = 0;
  for (std::size_t at = 0; at < all.size(); at += mine.size()) total += all[at];
  for (auto& v : sums_) std::fill(v.begin(), v.end(), 0.0);
  for (std::size_t at = 0; at < all.size(); at += mine.size())
    for (std::size_t c = 0; c < channels; ++c) sums_[0][c] += all[at] * all[at + 1 + c];
  for (double& mean : sums_[0]) mean /= total;
  for (std::size_t at = 0; at < all.size(); at += mine.size())
    for (std::size_t c = 0; c < channels; ++c) {
      const double d = all[at + 1 + c] - sums_[0][c];
      sums_[1][c] += all[at + 1 + channels + c] + all[at] * d * d;
    }
  return total;
}

// Sums of dy and dy * xhat need no correction, so that parts are added as they are. Returns the
// number of values of a channel in all processes.
double BatchNormOp::JoinGradients(double count) {
  const auto channels = static_cast<std::size_t>(channels_);
  std::vector<double> mine = {count};
  for (const auto& v : sums_) mine.insert(mine.end(), v.begin(), v.end());
  const std::vector<double> all = GatherAll(*context_.shared.norms, mine);
  double total = 0;
  for (auto& v : sums_) std::fill(v.begin(), v.end(), 0.0);
  for (std::size_t at = 0; at < all.size(); at += mine.size()) {
    total += all[at];
    for (std::size_t c = 0; c < channels; ++c) {
      sums_[0][c] += all[at + 1 + c];
      sums_[1][c] += all[at + 1 + channels + c];
    }
  }
  return total;
}

void BatchNormOp::RunningStatistics() {
  for (std::int64_t c = 0; c < channels_; ++c) {
    const auto i = static_cast<std::size_t>(c);
    mean_[i] = spec_.running_mean.f32()[c];
    inverse_[i] = InverseDeviation(static_cast<double>(spec_.running_var.f32()[c]),
                                   static_cast<double>(spec_.eps));
  }
}

// factor = gamma / sqrt(var + eps) is computed once for a pass, and Backward reads it again: gamma
// must not change in between.
void BatchNormOp::Forward(const Pass& pass) {
  if (pass.training)
    BatchStatistics(pass);
  else
    RunningStatistics();
  for (std::size_t i = 0; i < factor_.size(); ++i) factor_[i] = spec_.gamma.f32()[i] * inverse_[i];
  if (spec_.recomputed)
    HandOver();
  else
    Normalize(pass);
}

void BatchNormOp::HandOver() const {
  std::copy(mean_.begin(), mean_.end(), spec_.recomputed.mean);
  std::copy(inverse_.begin(), inverse_.end(), spec_.recomputed.inverse);
  std::copy(factor_.begin(), factor_.end(), spec_.recomputed.factor);
}

void BatchNormOp::Normalize(const Pass& pass) {
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
    // With an addend there are two roundings: of the normalized values, which nobody stores, and of
    // the sum.
    a.y = y_stats_.For(pass, block);
    a.sum = sum_stats_.For(pass, block);
    context_.kernels.batch_norm_forward(a);
  });
  y_stats_.Finish(pass);
  sum_stats_.Finish(pass);
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

// Sums over blocks in double, in the order of blocks; what dx subtracts is rounded to fp32 once.
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
  const auto gradient_of = [&](std::size_t i, double values) {
    return ChannelGradientOf(sums_[0][i], sums_[1][i], values, inverse_[i], scale);
  };
  for (std::int64_t c = 0; c < channels_; ++c) {
    const auto i = static_cast<std::size_t>(c);
    const ChannelGradient g = gradient_of(i, count);
    mean_dy_[i] = g.mean_dy, slope_[i] = g.slope;
    spec_.dbeta.f32()[c] = pass.accumulate ? spec_.dbeta.f32()[c] + g.dbeta : g.dbeta;
    spec_.dgamma.f32()[c] = pass.accumulate ? spec_.dgamma.f32()[c] + g.dgamma : g.dgamma;
  }
  // dgamma and dbeta are this process's part, as all gradients of parameters are.
  if (!IsShared(context_.shared.norms)) return;
  const double of_all = JoinGradients(count);
  for (std::size_t i = 0; i < mean_dy_.size(); ++i) {
    const ChannelGradient g = gradient_of(i, of_all);
    mean_dy_[i] = g.mean_dy, slope_[i] = g.slope;
  }
}

void BatchNormOp::Backward(const Pass& pass) {
  if (!spec_.recomputed) TakeSums(pass);
  ReduceGradient(pass);
  if (!spec_.dx) return;
  const float* factor = factor_.data();
  if (rule_)
    factor = rule_->Decide(pass, factor_);
  else
    *spec_.dx.scale = *spec_.dy.scale;
  const std::int64_t blocks = BlockCount(pass.rows, block_);
  context_.pool.For(blocks, [&](std::int64_t block, int worker) {
    const std::int64_t image = block * block_,
                       images = std::min<std::int64_t>(block_, pass.rows - image);
    BatchNormBackwardArgs a;
    a.x = At(spec_.x, image), a.dy = At(spec_.dy.tensor, image), a.dx = At(spec_.dx.tensor, image);
    a.pixels = images * pixels_, a.channels = channels_;
    a.mean = mean_.data(), a.factor = factor_.data();
    a.mean_dy = mean_dy_.data(), a.slope = slope_.data();
    // exact_range looks at dx before alpha, so the kernel runs twice for a block: with the plain
    // factors, into the worker's memory, and then with those times alpha. dx may lie where dy lies,
    // so that the observation comes first.
    if (rule_) rule_->Observe(a, worker);
    a.factor = factor;
    a.dx_rounding = dx_stats_.For(pass, block);
    context_.kernels.batch_norm_backward(a);
  });
  dx_stats_.Finish(pass);
  if (rule_) rule_->Finish();
}

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const BatchNormSpec& s) {
  return std::make_unique<BatchNormOp>(c, s);
}

}  // namespace ada::backend::cpu

// Statistics, normalized values and gradients; see batch_norm_bounds.h.
#include "backend/compare/batch_norm_bounds.h"

#include <algorithm>

namespace ada::backend::compare {

double BatchNormOperands::pixels() const {
  return static_cast<double>(pass_.rows * spec_.x.shape.h * spec_.x.shape.w);
}

void BatchNormOperands::Begin(const Pass& pass, bool backward) {
  pass_ = pass, backward_ = backward;
  const auto all = [&](const Tensor& t) {
    return t ? addresses_.Values(0, t, t.shape.n) : Values();
  };
  if (!backward) {
    running_mean_ = all(spec_.running_mean), running_var_ = all(spec_.running_var);
    return;
  }
  dy_ = addresses_.Values(0, spec_.dy.tensor, pass.rows);
  dgamma_ = all(spec_.dgamma), dbeta_ = all(spec_.dbeta);
}

void BatchNormOperands::Finish(double slack) {
  slack_ = slack;
  x_ = addresses_.Values(0, spec_.x, pass_.rows);
  addend_ = spec_.addend ? addresses_.Values(0, spec_.addend, pass_.rows) : Values();
  channels_.assign(static_cast<std::size_t>(spec_.x.shape.c), {});
  TakeStatistics();
  if (!backward_) return;
  scale_ = Wide(addresses_.Read(0, spec_.dy.scale));
  if (spec_.relu) MaskGradient();
  SumGradients();
}

void BatchNormOperands::TakeStatistics() {
  const Values gamma = addresses_.Values(0, spec_.gamma, spec_.gamma.shape.n),
               beta = addresses_.Values(0, spec_.beta, spec_.beta.shape.n);
  const double n = pixels();
  const auto at = [&](std::size_t i) -> Channel& { return channels_[i % channels_.size()]; };
  for (std::size_t i = 0; i < x_.size(); ++i)
    at(i).mean += Wide(x_[i]) / n, at(i).mean_abs += std::fabs(Wide(x_[i])) / n;
  for (std::size_t i = 0; i < x_.size(); ++i)
    at(i).variance += (Wide(x_[i]) - at(i).mean) * (Wide(x_[i]) - at(i).mean) / n;
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    Channel& channel = channels_[c];
    if (!pass_.training)
      channel.mean = Wide(running_mean_[c]), channel.variance = Wide(running_var_[c]);
    channel.inverse = 1 / std::sqrt(channel.variance + Wide(spec_.eps));
    channel.gamma = Wide(gamma[c]), channel.beta = Wide(beta[c]);
  }
}

void BatchNormOperands::MaskGradient() {
  const Values out = addresses_.Values(0, spec_.out, pass_.rows);
  for (std::size_t i = 0; i < dy_.size(); ++i)
    if (!(out[i] > 0)) dy_[i] = 0;
}

void BatchNormOperands::SumGradients() {
  for (std::size_t i = 0; i < dy_.size(); ++i) {
    Channel& channel = channels_[i % channels_.size()];
    const double g = Wide(dy_[i]);
    const auto at = static_cast<std::int64_t>(i);
    channel.sum_dy += g, channel.sum_abs_dy += std::fabs(g);
    channel.sum_dy_xhat += g * Xhat(at), channel.sum_abs_dy_xhat += std::fabs(g) * AbsXhat(at);
  }
}

Interval BatchNormOperands::Y(std::int64_t i) const {
  const Channel& c = At(i);
  const double factor = c.gamma * c.inverse;
  return Around(
      {(X(i) - c.mean) * factor + c.beta,
       (std::fabs(X(i)) + c.mean_abs + std::fabs(c.mean)) * std::fabs(factor) + std::fabs(c.beta),
       4},
      slack_);
}

Interval BatchNormOperands::Dx(std::int64_t i) const {
  const Channel& c = At(i);
  const double g = Wide(dy_[static_cast<std::size_t>(i)]), n = pixels(),
               factor = c.gamma * c.inverse;
  return Around(
      {(g - c.sum_dy / n - Xhat(i) * c.sum_dy_xhat / n) * factor,
       (std::fabs(g) + c.sum_abs_dy / n + AbsXhat(i) * c.sum_abs_dy_xhat / n) * std::fabs(factor),
       static_cast<std::int64_t>(n)},
      slack_);
}

Interval BatchNormOperands::Unscaled(double sum, double magnitude, const Values& before,
                                     std::int64_t c) const {
  const Interval in =
      Times(Around({sum, magnitude, static_cast<std::int64_t>(pixels())}, slack_), 1 / scale_);
  return pass_.accumulate ? Plus(in, Wide(before[static_cast<std::size_t>(c)])) : in;
}
Interval BatchNormOperands::Dgamma(std::int64_t c) const {
  return Unscaled(At(c).sum_dy_xhat, At(c).sum_abs_dy_xhat, dgamma_, c);
}
Interval BatchNormOperands::Dbeta(std::int64_t c) const {
  return Unscaled(At(c).sum_dy, At(c).sum_abs_dy, dbeta_, c);
}

Interval BatchNormOperands::RunningMean(std::int64_t c) const {
  const double m = Wide(spec_.momentum), old = Wide(running_mean_[static_cast<std::size_t>(c)]);
  return Around({(1 - m) * old + m * At(c).mean, (1 - m) * std::fabs(old) + m * At(c).mean_abs,
                 static_cast<std::int64_t>(pixels())},
                slack_);
}
Interval BatchNormOperands::RunningVar(std::int64_t c) const {
  const double m = Wide(spec_.momentum), old = Wide(running_var_[static_cast<std::size_t>(c)]),
               n = pixels(), variance = At(c).variance * n / std::max(n - 1, 1.0);
  // Squares of deviations from a mean that is itself rounded.
  const double more = At(c).mean_abs * At(c).mean_abs * 0x1p-24;
  return Around({(1 - m) * old + m * variance, (1 - m) * std::fabs(old) + m * (variance + more),
                 static_cast<std::int64_t>(n)},
                slack_);
}

}  // namespace ada::backend::compare

// See attention_bounds.h.
#include "backend/compare/attention_bounds.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"

namespace ada::backend::compare {
namespace {

std::size_t Index(std::int64_t i) { return static_cast<std::size_t>(i); }
std::int64_t PositionsOf(const Tensor& tensor) { return tensor.shape.h * tensor.shape.w; }

// What a backend's exponentials and quotients are off, relative.
constexpr double kFormula = 2e-6;

}  // namespace

AttentionOperands::AttentionOperands(const AddressMap& addresses, const AttentionSpec& spec)
    : addresses_(addresses),
      spec_(spec),
      heads_(spec.heads),
      kv_heads_(spec.kv_heads),
      group_(heads_ / kv_heads_),
      width_(spec.y.shape.c / spec.heads),
      queries_(PositionsOf(spec.x[0])),
      keys_(PositionsOf(spec.x[spec.fused() ? 0 : 1])),
      factor_(1 / std::sqrt(static_cast<double>(width_))) {}

void AttentionOperands::Begin(const Pass& pass, double slack) {
  pass_ = pass, slack_ = slack;
  x_.clear(), dy_.clear();
  p_.clear(), rounded_p_.clear(), ds_.clear(), rounded_ds_.clear();
  alphas_[0] = alphas_[1] = 1;
}

Tensor AttentionOperands::Scores(const NumberFormat& format) const {
  Tensor tensor;
  tensor.shape = {spec_.y.shape.n, heads_, queries_, keys_};
  tensor.format = format;
  return tensor;
}

// --- Operands ---

double AttentionOperands::Q(std::int64_t image, std::int64_t t, std::int64_t head,
                            std::int64_t c) const {
  return Wide(x_[0][Index((image * queries_ + t) * spec_.x[0].shape.c + head * width_ + c)]);
}
double AttentionOperands::K(int part, std::int64_t image, std::int64_t t, std::int64_t head,
                            std::int64_t c) const {
  const std::size_t tensor = spec_.fused() ? 0 : static_cast<std::size_t>(part);
  const std::int64_t first = spec_.fused() ? (heads_ + (part == 2 ? kv_heads_ : 0)) * width_ : 0;
  const std::int64_t place = (image * keys_ + t) * spec_.x[tensor].shape.c;
  return Wide(x_[tensor][Index(place + first + head / group_ * width_ + c)]);
}
double AttentionOperands::Dy(std::int64_t image, std::int64_t t, std::int64_t head,
                             std::int64_t c) const {
  return Wide(dy_[Index((image * queries_ + t) * spec_.y.shape.c + head * width_ + c)]);
}
double AttentionOperands::Kept(std::int64_t score) const {
  if (!(spec_.dropout > 0) || !pass_.training) return 1;
  const std::int64_t each = heads_ * queries_ * keys_;
  const auto i = static_cast<std::uint64_t>(pass_.first_row * each + score);
  const std::uint32_t word = Philox(pass_.seed ^ spec_.stream, pass_.draw, i / 4)[i % 4];
  return UniformFloat(word) >= spec_.dropout ? Wide(1.0f / (1.0f - spec_.dropout)) : 0;
}

Rounder AttentionOperands::RounderOf(bool rounds, const NumberFormat& format,
                                     const RoundingStyle& style) const {
  if (!rounds) return {kFp32, {}, 1, pass_};
  const scaling::TensorScaler* own = style.per_tensor_scale;
  return {format, style, own == nullptr ? 1 : addresses_.Read(0, &own->scale), pass_};
}
AttentionOperands::Near AttentionOperands::Rounded(const Interval& in, const Rounder& rounder,
                                                   std::int64_t i) const {
  if (!in.finite()) return {0, INFINITY};
  const Range range = StoredRange(rounder, in, i);
  const double low = Wide(range.low), high = Wide(range.high);
  return {(low + high) / 2, (high - low) / 2};
}

// --- Scores ---

void AttentionOperands::TakeProbabilities() const {
  if (!p_.empty()) return;
  for (const Tensor& x : spec_.x) x_.push_back(addresses_.Values(0, x, pass_.rows));
  p_.resize(Index(scores(pass_))), rounded_p_.resize(p_.size());
  for (std::int64_t image = 0; image < pass_.rows; ++image)
    for (std::int64_t head = 0; head < heads_; ++head)
      for (std::int64_t query = 0; query < queries_; ++query) TakeRow(image, head, query);
}

void AttentionOperands::TakeRow(std::int64_t image, std::int64_t head, std::int64_t query) const {
  const std::int64_t seen = spec_.causal ? std::min(query + 1, keys_) : keys_;
  std::vector<Near> s(Index(seen));
  double top = -INFINITY, worst = 0, total = 0;
  for (std::int64_t key = 0; key < seen; ++key) {
    Sum sum;
    for (std::int64_t c = 0; c < width_; ++c)
      sum.Add(Q(image, query, head, c) * K(1, image, key, head, c));
    const Interval in = Times(Around(sum, slack_), factor_);
    s[Index(key)] = {(in.low + in.high) / 2, in.width() / 2};
    top = std::max(top, s[Index(key)].value), worst = std::max(worst, s[Index(key)].error);
  }
  for (const Near& one : s) total += std::exp(one.value - top);
  const Rounder rounder = RounderOf(spec_.rounds_p, spec_.p_format, spec_.p_style);
  for (std::int64_t key = 0; key < seen; ++key) {
    const std::int64_t i = ScoreOf(image, head, query, key);
    const Near& score = s[Index(key)];
    const double p = std::exp(score.value - top) / total;
    const double apart = std::expm1(score.error + worst) + kFormula;
    p_[Index(i)] = std::isfinite(p * apart) ? Near{p, p * apart + 0x1p-149} : Near{0, INFINITY};
    rounded_p_[Index(i)] = Rounded(P(i), rounder, i);
  }
}

void AttentionOperands::TakeGradients() const {
  TakeProbabilities();
  if (!ds_.empty()) return;
  dy_ = addresses_.Values(0, spec_.dy.tensor, pass_.rows);
  ds_.resize(p_.size()), rounded_ds_.resize(p_.size());
  for (std::int64_t image = 0; image < pass_.rows; ++image)
    for (std::int64_t head = 0; head < heads_; ++head)
      for (std::int64_t query = 0; query < queries_; ++query) TakeGradientRow(image, head, query);
}

void AttentionOperands::TakeGradientRow(std::int64_t image, std::int64_t head,
                                        std::int64_t query) const {
  const std::int64_t seen = spec_.causal ? std::min(query + 1, keys_) : keys_;
  std::vector<Near> dp(Index(seen));
  Near slope;
  for (std::int64_t key = 0; key < seen; ++key) {
    const std::int64_t i = ScoreOf(image, head, query, key);
    Sum sum;
    for (std::int64_t c = 0; c < width_; ++c)
      sum.Add(Dy(image, query, head, c) * K(2, image, key, head, c));
    const Interval in = Times(Around(sum, slack_), Kept(i));
    dp[Index(key)] = {(in.low + in.high) / 2, in.width() / 2};
    const Near &p = p_[Index(i)], &d = dp[Index(key)];
    slope.value += p.value * d.value;
    slope.error += (p.value + p.error) * d.error + p.error * std::fabs(d.value);
  }
  const Rounder rounder = RounderOf(spec_.rounds_ds, spec_.ds_format, spec_.ds_style);
  for (std::int64_t key = 0; key < seen; ++key) {
    const std::int64_t i = ScoreOf(image, head, query, key);
    const Near &p = p_[Index(i)], &d = dp[Index(key)];
    const double apart = std::fabs(d.value - slope.value),
                 value = p.value * (d.value - slope.value);
    const double error = (p.value + p.error) * (d.error + slope.error) + p.error * apart;
    ds_[Index(i)] = std::isfinite(error)
                        ? Near{value, error + 0x1p-22 * std::fabs(value) + 0x1p-149}
                        : Near{0, INFINITY};
    const Interval in = ds_[Index(i)].interval();
    const Interval a = Times(in, alphas_[0]), b = Times(in, alphas_[1]);
    rounded_ds_[Index(i)] = Rounded({std::min(a.low, b.low), std::max(a.high, b.high)}, rounder, i);
  }
}

// --- Results ---

AttentionOperands::Place AttentionOperands::PlaceOf(std::int64_t i, std::int64_t heads,
                                                    std::int64_t positions) const {
  const std::int64_t row = i / width_, place = row / heads;
  return {place / positions, place % positions, row % heads, i % width_};
}
Interval AttentionOperands::Over(const NearSum& sum, double factor) const {
  const Interval in = Around(sum.sum, slack_);
  return Times({in.low - sum.error, in.high + sum.error}, factor);
}

Interval AttentionOperands::P(std::int64_t i) const {
  TakeProbabilities();
  return Times(p_[Index(i)].interval(), Kept(i));
}
Interval AttentionOperands::Ds(std::int64_t i) const {
  TakeGradients();
  return ds_[Index(i)].interval();
}
Interval AttentionOperands::Y(std::int64_t i) const {
  TakeProbabilities();
  const Place at = PlaceOf(i, heads_, queries_);
  NearSum sum;
  for (std::int64_t key = 0; key < keys_; ++key)
    sum.Add(rounded_p_[Index(ScoreOf(at.image, at.head, at.position, key))],
            K(2, at.image, key, at.head, at.channel));
  return Over(sum, 1);
}
Interval AttentionOperands::Dq(std::int64_t i) const {
  TakeGradients();
  const Place at = PlaceOf(i, heads_, queries_);
  NearSum sum;
  for (std::int64_t key = 0; key < keys_; ++key)
    sum.Add(rounded_ds_[Index(ScoreOf(at.image, at.head, at.position, key))],
            K(1, at.image, key, at.head, at.channel));
  return Over(sum, factor_);
}
Interval AttentionOperands::Dk(std::int64_t i) const {
  TakeGradients();
  const Place at = PlaceOf(i, kv_heads_, keys_);
  NearSum sum;
  for (std::int64_t head = at.head * group_; head < (at.head + 1) * group_; ++head)
    for (std::int64_t query = 0; query < queries_; ++query)
      sum.Add(rounded_ds_[Index(ScoreOf(at.image, head, query, at.position))],
              Q(at.image, query, head, at.channel));
  return Over(sum, factor_);
}
Interval AttentionOperands::Dv(std::int64_t i) const {
  TakeGradients();
  const Place at = PlaceOf(i, kv_heads_, keys_);
  NearSum sum;
  for (std::int64_t head = at.head * group_; head < (at.head + 1) * group_; ++head)
    for (std::int64_t query = 0; query < queries_; ++query)
      sum.Add(rounded_p_[Index(ScoreOf(at.image, head, query, at.position))],
              Dy(at.image, query, head, at.channel));
  return Over(sum, 1);
}

}  // namespace ada::backend::compare

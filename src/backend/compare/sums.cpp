// The lengths of sums whose order is free, and their scales where terms may cancel.
#include "backend/compare/checker.h"

namespace ada::backend::compare {
namespace {

double PlacesOf(const Tensor& tensor) { return AsDouble(tensor.shape.h * tensor.shape.w); }
bool IsFp8(NumberFormat format) {
  format.saturate = false;
  return format == kFp8E4M3 || format == kFp8E5M2;
}
// The error that terms rounded to the other neighbor add to a sum.
double OfTerms(bool rounds, const NumberFormat& format) {
  return rounds ? std::ldexp(1.0, -format.mantissa_bits) : 0;
}
// The root of the mean square of finite values; of a gradient without its S.
double Rms(const Comparison& all, const Tensor& tensor, std::int64_t images) {
  double sum = 0;
  const std::vector<float> values = all.memory.Values(0, tensor, images);
  for (const float x : values) sum += std::isfinite(x) ? AsDouble(x) * AsDouble(x) : 0;
  return std::sqrt(sum / std::max(1.0, AsDouble(values.size())));
}
double Unscaled(const Comparison& all, const Gradient& dy, std::int64_t images) {
  return dy ? Rms(all, dy.tensor, images) / AsDouble(all.memory.Read(0, dy.scale)) : 0;
}

}  // namespace

// A value of y, or dx, sums over the weights of its channel, and over no more places than the other
// has; one of dw over places that both have: convolutions either way round, and linear layers.
SumTolerances TolerancesOf(const Comparison& all, const MatmulSpec& s, const Pass& pass) {
  const double x = Rms(all, s.x, pass.rows), w = Rms(all, s.w, s.w.shape.n),
               dy = Rms(all, s.dy.tensor, pass.rows), g = Unscaled(all, s.dy, pass.rows),
               positions = pass.rows * std::min(PlacesOf(s.x), PlacesOf(s.y)),
               weights = AsDouble(s.w.shape.n * s.w.shape.c), window = PlacesOf(s.w);
  const bool x_is = IsFp8(s.x.format), w_is = IsFp8(s.w_format), dy_is = IsFp8(s.dy.tensor.format);
  const auto of = [&](double length, double product, bool fp8, SumTolerance sums) {
    sums.error = SumError(length, all.options.slack);
    if (all.options.fp8_sums && fp8) sums.error += Fp8SumError(length);
    sums.scale = std::sqrt(length) * product;
    return sums;
  };
  const SumTolerance dx{.alphas = {s.scaler}, .alpha_first = s.reference},
      dw{.roundings = s.reference ? 2.0 : 1.0};
  return {
      {"y", of(weights / s.y.shape.c * std::min(window, PlacesOf(s.x)), x * w, x_is && w_is, {})},
      {"dx",
       of(weights / s.x.shape.c * std::min(window, PlacesOf(s.y)), dy * w, dy_is && w_is, dx)},
      {"dw", of(positions, x * g, x_is && dy_is, dw)},
      {"db", of(pass.rows * PlacesOf(s.y), g, false, dw)}};
}

SumTolerances TolerancesOf(const Comparison& all, const BatchNormSpec& s, const Pass& pass) {
  const double length = pass.rows * PlacesOf(s.x), error = SumError(length, all.options.slack),
               x = Rms(all, s.x, pass.rows), part = AsDouble(s.momentum) * x,
               dy = Rms(all, s.dy.tensor, pass.rows),
               sum = std::sqrt(length) * Unscaled(all, s.dy, pass.rows);
  const bool rounds_y = !(s.y_format == kFp32);  // before the addend comes
  return {{"y", {.error = error, .scale = 1}},
          {"sum", {.error = error + OfTerms(rounds_y, s.y_format), .scale = 1}},
          {"running_mean", {.error = error, .scale = part}},
          {"running_var", {.error = error, .scale = part * x}},
          {"dgamma", {.error = error, .scale = sum}},
          {"dbeta", {.error = error, .scale = sum}},
          {"dx", {.error = error, .scale = dy, .alphas = {s.scaler}}}};
}

SumTolerances TolerancesOf(const Comparison& all, const AttentionSpec& s, const Pass& pass) {
  const Tensor &queries = s.x.front(), &keys = s.x[s.fused() ? 0 : 1], &values = s.x.back();
  const auto error = [&](double length) { return SumError(length, all.options.slack); };
  const double width = AsDouble(s.y.shape.c / s.heads), over_keys = error(PlacesOf(keys)),
               readers = PlacesOf(queries) * s.heads / s.kv_heads, many = std::sqrt(readers),
               p = ProbabilityError(width, all.options.slack), ds = p + error(width) + over_keys,
               p_term = p + OfTerms(s.rounds_p, s.p_format) + error(readers),
               ds_term = ds + OfTerms(s.rounds_ds, s.ds_format) + error(readers);
  const double q = Rms(all, queries, pass.rows), k = Rms(all, keys, pass.rows),
               v = Rms(all, values, pass.rows),
               dy = Rms(all, s.dy.tensor, pass.rows) / (1 - AsDouble(s.dropout));
  const auto of = [](double error, double scale, std::vector<const scaling::LayerScaler*> alphas) {
    return SumTolerance{.error = error, .scale = scale, .alphas = alphas, .decision = kAttention};
  };
  const auto& [av, as, aq, ak] = s.scalers;  // by AttentionSpec::Decision
  return {{"p", of(p, 0, {})},
          {"y", of(p_term + over_keys, v, {})},  // a row of p adds up to 1
          {"ds", of(ds, dy * v, {as})},
          {"dv", of(p_term, many * dy, {av})},
          {"dq", of(ds_term, dy * v * k, {as, aq})},
          {"dk", of(ds_term, many * dy * v * q, {as, ak})}};
}

SumTolerances TolerancesOf(const Comparison&, const ClassLossSpec& s, const Pass& pass) {
  const double one = AsDouble(pass.loss_scale) / std::max(1.0, AsDouble(pass.loss_terms));
  return {{"dx", {.error = kLoss, .scale = one, .roundings = s.reference ? 2.0 : 1.0}}};
}

}  // namespace ada::backend::compare

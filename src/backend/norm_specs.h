// Specs of layers that normalize, and of factors by channel.
#pragma once
#include <cstdint>

#include "backend/spec_parts.h"
#include "scaling/rules/rules.h"

namespace ada::backend {

// y = round((x - mean) / sqrt(var + eps) * gamma + beta) per channel; with `addend`:
// sum = round(y + addend); with `relu`: out = max(., 0). `out` is the last of these. With
// `recomputed` (and no addend) out is its z (no data) and dy is masked already.
//
// dx = round(alpha * factor * (dy - mean(dy) - xhat * mean(dy * xhat))), factor = gamma / sqrt(var
// + eps). Its rule treats a batch norm like a convolution with one product for each value and
// weight `factor`: alpha = rule(masked dy, factor); the op computes the statistics itself.
struct BatchNormSpec {
  static constexpr char kKind[] = "batch_norm";
  std::string layer;
  Tensor x, gamma, beta, running_mean, running_var, out;
  RecomputedNorm recomputed;  // empty: out is stored
  Tensor addend;              // empty: none
  bool relu = false;
  float eps = 1e-5f, momentum = 0.1f;
  ChannelMoments x_moments;  // empty: the op computes them itself, to the same bits
  // Statistics of the rounding that made x, if that defers the amax of x to this op (decisions.h);
  // null: it does not.
  TensorStats* x_stats = nullptr;
  RoundingStyle x_style;
  TensorStats* y_stats = nullptr;
  TensorStats* sum_stats = nullptr;  // with addend
  NumberFormat y_format = kFp32;     // of the normalized values before `addend`; without: out's
  RoundingStyle y_style, sum_style;
  Gradient dy;  // gradient of `out`; with relu masked in place (no other reader)
  Gradient dx;  // may overwrite dy
  Tensor dgamma, dbeta;
  scaling::LayerScaler* scaler = nullptr;  // null: alpha is 1, dx carries dy's S
  void Visit(auto&& visit) {
    visit(x, gamma, beta, running_mean, running_var, out, recomputed, addend, x_moments, x_stats,
          x_style, y_stats, sum_stats, y_style, sum_style, dy, dx, dgamma, dbeta, scaler);
  }
};
// y = round(x * w) by channel; dx = round(dy * w); dw = sum(dy * x) / S. w is an fp32 vector.
struct ChannelScaleSpec : WeightedLayerSpec {
  static constexpr char kKind[] = "channel_scale";
};
// y = round(x where it is positive, else x * w), w [1, 1, 1, c] of each channel or of [1] for all;
// dx = round(dy where x is positive, else dy * w); dw = sum(dy * x where x is not positive) / S.
struct PreluSpec : WeightedLayerSpec {
  static constexpr char kKind[] = "prelu";
};
// y = round(x * factor + offset) by channel, of constants; dx = round(dy * factor). Both are fp32
// vectors.
struct AffineSpec : RoundedLayerSpec {
  static constexpr char kKind[] = "affine";
  Tensor factor, offset;
  void Visit(auto&& visit) {
    RoundedLayerSpec::Visit(visit);
    visit(factor, offset);
  }
};
// y = round((x - mean) / sqrt(var + eps) * gamma + beta), mean and var of a group: the channels of
// a pixel (layer_norm), or some channels of an image over all its pixels (group_norm). With g = dy
// * gamma: dx = round((g - mean(g) - xhat * mean(g * xhat)) / sqrt(var + eps)), with dy's scale;
// dgamma = sum(dy * xhat) / S, dbeta = sum(dy) / S.
struct GroupedNormSpec : RoundedLayerSpec {
  Tensor gamma, beta, dgamma, dbeta;
  float eps = 1e-5f;
  void Visit(auto&& visit) {
    RoundedLayerSpec::Visit(visit);
    visit(gamma, beta, dgamma, dbeta);
  }
};
struct LayerNormSpec : GroupedNormSpec {
  static constexpr char kKind[] = "layer_norm";
};
// The same of a pixel's channels, without a mean and without beta: y = round(x / sqrt(mean(x^2) +
// eps) * gamma); dx = round((g - xhat * mean(g * xhat)) / sqrt(mean(x^2) + eps)).
struct RmsNormSpec : GroupedNormSpec {
  static constexpr char kKind[] = "rms_norm";
};
struct GroupNormSpec : GroupedNormSpec {
  static constexpr char kKind[] = "group_norm";
  int groups = 1;
};
// The same of a pixel's channels, over their Euclidean norm: y = round(x / (|x| + eps) * gamma),
// |x| = sqrt(sum(x^2)). With g = dy * gamma and hat = x / (|x| + eps): dx = round((g - hat * (sum(g
// * x) / |x|)) / (|x| + eps)), the sum's term 0 where |x| is; dgamma = sum(dy * hat) / S. There is
// no beta.
struct L2NormalizeSpec : GroupedNormSpec {
  static constexpr char kKind[] = "l2_normalize";
};
// Local response normalization: with s = k + alpha / size * (the sum of x^2 over channels c - size
// / 2 .. c + (size - 1) / 2 of the pixel), y = round(x * s^-beta); dx = round(dy * s^-beta - 2 *
// alpha / size * beta * x * (the sum of dy * x * s^(-beta - 1) over the channels whose sums hold
// c)). Computed in double, with the functions of activations.h.
struct LrnSpec : RoundedLayerSpec {
  static constexpr char kKind[] = "lrn";
  int size = 5;
  double alpha = 1e-4, beta = 0.75, k = 1;
};

}  // namespace ada::backend

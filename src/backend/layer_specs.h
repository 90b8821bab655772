// Specs of layers that normalize, of factors by channel, of layers of sequences, and of losses,
// which end a graph.
//
// Positions of a sequence are the rows and columns of a tensor, read row by row: T of them, with C
// channels each. Losses and softmax are fp32 or better; the gradient of each output is computed in
// fp32, over Pass::loss_terms, and rounded once after its scale S. Gradients are empty where a
// graph evaluates only. `reference`, as in the authors' program: a gradient is
// round(round(gradient) * S).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

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

// --- Sequences ---

// y = round(w[token]), for the fp32 master w [vocabulary, 1, 1, C]. dw[v] = the sum of dy over the
// positions of token v, divided by S; positions are added in order, in fp32; rows without one are
// 0. x: [n, T, 1, 1], 32-bit integers from 0 to below vocabulary, stored as if fp32. There is no
// dx. After the division dw is rounded to dw_format; adds_dw: an op that ran before has written its
// part of dw in this pass.
struct EmbeddingSpec : WeightedLayerSpec {
  static constexpr char kKind[] = "embedding";
  bool adds_dw = false;
  NumberFormat dw_format = kFp32;
  RoundingStyle dw_style;
  TensorStats* dw_stats = nullptr;
  void Visit(auto&& visit) {
    WeightedLayerSpec::Visit(visit);
    visit(dw_style, dw_stats);
  }
};
// y = round(x + w[position]), w [context, 1, 1, C] in fp32; dx = dy; dw[t] = sum over images of dy
// / S, 0 beyond T.
struct PositionEmbeddingSpec : WeightedLayerSpec {
  static constexpr char kKind[] = "position_embedding";
};
// y = round(w, then x), along positions; dx: dy without its first position; dw = sum over images of
// that position of dy / S.
struct ClassTokenSpec : WeightedLayerSpec {
  static constexpr char kKind[] = "class_token";
};
// RoPE: the first `rotary` values of each head are rotated in pairs, by angle t * base^(-2 i /
// rotary) for pair i at position t: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), rounded; a pair
// is values i and i + rotary / 2, or (interleaved) 2 i and 2 i + 1. Angles are in double, cos and
// sin in fp32. dx: with negated angles, rounded.
struct RopeSpec : RoundedLayerSpec {
  static constexpr char kKind[] = "rope";
  int heads = 1, rotary = 0;
  double base = 10000;
  bool interleaved = false;
};
// There are B images, H query heads, K = kv_heads of keys and values, G = H / K, width d, c = 1 /
// sqrt(d); query head h reads key head h / G. x: queries [B, Tq, H d], keys and values [B, Tk, K
// d], or all three one after the other in one tensor. causal: key j is visible to query i where j
// <= i.
//
//   s  = c q k^T                                            fp32, never stored
//   p  = softmax(s) over the visible keys, 0 elsewhere      p_r = round(p) if rounds_p, else p
//   y  = round(p_r v)
//   dv = round(av sum over the group of p_r^T dy)           carries S av
//   dp = dy v^T                                             fp32, never stored
//   ds = round(as p (dp - sum_j p dp)) if rounds_ds         carries S_s = S as; else as = 1
//   dq = round(aq c ds k)                                   carries S_s aq
//   dk = round(ak c sum over the group of ds^T q)           carries S_s ak
//
// Each product takes its operands rounded once more as attention_operands says, one head after the
// other: rows and blocks run along the product's sum within a head (q, k, v, dy: [positions, d],
// p_r and ds: [Tq, Tk]), and are counted so; scales of whole tensors are of all heads of the batch.
//
// dropout: p_r = round(m p / (1 - rate)), dp is multiplied by m / (1 - rate); the mask uses random
// word i of (seed ^ stream, draw) for value i of [B, H, Tq, Tk], all of which are counted.
//
// Inputs of the rules: for av (dy, p_r); for as (dy, a factor with mean square ms(p_r) ms(v) and
// extremes those of p_r times those of v); for aq (stored ds, c k); for ak (stored ds, c q). All
// means are over whole tensors, including masked values.
// A block-scaled format whose effect on the operands is counted, in passes with Pass::bins, as if
// the products took them in it, rounded to nearest, from what is stored. `counts`: of each
// AttentionOperand. Backends that do not count leave them as they are.
struct JudgedOperands {
  BlockFormat format;
  BlockCounts* counts = nullptr;
  void Visit(auto&& visit) { visit(counts); }
};
struct AttentionSpec {
  static constexpr char kKind[] = "attention";
  enum Decision : std::uint8_t { kDv, kDs, kDq, kDk };
  std::string layer;
  std::vector<Tensor> x;  // one or three
  // The per-tensor scales that these carry, and dy in its style; null: none.
  std::array<const scaling::TensorScaler*, 3> x_per_tensor_scales{};
  Tensor y;
  TensorStats* y_stats = nullptr;
  RoundingStyle y_style;
  int heads = 1, kv_heads = 1;
  bool causal = false;
  float dropout = 0;
  std::uint64_t stream = 0;
  bool keeps_probabilities = false;  // stored in fp32 from Forward to Backward; else recomputed
  bool rounds_p = true, rounds_ds = true;
  NumberFormat p_format = kFp32, ds_format = kFp32;
  RoundingStyle p_style, ds_style;
  TensorStats *p_stats = nullptr, *ds_stats = nullptr;
  float* ds_scale = nullptr;
  Gradient dy;
  std::vector<Gradient> dx;  // of queries, keys, values; empty ones: not computed
  std::array<scaling::LayerScaler*, 4> scalers{};  // by Decision; null where nothing is computed
  AttentionRoundings attention_operands;
  std::vector<JudgedOperands> judged_operands;
  // kForward: of s and y, whose sums run over the values of a head and over keys; kDx: of dp, dq,
  // dk and dv, the last two of which run over the queries of one query head.
  SumsOfMatmuls sums;
  bool fused() const { return x.size() == 1; }
  void Visit(auto&& visit) {
    visit(x, x_per_tensor_scales, y, y_stats, y_style, p_style, ds_style, p_stats, ds_stats,
          ds_scale, dy, dx, scalers, attention_operands, judged_operands, sums);
  }
};
// Takes one position of each image; dx is 0 elsewhere.
struct SelectSpec : LayerSpec {
  static constexpr char kKind[] = "select";
  int position = 0;
};
// y = round(p), p = softmax of a position's channels; dx = round(p (dy - sum of p dy)), p not
// rounded.
struct SoftmaxSpec : RoundedLayerSpec {
  static constexpr char kKind[] = "softmax";
};

// --- Losses ---

// Softmax cross-entropy of images, each with one label or two, mean over Pass::loss_terms of them.
struct ClassLossSpec {
  static constexpr char kKind[] = "loss";
  std::string layer = "loss";
  Tensor logits;  // [n, 1, 1, classes]
  float label_smoothing = 0;
  bool mixes = false;  // rows may have second labels
  Gradient dlogits;
  bool reference = false;
  void Visit(auto&& visit) { visit(logits, dlogits); }
};

// Softmax cross-entropy of pixels, or of tokens, which are pixels of an image one pixel wide: the
// sum of weight[label] * CE over the labeled ones, over Pass::loss_terms of them (not over their
// weights, which torch's mean divides by).
struct PixelLossSpec {
  static constexpr char kKind[] = "loss";
  std::string layer = "loss";
  Tensor logits;                     // [n, h, w, classes]
  std::vector<float> class_weights;  // by class; empty: 1 each
  Gradient dlogits;
  bool reference = false;
  void Visit(auto&& visit) { visit(logits, dlogits); }
};

// The loss of SSD (Liu et al. 2016): over Pass::loss_terms positive boxes (those whose label is
// above 0), Huber's loss of their four numbers (d^2 / 2 where |d| <= 1, else |d| - 1/2; d =
// locations - targets), and softmax cross-entropy of the positive boxes and of hard negatives: of
// each image the ceil(negatives * its positives) background boxes whose cross-entropy, in fp32, is
// largest, of equals those that come first, NaNs last.
struct MultiboxLossSpec {
  static constexpr char kKind[] = "loss";
  std::string layer = "loss";
  Tensor locations;  // [n, 1, boxes, 4]
  Tensor scores;     // [n, 1, boxes, classes], class 0 being the background
  double negatives = 3;
  Gradient dlocations, dscores;
  bool reference = false;
  // The recorded program multiplies Huber's loss of boxes that are not positive by zero, so that
  // what is not finite in their targets makes its loss NaN. Else nothing of them is read.
  bool reads_background = false;
  void Visit(auto&& visit) { visit(locations, scores, dlocations, dscores); }
};

using LossSpec = std::variant<ClassLossSpec, PixelLossSpec, MultiboxLossSpec>;

}  // namespace ada::backend

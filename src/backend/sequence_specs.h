// Specs of layers of sequences. Positions are the rows and columns of a tensor, read row by row:
// T of them, with C channels each.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/spec_parts.h"
#include "scaling/rules/rules.h"

namespace ada::backend {

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
struct AttentionSpec {
  static constexpr char kKind[] = "attention";
  enum Decision : std::uint8_t { kDv, kDs, kDq, kDk };
  std::string layer;
  std::vector<Tensor> x;  // one or three
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
  // kForward: of s and y, whose sums run over the values of a head and over keys; kDx: of dp, dq,
  // dk and dv, the last two of which run over the queries of one query head.
  SumsOfProducts sums;
  bool fused() const { return x.size() == 1; }
  void Visit(auto&& visit) {
    visit(x, y, y_stats, y_style, p_style, ds_style, p_stats, ds_stats, ds_scale, dy, dx, scalers,
          attention_operands, sums);
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

}  // namespace ada::backend

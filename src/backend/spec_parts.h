// The building blocks of specs: how values are rounded, gradients with their scales, what fused ops
// share. Each struct here, and each spec, lists its parts that hold pointers in Visit, so that
// ForEachPointer reaches all of them. Pointers to TensorStats, TensorMoments, ExponentBins,
// scalers, decisions and scales are of SharedMemory::backend.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/hadamard.h"
#include "io/tensor_names.h"
#include "number/blocks/block_counts.h"
#include "number/stats.h"
#include "number/tensor.h"
#include "scaling/rules/accumulator.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::backend {

// Calls visit(pointer) with every pointer in `part`, including null ones, and may change them.
// `part`: a spec, or one of these structs.
template <class Part, class Visitor>
void ForEachPointer(Part& part, const Visitor& visit) {
  if constexpr (std::is_pointer_v<Part>) {
    visit(part);
  } else if constexpr (std::is_same_v<Part, Tensor>) {
    visit(part.data);
  } else if constexpr (requires { part.begin(); }) {
    for (auto& element : part) ForEachPointer(element, visit);
  } else {
    part.Visit([&](auto&... parts) { (ForEachPointer(parts, visit), ...); });
  }
}

// --- Parts of specs ---

// How values are rounded to their tensor's format, in addition to the format itself.
struct RoundingStyle {
  bool stochastic = false;   // value i of the tensor takes random word i of (seed ^ stream, draw)
  std::uint64_t stream = 0;  // distinguishes rounding points
  // The per-tensor scale: stored value = round(x * scale) / scale, in fp32; counts are those of x *
  // scale. Null: none. The graph updates it between steps.
  const scaling::TensorScaler* per_tensor_scale = nullptr;
  // False: even a pass that counts fills only numel and max_abs of the TensorStats.
  bool counted = true;
  // Filled in passes with Pass::bins, from the values before rounding and without any scale (the
  // gradient's S times the per-tensor scale). Null: not wanted.
  ExponentBins* bins = nullptr;
  void Visit(auto&& visit) { visit(per_tensor_scale, bins); }
};

// A gradient: the tensor, the scale S that it carries, and what its rounding lost. Parts that are
// not needed are null.
struct Gradient {
  Tensor tensor;
  float* scale = nullptr;
  TensorStats* stats = nullptr;      // null: the values are exact, nothing is rounded
  TensorMoments* moments = nullptr;  // of the stored values, where a consumer asks for them
  // False: of the moments only mean_square and the larger of |min| and |max| have to be valid.
  bool all_moments = true;
  RoundingStyle style;
  bool amax_deferred = false;  // to the op that reads the gradient next (decisions.h)
  explicit operator bool() const { return static_cast<bool>(tensor); }
  void Visit(auto&& visit) { visit(tensor, scale, stats, moments, style); }
};

// Sums by block and channel of a convolution's output, computed by its epilogue for batch norm.
struct ChannelMoments {
  float* mean = nullptr;  // [blocks, c]
  float* m2 = nullptr;    // [blocks, c]
  void Visit(auto&& visit) { visit(mean, m2); }
};

// A batch norm, with or without a relu, whose output z is never stored: its only consumer, a
// convolution or linear layer, recomputes it. The batch norm's op and the consumer's op have the
// same RecomputedNorm and share the work; roundings, counts and sums are the same as if z were
// stored, block by block of raw.
//
//             batch norm                        consumer
//   Forward   mean, inverse, factor             z from raw (rounded and counted) as its x
//   Backward                                    z from raw again (nothing counted) as its x;
//                                               stored dx: zero where z is not positive (relu),
//                                               then sum_dy, sum_dy_xhat of each block
//             dgamma, dbeta and dx, of raw,
//             the sums and its dy: that dx
//
// y = round((raw - mean) * factor + beta); z = max(y, 0) with a relu, else y.
struct RecomputedNorm {
  Tensor raw;  // the batch norm's x
  Tensor z;    // shape, format and storage; no data
  bool relu = false;
  float *mean = nullptr, *inverse = nullptr;  // [c]; inverse = 1 / sqrt(var + eps)
  float* factor = nullptr;                    // [c]; gamma * inverse
  const float* beta = nullptr;                // [c]
  TensorStats* y_stats = nullptr;             // written by the consumer's Forward
  RoundingStyle y_style;
  // [blocks of raw, c]: of the masked dx, and of it times (raw - mean) * inverse. Null: evaluation.
  float *sum_dy = nullptr, *sum_dy_xhat = nullptr;
  explicit operator bool() const { return static_cast<bool>(raw); }
  void Visit(auto&& visit) {
    visit(raw, z, mean, inverse, factor, beta, y_stats, y_style, sum_dy, sum_dy_xhat);
  }
};

// What a product took of an operand, for whoever looks at a layer by itself: its values, in the
// order of the stored tensor, by which `factor` is still to be multiplied. The CPU backend alone
// writes it; the memory is the caller's.
struct CapturedOperand {
  float* values = nullptr;
  float factor = 1;
};

// How a matmul reads an operand: rounded once more from what is stored, or unchanged. If its style
// has a per-tensor scale, that is divided out again: the values that are multiplied are round(x *
// scale) / scale.
struct OperandRounding {
  bool rounds = false;
  NumberFormat format = kFp32;       // of blocks: of their elements
  std::optional<BlockFormat> block;  // if set, there is no per-tensor scale
  // `rule` gives each row along the matmul's sum (operand_rows.h) a per-tensor scale. Only of a
  // plain format; the style then has none.
  bool row_scaled = false;
  // The operand whose rows and blocks it has; unset: its own. The same values as forward's.
  std::optional<Operand> laid_as = {};
  // Applied before rounding. Random signs are drawn anew in every pass; those of forward and dx
  // whenever weights are refreshed.
  HadamardRule hadamard;
  RoundingStyle style;
  // The style's per-tensor scale if the op computes it (current scaling): the op writes
  // CurrentScale of the largest magnitude of what is stored. Null: the scale is not changed.
  scaling::TensorScaler* current = nullptr;
  scaling::TensorScaleRule rule;  // of `current` and of rows
  // The op multiplies the scale that a tensor has beside those of its blocks by a power of two,
  // which it chooses and writes to `current`. Unset: that scale is kept.
  std::optional<scaling::BlockRangeRule> adaptive = {};
  CapturedOperand* captured = nullptr;  // only of an operand that rounds; null: nobody asks
  TensorStats* stats = nullptr;
  BlockCounts* block_counts = nullptr;  // for `block`, in passes that fill all of `stats`
  void Visit(auto&& visit) { visit(style, current, stats, block_counts); }
};
using OperandRoundings = std::array<OperandRounding, kOperands>;             // by Operand
using AttentionRoundings = std::array<OperandRounding, kAttentionOperands>;  // by AttentionOperand
template <std::size_t kCount>
bool AnyRounds(const std::array<OperandRounding, kCount>& operands) {
  return std::any_of(operands.begin(), operands.end(), [](const auto& o) { return o.rounds; });
}

// How the sums of one product are made: in fp32, or as an accumulator makes them. Operands with a
// per-tensor scale are added as codes: values times the scale, which is divided out of the sum.
struct JudgedSums {  // by another rule, whose sums are made and counted alone
  scaling::Accumulator rule;
  scaling::AccumulatorCounts* counts = nullptr;
  void Visit(auto&& visit) { visit(counts); }
};
struct MatmulSums {
  std::optional<scaling::Accumulator> rule;      // unset: fp32
  scaling::AccumulatorCounts* counts = nullptr;  // filled in passes that count; null: nobody asks
  std::vector<JudgedSums> judged;                // in passes with Pass::bins
  void Visit(auto&& visit) { visit(counts, judged); }
};
using SumsOfMatmuls = std::array<MatmulSums, scaling::kLayerMatmuls>;  // by scaling::LayerMatmul
inline bool AnyAccumulates(const SumsOfMatmuls& sums) {
  return std::any_of(sums.begin(), sums.end(), [](const auto& s) { return s.rule.has_value(); });
}
inline bool AnyJudged(const SumsOfMatmuls& sums) {
  return std::any_of(sums.begin(), sums.end(), [](const auto& s) { return !s.judged.empty(); });
}

// --- Base structs of specs ---

// Most layers have one input and one output. Here and in all specs, x and y are activations; w and
// b are fp32 masters; dw and db are fp32, unscaled; dy is input, dx output. Messages name an op by
// kKind and `layer`.
struct LayerSpec {
  std::string layer;
  Tensor x, y;
  Gradient dy, dx;  // dx empty: not computed
  void Visit(auto&& visit) { visit(x, y, dy, dx); }
};
// Those that round y.
struct RoundedLayerSpec : LayerSpec {
  TensorStats* y_stats = nullptr;
  RoundingStyle y_style;
  void Visit(auto&& visit) {
    LayerSpec::Visit(visit);
    visit(y_stats, y_style);
  }
};
// Those with one fp32 weight as well.
struct WeightedLayerSpec : RoundedLayerSpec {
  Tensor w, dw;
  void Visit(auto&& visit) {
    RoundedLayerSpec::Visit(visit);
    visit(w, dw);
  }
};

}  // namespace ada::backend

// What the graph tells a backend to make ops of: tensors, styles of rounding, where counts go, and
// the formula of each kind of layer. Rounding points and counts are the same in every backend.
//
// A struct here names its parts that hold pointers once, in Visit: ForEachPointer reaches them all.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/exponent_bins.h"
#include "core/stats.h"
#include "core/tensor.h"
#include "scaling/rules/rules.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::backend {

// Calls visit(pointer) with every pointer that `part` holds, null ones included: they may be
// changed. `part`: a spec, or what one is made of.
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

// --- Parts of specs. Pointers to TensorStats, TensorMoments, ExponentBins, scalers, decisions and
// scales are of SharedMemory::backend. ---

// How values are rounded to their tensor's format, beside the format itself.
struct RoundingStyle {
  bool stochastic = false;   // value i of the tensor takes random word i of (seed ^ stream, draw)
  std::uint64_t stream = 0;  // tells rounding points apart
  // A scale of the tensor's own: stored value = round(x * scale) / scale, in fp32 storage; counts
  // are of x * scale. Null: none. The graph updates it between steps.
  const scaling::TensorScaler* own_scale = nullptr;
  // False: a pass that counts fills only numel and max_abs of the TensorStats all the same.
  bool counted = true;
  // Filled in a pass that says so, of the values before rounding without any scale (the gradient's
  // S times the tensor's own). Null: not wanted.
  ExponentBins* bins = nullptr;
  void Visit(auto&& visit) { visit(own_scale, bins); }
};

// A gradient: the tensor, the scale S it carries, and what its rounding lost. Optional parts are
// null.
struct Gradient {
  Tensor tensor;
  float* scale = nullptr;
  TensorStats* stats = nullptr;      // null: the values are exact, nothing is rounded
  TensorMoments* moments = nullptr;  // of the stored values, where a consumer asks for them
  // False: of the moments only mean_square and the larger of |min| and |max| need hold.
  bool all_moments = true;
  RoundingStyle style;
  explicit operator bool() const { return static_cast<bool>(tensor); }
  void Visit(auto&& visit) { visit(tensor, scale, stats, moments, style); }
};

// Per-block, per-channel sums of a convolution's output, written by its epilogue for batch norm.
struct ChannelMoments {
  float* mean = nullptr;  // [blocks, c]
  float* m2 = nullptr;    // [blocks, c]
  void Visit(auto&& visit) { visit(mean, m2); }
};

// A batch norm, with or without a relu, whose output z nobody stores: its one consumer, a
// convolution or linear layer, computes it anew. The batch norm's op and the consumer's get the
// same RecomputedNorm and share the work; what is rounded, counted and summed is what it is where z
// is stored, block by block of raw.
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

// --- Specs. x, y: activations; w, b: fp32 masters; dw, db: fp32, unscaled; dy in, dx out. kKind
// and `layer` are what messages call an op. ---

// Most layers: one input, one output.
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

// y = round(w * x + b); dw = wgrad(x, dy) / S; db = sum(dy) / S; alpha = rule(dy, w);
// dx = round(alpha * dgrad(dy, w)), S_out = S * alpha. The copy of w that is multiplied is rounded
// to w_format, dw (after the division) to dw_format. Under rule.reference: dx = round(dgrad(
// round(alpha * dy), w)), alpha * dy in dy's format. With `recomputed`, x is its z (no data), and
// dx, once rounded and noted, is masked in place.
struct ProductSpec : RoundedLayerSpec {
  // w: [out, kh, kw, in/groups] in Shape's words; bytes lie as PyTorch's [out, in, kh, kw].
  Tensor w, b;
  RecomputedNorm recomputed;  // empty: x is stored
  // The scale of its own that x carries: RoundingStyle::own_scale of whoever rounded it. Null:
  // none, or (where x lies in fp32 though its format needs less) not known.
  const scaling::TensorScaler* x_own_scale = nullptr;
  TensorStats* w_stats = nullptr;  // rounding of the copy that is multiplied
  NumberFormat w_format = kFp32, dw_format = kFp32;
  RoundingStyle w_style, dw_style;
  bool reference = false;    // the authors' program: dw, db = round(round(gradient) / S)
  ChannelMoments y_moments;  // optional
  Tensor dw, db;
  TensorStats* dw_stats = nullptr;
  scaling::LayerScaler* scaler = nullptr;  // null where dx is empty
  void Visit(auto&& visit) {
    RoundedLayerSpec::Visit(visit);
    visit(w, b, recomputed, x_own_scale, w_stats, w_style, dw_style, y_moments, dw, db, dw_stats,
          scaler);
  }
};
struct Conv2dSpec : ProductSpec {
  static constexpr char kKind[] = "conv2d";
  std::array<int, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int groups = 1;
};
struct LinearSpec : ProductSpec {  // a spatial x is flattened in the order channel, row, column
  static constexpr char kKind[] = "linear";
};

// y = round((x - mean) / sqrt(var + eps) * gamma + beta) per channel; with `addend`:
// sum = round(y + addend); with `relu`: out = max(., 0). `out` is the last of these. With
// `recomputed` (and no addend) out is its z (no data) and dy is masked already.
//
// dx = round(alpha * factor * (dy - mean(dy) - xhat * mean(dy * xhat))), factor = gamma / sqrt(var
// + eps). To its rule a batch norm is a convolution of one product a value whose weight is
// `factor`: alpha = rule(dy as masked, factor), of which the op takes the statistics itself.
struct BatchNormSpec {
  static constexpr char kKind[] = "batch_norm";
  std::string layer;
  Tensor x, gamma, beta, running_mean, running_var, out;
  RecomputedNorm recomputed;  // empty: out is stored
  Tensor addend;              // empty: none
  bool relu = false;
  float eps = 1e-5f, momentum = 0.1f;
  ChannelMoments x_moments;  // empty: the op takes them itself, to the same bits
  TensorStats* y_stats = nullptr;
  TensorStats* sum_stats = nullptr;  // with addend
  NumberFormat y_format = kFp32;     // of the normalised values before `addend`; without: out's
  RoundingStyle y_style, sum_style;
  Gradient dy;  // gradient of `out`; with relu it is masked in place (the caller owns it alone)
  Gradient dx;  // may lie where dy lies
  Tensor dgamma, dbeta;
  scaling::LayerScaler* scaler = nullptr;  // null: alpha is 1, dx carries dy's S
  void Visit(auto&& visit) {
    visit(x, gamma, beta, running_mean, running_var, out, recomputed, addend, x_moments, y_stats,
          sum_stats, y_style, sum_style, dy, dx, dgamma, dbeta, scaler);
  }
};
struct ReluSpec : LayerSpec {  // dx may lie where dy lies
  static constexpr char kKind[] = "relu";
};
// y = round(1 / (1 + e^-x)); dx = round(dy * y'(x)), of the x that is stored (activations.h).
struct SigmoidSpec : RoundedLayerSpec {  // dx may lie where dy lies
  static constexpr char kKind[] = "sigmoid";
};
// y = round(x / (1 + e^-x)), and dx likewise.
struct SiluSpec : RoundedLayerSpec {  // dx may lie where dy lies
  static constexpr char kKind[] = "silu";
};
struct MaxPoolSpec : LayerSpec {  // dx.stats only where windows overlap
  static constexpr char kKind[] = "max_pool";
  std::array<int, 2> kernel, stride, padding = {0, 0};
};
// The mean over kernel h x w, padding counted as zeros (PyTorch's default).
struct AvgPoolSpec : RoundedLayerSpec {
  static constexpr char kKind[] = "avg_pool";
  std::array<int, 2> kernel, stride, padding = {0, 0};
};
struct AddSpec {  // y = round(left-to-right fp32 sum); its backward is an alias, not an op
  static constexpr char kKind[] = "add";
  std::string layer;
  std::vector<Tensor> x;
  Tensor y;
  TensorStats* y_stats = nullptr;
  RoundingStyle y_style;
  void Visit(auto&& visit) { visit(x, y, y_stats, y_style); }
};
// y = round(the inputs' channels, one input after the other); dx of an input: its channels of dy as
// they are, with dy's scale.
struct ConcatSpec {
  static constexpr char kKind[] = "concat";
  std::string layer;
  std::vector<Tensor> x;
  Tensor y;
  TensorStats* y_stats = nullptr;
  RoundingStyle y_style;
  Gradient dy;
  std::vector<Gradient> dx;  // by input; empty ones: not computed
  void Visit(auto&& visit) { visit(x, y, y_stats, y_style, dy, dx); }
};
// The paper's cast at a border between formats: y = round(x), alpha = rule(dy) without a weight,
// dx = round(alpha * dy), S_out = S * alpha; under rule.reference alpha * dy is rounded to dy's
// format first.
struct ScaleSpec : RoundedLayerSpec {
  static constexpr char kKind[] = "scale";
  scaling::LayerScaler* scaler = nullptr;  // null where dx is empty
  void Visit(auto&& visit) {
    RoundedLayerSpec::Visit(visit);
    visit(scaler);
  }
};
// Option A: every stride-th pixel, channels padded with zeros on both sides.
struct ShortcutSpec : LayerSpec {
  static constexpr char kKind[] = "shortcut";
  std::array<int, 2> stride;
};
// [n, h, w, c] -> [n, 1, 1, c*h*w] in the order channel, row, column.
struct FlattenSpec : LayerSpec {
  static constexpr char kKind[] = "flatten";
};
struct DropoutSpec : RoundedLayerSpec {
  static constexpr char kKind[] = "dropout";
  float rate = 0.5f;
  std::uint64_t stream = 0;  // tells layers apart in the random numbers
};
// Where an output feeds several layers: sum = round(sum of g_i * target / S_i), S = target
// (scaling::BranchTarget). Where it matters, the op finds the largest magnitude of a branch without
// moments itself: from the stats of a rounding to nearest, else (a dy that was masked in place) by
// looking. If the fp32 sum reaches u_max where no branch did, target is halved.
struct BranchSumSpec {
  static constexpr char kKind[] = "branch sum";
  std::string layer;  // whose output the branches share
  std::vector<Gradient> branches;
  Gradient sum;
  scaling::ScaleDecision* decision = nullptr;
  // The authors' program: each branch times its factor (itself rounded to the branch's format) is
  // rounded to that format, then the sum after every addend; BranchTargetReference; no halving.
  bool reference = false;
  // Under `reference`, false where the method is not approx_range: branches are summed as they are,
  // and the sum is said to carry the first one's scale.
  bool rescale = true;
  void Visit(auto&& visit) { visit(branches, sum, decision); }
};

// What Backend::Make makes an op of.
using OpSpec = std::variant<Conv2dSpec, LinearSpec, BatchNormSpec, ReluSpec, SigmoidSpec, SiluSpec,
                            MaxPoolSpec, AvgPoolSpec, AddSpec, ConcatSpec, ScaleSpec, ShortcutSpec,
                            FlattenSpec, DropoutSpec, BranchSumSpec>;

// --- The ends of a graph, whose ops do more than an Op. ---

struct InputSpec {  // x in fp32 from the host -> y rounded
  static constexpr char kKind[] = "input";
  std::string layer = "input";
  Tensor x, y;
  TensorStats* y_stats = nullptr;  // where the input has a scale of its own
  RoundingStyle y_style;
  void Visit(auto&& visit) { visit(x, y, y_stats, y_style); }
};
// Softmax cross-entropy in fp32, mean over Pass::loss_rows; dlogits = round(gradient * loss_scale).
struct LossSpec {
  static constexpr char kKind[] = "loss";
  std::string layer = "loss";
  Tensor logits;
  float label_smoothing = 0;
  bool mixes = false;      // rows may have second labels
  Gradient dlogits;        // empty: evaluation only
  bool reference = false;  // the authors' program: round(round(gradient) * loss_scale)
  void Visit(auto&& visit) { visit(logits, dlogits); }
};

}  // namespace ada::backend

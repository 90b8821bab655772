// The specs from which a backend makes ops: tensors, styles of rounding, pointers for counts, and
// the formula of each kind of layer. Rounding points and counts are the same in all backends.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "backend/activations.h"
#include "backend/layer_specs.h"
#include "backend/spec_parts.h"
#include "scaling/rules/rules.h"

namespace ada::backend {

// y = round(w * x + b); dw = wgrad(x, dy) / S; db = sum(dy) / S; alpha = rule(dy, w);
// dx = round(alpha * dgrad(dy, w)), S_out = S * alpha. The copy of w that is multiplied is rounded
// to w_format, dw (after the division) to dw_format. Under rule.reference: dx = round(dgrad(
// round(alpha * dy), w)), alpha * dy in dy's format. With `recomputed`, x is its z (no data), and
// dx, once rounded and noted, is masked in place.
struct MatmulSpec : RoundedLayerSpec {
  // w: [out, kh, kw, in/groups] in Shape's words; bytes lie as PyTorch's [out, in, kh, kw].
  Tensor w, b;
  RecomputedNorm recomputed;  // empty: x is stored
  // The per-tensor scale that x carries: RoundingStyle::per_tensor_scale of the op that rounded it.
  // Null: there is none, or (if x is stored in fp32 though its format needs less) it is unknown.
  const scaling::TensorScaler* x_per_tensor_scale = nullptr;
  TensorStats* w_stats = nullptr;  // rounding of the copy that is multiplied
  NumberFormat w_format = kFp32, dw_format = kFp32;
  RoundingStyle w_style, dw_style;
  bool reference = false;        // the authors' program: dw, db = round(round(gradient) / S)
  ChannelMoments y_moments;      // optional
  bool y_amax_deferred = false;  // to BatchNormSpec::x_stats of the op after it (decisions.h)
  bool adds_dw = false;          // an op that ran before has written its part of dw in this pass
  Tensor dw, db;
  TensorStats* dw_stats = nullptr;
  scaling::LayerScaler* scaler = nullptr;  // null where dx is empty
  // How the matmuls read x, the rounded w and dy; db sums dy as it is stored. Not together with
  // `reference`. A backend declines `recomputed` if any of them rounds.
  OperandRoundings operands;
  // How sums are made, along k in this order: of y the input channels within the taps of the
  // window (rows, then columns), of dx the output channels within them, of dw the pixels of y, row
  // by row, image after image. Padding has its places, as zeros. Not together with `reference` and
  // `recomputed`; a backend that has no such sums throws ConfigError.
  SumsOfMatmuls sums;
  void Visit(auto&& visit) {
    RoundedLayerSpec::Visit(visit);
    visit(w, b, recomputed, x_per_tensor_scale, w_stats, w_style, dw_style, y_moments, dw, db,
          dw_stats, scaler, operands, sums);
  }
};
struct Conv2dSpec : MatmulSpec {
  static constexpr char kKind[] = "conv2d";
  std::array<int, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int groups = 1;
};
// A transposed convolution: y is the data gradient, for x, of the convolution from y to x with
// these weights and this window; dx is that convolution of dy. w: [in, kh, kw, out / groups] in
// Shape's names; bytes in PyTorch's order [in, out / groups, kh, kw].
struct ConvTranspose2dSpec : MatmulSpec {
  static constexpr char kKind[] = "conv_transpose2d";
  std::array<int, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int groups = 1;
};
// A spatial x is flattened in the order channel, row, column; where y is spatial too, each position
// of x is mapped by w [out, 1, 1, in].
struct LinearSpec : MatmulSpec {
  static constexpr char kKind[] = "linear";
};

struct ReluSpec : LayerSpec {  // dx may lie where dy lies
  static constexpr char kKind[] = "relu";
};
// y = round(function(x)); dx = round(dy * function'(x)), for the stored x (activations.h). If each
// value of dx is either that of dy or zero (kPassesDy), it is not rounded.
template <class Function>
struct ActivationSpec : RoundedLayerSpec {  // dx may lie where dy lies
  static constexpr const char* kKind = Function::kKind;
  Function function;
};
using SigmoidSpec = ActivationSpec<Sigmoid>;
using SiluSpec = ActivationSpec<Silu>;
struct MaxPoolSpec : LayerSpec {  // dx.stats only where windows overlap
  static constexpr char kKind[] = "max_pool";
  std::array<int, 2> kernel, stride, padding = {0, 0};
  // The position of each maximum in its window, counted row by row: backend memory with y's layout,
  // written by every Forward for a MaxUnpoolSpec. Null: the op keeps what it needs itself.
  std::uint16_t* positions = nullptr;
  void Visit(auto&& visit) {
    LayerSpec::Visit(visit);
    visit(positions);
  }
};
// Puts each value of x where the pool found its maximum; all others are 0. dx: the values of dy at
// these places, unchanged. Windows are the pool's, do not overlap, and start at the upper left
// corner, also if x is larger or smaller than `pooled`; dx is 0 beyond the windows.
struct MaxUnpoolSpec : LayerSpec {
  static constexpr char kKind[] = "max_unpool";
  std::array<int, 2> kernel, stride, padding = {0, 0};
  Shape pooled;                              // of the pool's output
  const std::uint16_t* positions = nullptr;  // MaxPoolSpec::positions
  void Visit(auto&& visit) {
    LayerSpec::Visit(visit);
    visit(positions);
  }
};
// The mean over a window, where padding counts as zeros (PyTorch's default) or, without
// count_padding, is excluded. Pixels beyond the padding never count. adaptive: window i of n over a
// side of `size` is [floor(i size / n), ceil((i + 1) size / n)); kernel, stride and padding are not
// read.
struct AvgPoolSpec : RoundedLayerSpec {
  static constexpr char kKind[] = "avg_pool";
  std::array<int, 2> kernel, stride, padding = {0, 0};
  bool count_padding = true, adaptive = false;
};
// Every pixel scale x scale times; dx = round(fp32 sum over the copies, row by row).
struct UpsampleSpec : LayerSpec {
  static constexpr char kKind[] = "upsample";
  int scale = 2;
};
// y = round(the mean of the four pixels around each place, weighted by distance;
// values/enlarged.h); dx = round(fp32 sum over all places that a pixel contributed to, row by row).
struct BilinearSpec : RoundedLayerSpec {
  static constexpr char kKind[] = "upsample";
  bool align_corners = false;
};
// Channel c r^2 + i r + j of pixel (h, w) becomes channel c of pixel (h r + i, w r + j), r = scale;
// dx: the values of dy where they came from.
struct PixelShuffleSpec : LayerSpec {
  static constexpr char kKind[] = "pixel_shuffle";
  int scale = 2;
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
// The same of whole images: y = round(the values of the first input's image in their order, then
// the second's, ...), as [n, 1, boxes, values of a box].
struct ConcatBoxesSpec : ConcatSpec {
  static constexpr char kKind[] = "concat_boxes";
};
// y = round(a * b); da = round(dy * b), db = round(dy * a), with dy's scale. One of them may be [n,
// 1, 1, c]: it multiplies all pixels of its image; its gradient sums over them (reductions.h).
struct MultiplySpec {
  static constexpr char kKind[] = "multiply";
  std::string layer;
  std::vector<Tensor> x;  // two
  Tensor y;
  TensorStats* y_stats = nullptr;
  RoundingStyle y_style;
  Gradient dy;
  std::vector<Gradient> dx;  // by input; empty ones: not computed
  void Visit(auto&& visit) { visit(x, y, y_stats, y_style, dy, dx); }
};
// The paper's cast at a boundary between formats: y = round(x), alpha = rule(dy) without a weight,
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
// As many channels as y has, from `first` on.
struct SliceSpec : LayerSpec {
  static constexpr char kKind[] = "slice";
  int first = 0;
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
// Drops whole images in training: y = round(x / (1 - rate)) or 0, dx likewise. Image i uses random
// word i, as dropout does for values; `batch`: all images use word 0.
struct StochasticDepthSpec : RoundedLayerSpec {
  static constexpr char kKind[] = "stochastic_depth";
  float rate = 0.5f;
  bool batch = false;
  std::uint64_t stream = 0;
};
// The sum of the gradients of an output that feeds several layers: sum = round(sum of g_i * target
// / S_i), S = target (scaling::BranchTarget). For branches without moments the op finds the largest
// magnitude itself: from the stats of a rounding to nearest, otherwise (a dy masked in place) from
// the values. If the fp32 sum reaches u_max though no branch does, target is halved.
struct BranchSumSpec {
  static constexpr char kKind[] = "branch sum";
  std::string layer;  // whose output the branches share
  std::vector<Gradient> branches;
  // By branch: the first channel of the sum that it covers; it may have fewer channels than the sum
  // and is zero in the others. Empty: each covers all channels.
  std::vector<int> first;
  Gradient sum;
  scaling::ScaleDecision* decision = nullptr;
  // As in the authors' program: each branch times its factor (rounded to the branch's format) is
  // rounded to that format, then the sum after every addend; BranchTargetReference; no halving.
  bool reference = false;
  // Under `reference`, false if the method is not approx_range: branches are then summed unscaled,
  // and the sum is labeled with the first one's scale.
  bool rescale = true;
  void Visit(auto&& visit) { visit(branches, sum, decision); }
};

// The variant of `Specs` and of the specs of all activations.
template <class Tuple, class... Specs>
struct VariantOf;
template <class... Activations, class... Specs>
struct VariantOf<std::tuple<Activations...>, Specs...> {
  using Type = std::variant<Specs..., Activations...>;
};
// The specs from which Backend::Make makes ops.
using OpSpec =
    VariantOf<ForActivations<ActivationSpec>, Conv2dSpec, ConvTranspose2dSpec, LinearSpec,
              BatchNormSpec, ReluSpec, MaxPoolSpec, MaxUnpoolSpec, AvgPoolSpec, AddSpec, ConcatSpec,
              ConcatBoxesSpec, ScaleSpec, ShortcutSpec, SliceSpec, AffineSpec, FlattenSpec,
              DropoutSpec, UpsampleSpec, BilinearSpec, PixelShuffleSpec, MultiplySpec,
              StochasticDepthSpec, ChannelScaleSpec, PreluSpec, LayerNormSpec, RmsNormSpec,
              GroupNormSpec, L2NormalizeSpec, LrnSpec, EmbeddingSpec, PositionEmbeddingSpec,
              ClassTokenSpec, RopeSpec, AttentionSpec, SelectSpec, SoftmaxSpec,
              BranchSumSpec>::Type;

// --- The start of a graph ---

// The op at the start of a graph is more than an Op, as is the one at its end (layer_specs.h).
struct InputSpec {  // x in fp32 from the host -> y rounded
  static constexpr char kKind[] = "input";
  std::string layer = "input";
  Tensor x, y;
  TensorStats* y_stats = nullptr;
  RoundingStyle y_style;
  void Visit(auto&& visit) { visit(x, y, y_stats, y_style); }
};

}  // namespace ada::backend

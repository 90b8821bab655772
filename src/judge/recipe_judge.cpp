// Rounds the operands of a layer as a recipe would, and counts what that does to them.
#include "judge/recipe_judge.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "backend/hadamard.h"
#include "graph/network/zoo.h"
#include "io/text.h"
#include "judge/plain_counts.h"
#include "layers/layer_kind.h"
#include "number/format_codes.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::judge {
namespace {

using Kind = config::TensorScalingConfig::Kind;

// A tensor as products read it: of a convolution, or a linear layer of tokens, the channels of a
// pixel lie together.
struct Values {
  std::vector<float> values;
  OperandPlace place;
  bool bf16 = false;
};

std::vector<float> ChannelsLast(const StoredTensor& tensor) {
  const auto channels = static_cast<std::size_t>(tensor.dims[1]);
  const auto pixels = static_cast<std::size_t>(std::accumulate(
      tensor.dims.begin() + 2, tensor.dims.end(), std::int64_t{1}, std::multiplies<>()));
  std::vector<float> turned(tensor.values.size());
  for (std::size_t first = 0; first < turned.size(); first += channels * pixels)
    for (std::size_t c = 0; c < channels; ++c)
      for (std::size_t p = 0; p < pixels; ++p)
        turned[first + p * channels + c] = tensor.values[first + c * pixels + p];
  return turned;
}

Values ValuesOf(const MatmulTensors& layer, Operand operand) {
  const StoredTensor& tensor = layer.Of(operand);
  Values of;
  of.bf16 = tensor.bf16;
  of.place = {IsWeight(operand), layer.linear, layer.groups,
              AlongChannels(operand, layer.transposed), tensor.dims};
  of.place.channels_last = !IsWeight(operand) && !layer.linear;
  of.values = of.place.channels_last ? ChannelsLast(tensor) : tensor.values;
  return of;
}

// The groups of dw that a transform mixes: images at one place, or pixels where a pixel of x meets
// one of dy alone (backend/hadamard.h).
OperandLines LinesOfTransform(const MatmulTensors& layer, Operand operand, const Values& of) {
  const bool down = operand == Operand::kDwX || operand == Operand::kDwDy;
  if (!down || layer.pointwise || of.place.linear) return LinesOfOperand(of.place);
  const std::int64_t width = std::ssize(of.values) / of.place.dims[0];
  return {{width, 1, of.place.dims[0], 1, 0, width}, 1, 0};
}

void Transform(const MatmulTensors& layer, Operand operand, const backend::HadamardRule& rule,
               const RecipeDraw& draw, Values& of) {
  const OperandLines lines = LinesOfTransform(layer, operand, of);
  const std::vector<float> signs = rule.Signs(draw.seed, draw.draw);
  for (std::int64_t i = 0; i < lines.planes; ++i)
    backend::HadamardOfLines(signs, lines.layout, of.values.data() + i * lines.size);
  if (of.bf16)
    for (float& x : of.values) x = RoundTo(kBf16, x);
}

// One scale for all values; a scale from earlier steps follows that of the tensor.
scaling::RowScale ScaleOfTensor(const graph::OperandRule& rule, const scaling::TensorScaleRule& how,
                                Operand operand, const std::vector<float>& values) {
  float scale = 1;
  if (rule.scaling.kind == Kind::kStatic)
    scale = static_cast<float>(graph::StaticScaleOf(operand, rule.scaling.values));
  else if (rule.scaling.kind == Kind::kDelayed)
    scale = scaling::DelayedScale(how, AmaxOf(values), 1);
  else if (rule.scaling.kind == Kind::kCurrent || rule.scaling.kind == Kind::kPredicted)
    scale = scaling::CurrentScale(how, AmaxOf(values));
  if (rule.scaling.kind == Kind::kStatic && how.power_of_two)
    scale = scaling::CutToPowerOfTwo(scale);
  return {scale, 1 / scale};
}

void TakePlain(const graph::OperandRule& rule, Operand operand, const Values& of, RecipeRow& row) {
  scaling::TensorScaleRule how = rule.scaling;
  how.format_max = rule.format.largest();
  how.integer = IsInteger(rule.format);
  PlainCounts counts(rule.format);
  if (rule.scaling.kind != Kind::kRow || rule.format == kFp32) {
    const scaling::RowScale scale =
        rule.format == kFp32 ? scaling::RowScale() : ScaleOfTensor(rule, how, operand, of.values);
    for (const float x : of.values) counts.Take(scale, x);
  } else {
    counts.multiplies_back = scaling::MultipliesBack(how);
    const OperandLines lines = LinesOfOperand(of.place);
    const BlockLayout& layout = lines.layout;
    for (std::int64_t plane = 0; plane < lines.planes; ++plane) {
      const float* values = of.values.data() + plane * lines.size;
      const std::vector<float> amaxes = RowAmaxesOf(layout, values);
      for (std::int64_t m = 0; m < layout.matrices; ++m)
        for (std::int64_t r = 0; r < layout.rows; ++r) {
          const scaling::RowScale scale = scaling::RowScaleOf(
              how, amaxes[static_cast<std::size_t>(m * layout.rows + r)], of.bf16);
          for (std::int64_t i = 0; i < layout.length; ++i)
            counts.Take(
                scale,
                values[m * layout.matrix_stride + r * layout.row_stride + i * layout.stride]);
        }
    }
  }
  counts.GoTo(row);
}

// The words of `cause`. A plain format has one: what its scale is of.
std::string CauseOf(const graph::OperandRule& rule, const RecipeRow& row) {
  if (row.saturated > row.lost) return "saturated";
  if (row.lost == 0) return "";
  if (rule.block) {
    const std::pair<std::int64_t, const char*> causes[] = {
        {row.lost_beside_largest, "block"},
        {row.lost_scale_rounding, "scale rounding"},
        {row.lost_scale_floor, "scale floor"},
        {row.lost_tensor_scale, "tensor scale"}};
    return std::max_element(std::begin(causes), std::end(causes),
                            [](const auto& a, const auto& b) { return a.first < b.first; })
        ->second;
  }
  switch (rule.scaling.kind) {
    case Kind::kRow:
      return "row";
    case Kind::kCurrent:
    case Kind::kDelayed:
    case Kind::kPredicted:
      return "tensor";
    case Kind::kStatic:
      return "fixed scale";
    case Kind::kAdaptive:  // of blocks alone
    case Kind::kNone:
      break;
  }
  return "no scale";
}

}  // namespace

std::vector<RecipeRow> JudgeRecipe(const MatmulTensors& layer, const graph::LayerOperands& rules,
                                   const RecipeDraw& draw) {
  std::vector<RecipeRow> rows;
  for (std::size_t i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const graph::OperandRule& rule = rules.Of(operand);
    const bool of_dx = operand == Operand::kDxDy || operand == Operand::kDxW;
    if (!rule.rounds || (of_dx && !layer.has_dx)) continue;
    const StoredTensor& tensor = layer.Of(operand);
    if (!tensor) continue;
    Values of = ValuesOf(layer, operand);
    if (rule.hadamard) Transform(layer, operand, rule.hadamard, draw, of);
    RecipeRow& row = rows.emplace_back();
    row.layer = layer.layer, row.tensor = NameOf(operand), row.format = FormatName(rule.named());
    row.scale = tensor.scale;
    if (rule.block) {
      BlockCounts counts;
      QuantizeOperand(*rule.block, of.place, of.bf16, of.values, nullptr, &counts);
      row.Take(counts);
    } else {
      TakePlain(rule, operand, of, row);
    }
    row.cause = CauseOf(rule, row);
  }
  return rows;
}

std::vector<std::string> ProductsOf(const config::ModelConfig& model,
                                    const std::vector<std::string>& dumped) {
  std::vector<std::string> names;
  for (const config::LayerConfig& layer :
       model.zoo.empty() ? model.layers : graph::ExpandZoo(model)) {
    const layers::LayerKind* kind = layers::FindLayerKind(layer.kind);
    const bool is_product = kind != nullptr && kind->has_weight;
    if (is_product || Contains(dumped, layer.name)) names.push_back(layer.name);
  }
  return names;
}

}  // namespace ada::judge

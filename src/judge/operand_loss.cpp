// Rounds an operand by its rule, and counts what that does to it.
#include "judge/operand_loss.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "backend/hadamard.h"
#include "graph/network/zoo.h"
#include "io/text.h"
#include "judge/serving.h"
#include "layers/layer_kind.h"
#include "number/blocks/operand_blocks.h"
#include "number/number_format.h"
#include "number/stats.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::judge {
namespace {

using Kind = config::TensorScalingConfig::Kind;

// What rounding to a plain format does to values, each of which has a scale.
class PlainCounts {
 public:
  PlainCounts(const NumberFormat& format, bool multiplies_back)
      : format_(format),
        overflow_from_(OverflowThreshold(format)),
        multiplies_back_(multiplies_back) {}

  void Take(const scaling::RowScale& scale, float x) {
    const float scaled = x * scale.encode, rounded = RoundTo(format_, scaled);
    const bool finite = std::isfinite(x);
    ++counts_.numel;
    counts_.zeros += x == 0, counts_.inf += std::isinf(x), counts_.nan += std::isnan(x);
    counts_.lost += finite && x != 0 && rounded == 0;
    counts_.saturated += finite && std::fabs(scaled) >= overflow_from_;
    if (!finite) return;
    const auto exact = static_cast<double>(x), element = static_cast<double>(rounded);
    const double back = multiplies_back_ ? element * static_cast<double>(scale.decode)
                                         : element / static_cast<double>(scale.encode);
    signal_ += exact * exact, noise_ += (exact - back) * (exact - back);
  }

  // A plain format has neither blocks nor causes of loss: those figures say nothing.
  telemetry::BlockFigures Figures() const {
    telemetry::BlockFigures figures = counts_;
    figures.lost_pct_nonzero = PercentOf(figures.lost, figures.numel - figures.zeros);
    figures.sqnr_db = DecibelsOf(signal_, noise_);
    return figures;
  }

 private:
  NumberFormat format_;
  float overflow_from_;
  bool multiplies_back_;
  telemetry::BlockFigures counts_;
  double signal_ = 0, noise_ = 0;  // sums over finite values
};

// An operand's values, and where its lines lie among them.
struct PlacedValues {
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

// As products read them: of a convolution, or a linear layer of tokens, the channels of a pixel lie
// together.
PlacedValues PlacedValuesOf(const MatmulTensors& layer, Operand operand) {
  const StoredTensor& tensor = layer.Of(operand);
  PlacedValues of;
  of.bf16 = tensor.bf16;
  of.place = {IsWeight(operand), layer.linear, layer.groups,
              AlongChannels(operand, layer.transposed), tensor.dims};
  of.place.channels_last = !IsWeight(operand) && !layer.linear;
  of.values = of.place.channels_last ? ChannelsLast(tensor) : tensor.values;
  return of;
}

// The groups of dw that a transform mixes: images at one place, or pixels where a pixel of x meets
// one of dy alone (backend/hadamard.h).
OperandLines LinesOfTransform(const MatmulTensors& layer, Operand operand, const PlacedValues& of) {
  const bool down = operand == Operand::kDwX || operand == Operand::kDwDy;
  if (!down || layer.pointwise || of.place.linear) return LinesOfOperand(of.place);
  const std::int64_t width = std::ssize(of.values) / of.place.dims[0];
  return {{width, 1, of.place.dims[0], 1, 0, width}, 1, 0};
}

// Random signs are not in the stored tensors.
constexpr std::uint64_t kSeed = 1, kDraw = 1;

void Transform(const MatmulTensors& layer, Operand operand, const backend::HadamardRule& rule,
               PlacedValues& of) {
  const OperandLines lines = LinesOfTransform(layer, operand, of);
  const std::vector<float> signs = rule.Signs(kSeed, kDraw);
  for (std::int64_t i = 0; i < lines.planes; ++i)
    backend::HadamardOfLines(signs, lines.layout, of.values.data() + i * lines.size);
  if (of.bf16)
    for (float& x : of.values) x = RoundTo(kBf16, x);
}

// One scale for all values; a scale from earlier steps follows that of the tensor.
scaling::RowScale ScaleOfTensor(const graph::OperandRule& rule, const scaling::TensorScaleRule& how,
                                Operand operand, const std::vector<float>& values) {
  if (rule.format == kFp32) return {};
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

void CountLines(const scaling::TensorScaleRule& how, const PlacedValues& of, PlainCounts& counts) {
  const OperandLines lines = LinesOfOperand(of.place);
  const BlockLayout& layout = lines.layout;
  for (std::int64_t plane = 0; plane < lines.planes; ++plane) {
    const float* values = of.values.data() + plane * lines.size;
    const std::vector<float> amaxes = RowAmaxesOf(layout, values);
    for (std::int64_t m = 0; m < layout.matrices; ++m)
      for (std::int64_t r = 0; r < layout.rows; ++r) {
        const float amax = amaxes[static_cast<std::size_t>(m * layout.rows + r)];
        const scaling::RowScale scale = scaling::RowScaleOf(how, amax, of.bf16);
        const float* row = values + m * layout.matrix_stride + r * layout.row_stride;
        for (std::int64_t i = 0; i < layout.length; ++i) counts.Take(scale, row[i * layout.stride]);
      }
  }
}

telemetry::BlockFigures FiguresOf(const graph::OperandRule& rule, Operand operand,
                                  const PlacedValues& of) {
  telemetry::BlockFigures figures;
  if (rule.block) {
    BlockCounts counts;
    QuantizeOperand(*rule.block, of.place, of.bf16, of.values, nullptr, &counts);
    figures.Take(counts);
    return figures;
  }
  scaling::TensorScaleRule how = rule.scaling;
  how.format_max = rule.format.largest();
  how.integer = IsInteger(rule.format);
  const bool by_row = rule.scaling.kind == Kind::kRow && rule.format != kFp32;
  PlainCounts counts(rule.format, by_row && scaling::MultipliesBack(how));
  if (by_row) {
    CountLines(how, of, counts);
  } else {
    const scaling::RowScale scale = ScaleOfTensor(rule, how, operand, of.values);
    for (const float x : of.values) counts.Take(scale, x);
  }
  return counts.Figures();
}

// The words of `cause`. A plain format has one: what its scale is of.
std::string CauseOf(const graph::OperandRule& rule, const telemetry::BlockFigures& figures) {
  if (figures.saturated > figures.lost) return "saturated";
  if (figures.lost == 0) return "";
  if (rule.block) {
    const std::pair<std::int64_t, const char*> causes[] = {
        {figures.lost_beside_largest, "block"},
        {figures.lost_scale_rounding, "scale rounding"},
        {figures.lost_scale_floor, "scale floor"},
        {figures.lost_tensor_scale, "tensor scale"}};
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

std::string RefuseShapes(const MatmulTensors& t) {
  if (t.w && (t.w.dims.size() < 2 || t.groups < 1 || t.w.dims[0] % t.groups != 0))
    return "its w has no shape of a linear layer or convolution of " + std::to_string(t.groups) +
           " groups";
  // A linear layer's input may be an image, all of whose values are its features.
  const auto channels = [&](const StoredTensor& tensor) -> std::int64_t {
    if (tensor.dims.size() < 2) return -1;
    std::int64_t count = tensor.dims[1];
    for (std::size_t i = 2; t.linear && i < tensor.dims.size(); ++i) count *= tensor.dims[i];
    return count;
  };
  if (t.w) {
    std::int64_t in = t.w.dims[1] * t.groups, out = t.w.dims[0];
    if (t.transposed) std::swap(in, out);
    if (t.x && channels(t.x) != in) return "x and w have different numbers of input channels";
    if (t.dy && channels(t.dy) != out) return "dy and w have different numbers of output channels";
  }
  if (t.x && t.dy && t.x.dims[0] != t.dy.dims[0]) return "x and dy are of different batches";
  return {};
}

graph::OperandRule PlainRule(const AnyFormat& format) {
  graph::OperandRule rule;
  rule.rounds = true;
  if (const auto* block = std::get_if<BlockFormat>(&format))
    rule.block = *block;
  else
    rule.format = std::get<NumberFormat>(format);
  return rule;
}

std::optional<OperandRow> JudgeOperand(const MatmulTensors& layer, Operand operand,
                                       const graph::OperandRule& rule) {
  const StoredTensor& tensor = layer.Of(operand);
  if (!rule.rounds || !tensor) return std::nullopt;
  PlacedValues of = PlacedValuesOf(layer, operand);
  if (rule.hadamard) Transform(layer, operand, rule.hadamard, of);
  OperandRow row;
  static_cast<telemetry::BlockFigures&>(row) = FiguresOf(rule, operand, of);
  row.layer = layer.layer, row.tensor = NameOf(operand), row.format = FormatName(rule.named());
  row.scale = tensor.scale;
  row.cause = CauseOf(rule, row);
  return row;
}

std::vector<std::string> JudgedLayers(const config::ModelConfig& model,
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

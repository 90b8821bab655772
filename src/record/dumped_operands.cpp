// number/blocks/operand_blocks.h defines how blocks lie in an operand; here the tensors of a graph
// are described in its terms. The backend does not store the scales of operands: they exist only
// within its products. They are computed here once more, by the scalar rules, which give the same
// bits.
#include "record/dumped_operands.h"

#include <algorithm>
#include <optional>

#include "backend/hadamard.h"
#include "backend/specs.h"
#include "io/tensor_names.h"
#include "number/random.h"
#include "step/weight_values.h"

namespace ada::record {

OperandLayer::OperandLayer(const graph::LayerRow& row, const graph::Parameter& w)
    : weight(w.dims),
      groups(row.groups),
      transposed(row.kind == backend::ConvTranspose2dSpec::kKind) {}

OperandPlace OperandLayer::PlaceOfWeight(Operand operand) const {
  return {true, weight.size() == 2, groups, AlongChannels(operand, transposed), weight};
}

// A linear layer takes an image as one row, or each of its tokens.
OperandPlace OperandLayer::PlaceOfBatch(Operand operand, const Shape& shape,
                                        std::int64_t rows) const {
  const bool is_x = operand == Operand::kForwardX || operand == Operand::kDwX;
  const bool linear = weight.size() == 2 && shape.per_image() == (is_x ? weight[1] : weight[0]);
  return {
      false,  linear, groups, AlongChannels(operand, transposed), {rows, shape.c, shape.h, shape.w},
      !linear};
}

// Collective only where the processes decide together, since then the backend's scale of the tensor
// is also that of all.
float AmaxOfBatch(const std::vector<float>& values, step::Team& team) {
  const float amax = AmaxOf(values);
  if (!team.decides_together()) return amax;
  return static_cast<float>(backend::LargestOfAll(team.all(), static_cast<double>(amax)));
}

std::vector<float> RowAmaxesOfBatch(const OperandPlace& place, const std::vector<float>& values,
                                    step::Team& team) {
  std::vector<float> amaxes = RowAmaxesOfOperand(place, values);
  if (!team.decides_together() || place.along_channels) return amaxes;
  backend::LargestOfAll(team.all(), amaxes);
  return amaxes;
}

namespace {

// A batch's values as PlaceOfBatch has them, and their largest magnitude.
struct OperandValues {
  std::vector<float> values;
  float amax = 0;
};

// The amaxes of the rows whose stored scales are `scales`, in the same order.
OperandScales RowsOf(const OperandScales& scales, std::vector<float> amaxes) {
  return {{scales.dims[0], scales.dims[1], 1}, std::move(amaxes)};
}

}  // namespace

// What is no whole group is in bf16 already.
std::vector<float> Transformed(std::vector<float> values, const OperandLines& lines,
                               const std::vector<float>& signs, bool bf16) {
  for (std::int64_t i = 0; i < lines.planes; ++i)
    backend::HadamardOfLines(signs, lines.layout, values.data() + i * lines.size);
  if (bf16)
    for (float& x : values) x = RoundTo(kBf16, x);
  return values;
}

// Only layers with an operand in a block-scaled format are kept; of all others OfWeight and OfBatch
// return nothing.
DumpedOperands::DumpedOperands(const graph::Graph& graph, step::Team& team) : team_(team) {
  std::map<std::string, const graph::LayerRow*> rows;
  for (const graph::LayerRow& row : graph.layers()) rows[row.name] = &row;
  for (const graph::RoundingPoint& point : graph.roundings()) {
    if (!point.block || !OperandNamed(point.tensor)) continue;  // attention's are not dumped
    const graph::Parameter* weight = step::WeightOf(graph, point.layer);
    if (weight == nullptr) continue;
    Layer& layer = layers_[point.layer];
    const graph::LayerRow& row = *rows.at(point.layer);
    layer.is = OperandLayer(row, *weight);
    const bool single = weight->dims.size() == 2 || (weight->dims[2] == 1 && weight->dims[3] == 1);
    layer.pointwise = single && row.stride == std::array{1, 1};
    layer.rounded[OperandNamed(point.tensor).value()] = {*point.block, point.hadamard,
                                                         point.laid_as, point.adaptive};
  }
}

float DumpedOperands::AdaptedAmax(const Rounded& rounded, const OperandPlace& place, bool bf16,
                                  const std::vector<float>& values, float amax, bool shared) const {
  if (!rounded.adaptive) return amax;
  const scaling::BlockRangeScale scale(rounded.format, bf16, amax);
  if (!scale.adapts()) return amax;
  scaling::BlockRange range = scaling::RangeOfOperand(rounded.format, place, values, scale);
  if (shared) {
    const auto all = parallel::GatherAll(team_.all(), range);
    range = {};
    for (const scaling::BlockRange& one : all) range.Add(one);
  }
  return scale.AmaxOf(scale.Choose(*rounded.adaptive, range));
}

std::vector<DumpedScales> DumpedOperands::OfWeight(const std::string& layer,
                                                   const graph::RoundingPoint& copy,
                                                   const std::vector<float>& values) const {
  std::vector<DumpedScales> all;
  const auto found = layers_.find(layer);
  if (found == layers_.end()) return all;
  for (const auto& [operand, rounded] : found->second.rounded) {
    if (!IsWeight(operand)) continue;
    const OperandPlace place = found->second.is.PlaceOfWeight(rounded.laid_as.value_or(operand));
    const bool bf16 = IsKeptInBf16(copy);
    std::vector<float> taken = values;
    if (rounded.hadamard)
      taken = Transformed(std::move(taken), LinesOfOperand(place),
                          rounded.hadamard.Signs(refresh_.seed, refresh_.draw), bf16);
    OperandAmaxes amaxes{AdaptedAmax(rounded, place, bf16, taken, AmaxOf(taken), false), {}};
    if (rounded.format.row_scaled) amaxes.rows = RowAmaxesOfOperand(place, taken);
    DumpedScales& of = all.emplace_back(
        DumpedScales{NameOf(operand), FormatName(rounded.format),
                     ScalesOfOperand(rounded.format, place, bf16, taken, amaxes), *amaxes.tensor});
    if (rounded.format.row_scaled) of.row_amaxes = RowsOf(of.scales, std::move(amaxes.rows));
  }
  return all;
}

// A tensor is an operand of two matmuls, each of which may have its own format and transform; what
// both have in common is read and measured once.
std::vector<DumpedScales> DumpedOperands::OfBatch(const graph::ObservedTensor& seen,
                                                  const backend::Pass& pass,
                                                  const std::vector<float>& values) const {
  std::vector<DumpedScales> all;
  const auto found = layers_.find(seen.layer);
  const bool is_x = seen.tensor == "x";
  if (found == layers_.end() || !(is_x || seen.tensor == "dy")) return all;
  const Layer& layer = found->second;
  const Shape& shape = seen.value.shape;
  const bool bf16 = IsKeptInBf16(seen.value.format, seen.value.storage);
  const auto take = [&](std::vector<float> rows, bool linear) {
    OperandValues taken{linear ? AsPyTorch(rows, shape) : std::move(rows)};
    taken.amax = AmaxOfBatch(taken.values, team_);
    return taken;
  };
  std::optional<OperandValues> plain;  // what is not transformed, for both matmuls
  for (const auto& [operand, rounded] : layer.rounded) {
    if (IsWeight(operand) || std::string(NameOf(operand)).ends_with(".x") != is_x) continue;
    const OperandPlace place =
        layer.is.PlaceOfBatch(rounded.laid_as.value_or(operand), shape, pass.rows);
    std::optional<OperandValues> transformed;
    if (rounded.hadamard) {
      // The lines of dw run along images or pixels, others along channels, in PyTorch's order.
      const bool down = operand == Operand::kDwX || operand == Operand::kDwDy;
      const backend::Pass& drawn = down ? pass : refresh_;
      const std::vector<float> signs = rounded.hadamard.Signs(drawn.seed, drawn.draw);
      const std::int64_t width = layer.pointwise && !place.linear ? shape.c : shape.per_image();
      const BlockLayout rows = {width, 1, std::ssize(values) / width, 1, 0, width};
      std::vector<float> turned = down || !place.linear ? values : AsPyTorch(values, shape);
      turned = Transformed(std::move(turned), down ? OperandLines{rows} : LinesOfOperand(place),
                           signs, bf16);
      transformed = take(std::move(turned), down && place.linear);
    } else if (!plain) {
      plain = take(values, place.linear);
    }
    const OperandValues& taken = transformed ? *transformed : *plain;
    OperandAmaxes amaxes{
        AdaptedAmax(rounded, place, bf16, taken.values, taken.amax, team_.decides_together()), {}};
    if (rounded.format.row_scaled) amaxes.rows = RowAmaxesOfBatch(place, taken.values, team_);
    OperandScales scales = ScalesOfOperand(rounded.format, place, bf16, taken.values, amaxes);
    std::optional<OperandScales> rows;
    if (rounded.format.row_scaled) rows = RowsOf(scales, std::move(amaxes.rows));
    const float carried = seen.scale != nullptr ? *seen.scale : 1.0F;
    // Amaxes carry the same factor as values; the stored scales below a row's scale do not.
    Join(place, rows && place.along_channels ? 1.0F : carried, scales);
    if (rows && place.along_channels) Join(place, carried, *rows);
    all.push_back({NameOf(operand), FormatName(rounded.format), std::move(scales), *amaxes.tensor,
                   std::move(rows)});
  }
  return all;
}

// Puts those of all processes together, as if they carried the S of the first.
void DumpedOperands::Join(const OperandPlace& place, float factor, OperandScales& scales) const {
  // The axis that the batch runs along: lines where blocks are cut along the channels, else the
  // blocks of a line. A process may have no rows, so sizes are gathered first and values padded to
  // the largest.
  const std::size_t axis = place.along_channels ? 1 : 2;
  const std::vector<std::int64_t> counts = parallel::GatherAll(team_.all(), scales.dims[axis]);
  const std::vector<float> factors = parallel::GatherAll(team_.all(), factor);
  const std::int64_t outer = axis == 1 ? scales.dims[0] : scales.dims[0] * scales.dims[1];
  const std::int64_t inner = axis == 1 ? scales.dims[2] : 1;
  const std::int64_t most = outer * inner * *std::max_element(counts.begin(), counts.end());
  scales.values.resize(static_cast<std::size_t>(most));
  const std::vector<float> all = parallel::GatherAll(team_.all(), scales.values);
  scales.values.clear();
  scales.dims[axis] = 0;
  for (const std::int64_t count : counts) scales.dims[axis] += count;
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      const std::int64_t size = counts[rank] * inner;
      const float* from = all.data() + static_cast<std::int64_t>(rank) * most + i * size;
      const float times = rank == 0 ? 1 : factors[0] / factors[rank];
      for (std::int64_t k = 0; k < size; ++k) scales.values.push_back(from[k] * times);
    }
  }
}

}  // namespace ada::record

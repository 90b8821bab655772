// Rounds the operands of a matmul to each format, and counts what that loses.
#include "judge/operand_judge.h"

#include <cmath>
#include <utility>

#include "judge/plain_counts.h"
#include "number/blocks/operand_blocks.h"
#include "number/stats.h"

namespace ada::judge {
namespace {

OperandRow OperandRowOf(const MatmulTensors& layer, const char* name, const StoredTensor& tensor,
                        const OperandPlace& place, const AnyFormat& format) {
  OperandRow row;
  row.layer = layer.layer, row.tensor = name, row.format = FormatName(format);
  row.scale = tensor.scale;
  if (const auto* blocks = std::get_if<BlockFormat>(&format)) {
    BlockCounts counts;
    QuantizeOperand(*blocks, place, tensor.bf16, tensor.values, nullptr, &counts);
    row.Take(counts);
  } else {
    // A plain format has neither blocks nor causes of loss; those figures stay as they are.
    PlainCounts counts(std::get<NumberFormat>(format));
    for (const float x : tensor.values) counts.Take({}, x);
    counts.GoTo(row);
  }
  return row;
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

std::vector<OperandRow> JudgeOperands(const MatmulTensors& t, const AnyFormat& format) {
  std::vector<OperandRow> rows;
  for (std::size_t i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const StoredTensor& tensor = t.Of(operand);
    if (!tensor) continue;
    const OperandPlace place{IsWeight(operand), t.linear, t.groups,
                             AlongChannels(operand, t.transposed), tensor.dims};
    rows.push_back(OperandRowOf(t, NameOf(operand), tensor, place, format));
  }
  return rows;
}

}  // namespace ada::judge

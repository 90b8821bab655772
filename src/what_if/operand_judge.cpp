#include "what_if/operand_judge.h"

#include <cmath>

#include "core/blocks/operand_blocks.h"
#include "core/stats.h"

namespace ada::what_if {
namespace {

// What rounding to a plain format does.
void TakePlain(const StoredTensor& tensor, const NumberFormat& format,
               telemetry::BlockFigures& figures) {
  double signal = 0, noise = 0;
  for (const float x : tensor.values) {
    const float rounded = RoundTo(format, x);
    const bool finite = std::isfinite(x);
    ++figures.numel;
    figures.zeros += x == 0;
    figures.inf += std::isinf(x);
    figures.nan += std::isnan(x);
    figures.lost += x != 0 && rounded == 0;
    figures.saturated += finite && std::fabs(x) >= OverflowThreshold(format);
    const auto exact = static_cast<double>(x), error = exact - static_cast<double>(rounded);
    signal += exact * exact, noise += error * error;
  }
  figures.lost_pct_nonzero = PercentOf(figures.lost, figures.numel - figures.zeros);
  if (signal > 0) figures.sqnr_db = 10 * std::log10(signal / noise);
}

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
    TakePlain(tensor, std::get<NumberFormat>(format), row);
  }
  return row;
}

}  // namespace

std::string RefuseShapes(const MatmulTensors& t) {
  if (t.w && (t.w.dims.size() < 2 || t.groups < 1 || t.w.dims[0] % t.groups != 0))
    return "its w has no shape of a linear layer or convolution of " + std::to_string(t.groups) +
           " groups";
  const auto channels = [&](const StoredTensor& tensor) -> std::int64_t {
    if (tensor.dims.size() < 2) return -1;
    std::int64_t count = tensor.dims[1];
    for (std::size_t i = 2; t.linear && i < tensor.dims.size(); ++i) count *= tensor.dims[i];
    return count;
  };
  const StoredTensor &whole = t.transposed ? t.x : t.dy, &grouped = t.transposed ? t.dy : t.x;
  const char* const sides[] = {"x and w have different numbers of input channels",
                               "dy and w have different numbers of output channels"};
  if (grouped && t.w && channels(grouped) != t.w.dims[1] * t.groups) return sides[t.transposed];
  if (whole && t.w && channels(whole) != t.w.dims[0]) return sides[!t.transposed];
  if (t.x && t.dy && t.x.dims[0] != t.dy.dims[0]) return "x and dy are of different batches";
  return {};
}

std::vector<OperandRow> JudgeOperands(const MatmulTensors& t, const AnyFormat& format) {
  std::vector<OperandRow> rows;
  const auto add = [&](const char* name, const StoredTensor& tensor, bool along_channels) {
    if (!tensor) return;
    const OperandPlace place{&tensor == &t.w, t.linear, t.groups, along_channels, tensor.dims};
    rows.push_back(OperandRowOf(t, name, tensor, place, format));
  };
  add("forward.x", t.x, true);
  add("forward.w", t.w, !t.transposed);
  add("dx.dy", t.dy, true);
  add("dx.w", t.w, t.transposed);
  add("dw.x", t.x, false);
  add("dw.dy", t.dy, false);
  return rows;
}

}  // namespace ada::what_if

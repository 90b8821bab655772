#include "what_if/operand_judge.h"

#include <cmath>

#include "core/blocks/block_quantizer.h"
#include "core/stats.h"

namespace ada::what_if {
namespace {

// A matrix whose rows or columns are summed over, in groups that share nothing.
struct Plane {
  const float* values = nullptr;
  BlockLayout across;                         // rows as they are, blocks along columns
  BlockLayout down;                           // blocks along rows
  std::int64_t groups = 1, group_stride = 0;  // such planes, one after the other
};

// x or dy as [images and pixels, channels]; groups split the channels.
std::vector<float> PixelsFirst(const ProductTensors& layer, const StoredTensor& tensor) {
  if (layer.linear) return tensor.values;
  const auto images = static_cast<std::size_t>(tensor.dims[0]);
  const auto channels = static_cast<std::size_t>(tensor.dims[1]);
  const std::size_t pixels =
      images * channels == 0 ? 0 : tensor.values.size() / (images * channels);
  std::vector<float> turned(tensor.values.size());
  for (std::size_t n = 0, from = 0; n < images; ++n) {
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t p = 0; p < pixels; ++p)
        turned[(n * pixels + p) * channels + c] = tensor.values[from++];
    }
  }
  return turned;
}

Plane PlaneOfBatch(const ProductTensors& layer, const StoredTensor& tensor,
                   const std::vector<float>& values) {
  const auto size = static_cast<std::int64_t>(values.size());
  const std::int64_t images = tensor.dims[0];
  const std::int64_t columns = !layer.linear ? tensor.dims[1] : images == 0 ? 0 : size / images;
  const std::int64_t rows = columns == 0 ? 0 : size / columns;
  const std::int64_t group = columns / layer.groups;
  Plane plane;
  plane.values = values.data();
  plane.across = {layer.groups, rows, group, group, columns, 1};
  plane.down = {1, columns, rows, 0, 1, columns};
  return plane;
}

// w: rows are output channels, columns input channels, at each tap.
Plane PlaneOfWeights(const ProductTensors& layer) {
  const std::vector<std::int64_t>& dims = layer.w.dims;
  const std::int64_t columns = dims[1], rows = dims[0] / layer.groups;
  std::int64_t taps = 1;
  for (std::size_t i = 2; i < dims.size(); ++i) taps *= dims[i];
  Plane plane;
  plane.values = layer.w.values.data();
  plane.across = {taps, rows, columns, 1, columns * taps, taps};
  plane.down = {1, columns * taps, rows, 0, 1, columns * taps};
  plane.groups = layer.groups, plane.group_stride = rows * columns * taps;
  return plane;
}

BlockCounts CountBlocks(const Plane& plane, const StoredTensor& tensor, bool down,
                        const BlockFormat& format) {
  BlockCounts counts;
  const float amax = AmaxOf(tensor.values);
  for (std::int64_t group = 0; group < plane.groups; ++group) {
    QuantizeBlocks(format, down && !format.square ? plane.down : plane.across, amax, tensor.bf16,
                   plane.values + group * plane.group_stride, {}, &counts);
  }
  return counts;
}

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

OperandRow OperandRowOf(const ProductTensors& layer, const char* name, const Plane& plane,
                        const StoredTensor& tensor, bool down, const AnyFormat& format) {
  OperandRow row;
  row.layer = layer.layer, row.tensor = name, row.format = FormatName(format);
  row.scale = tensor.scale;
  if (const auto* blocks = std::get_if<BlockFormat>(&format))
    row.Take(CountBlocks(plane, tensor, down, *blocks));
  else
    TakePlain(tensor, std::get<NumberFormat>(format), row);
  return row;
}

}  // namespace

std::string RefuseShapes(const ProductTensors& t) {
  if (t.w && (t.w.dims.size() < 2 || t.groups < 1 || t.w.dims[0] % t.groups != 0))
    return "its w has no shape of a linear layer or convolution of " + std::to_string(t.groups) +
           " groups";
  const auto channels = [&](const StoredTensor& tensor) -> std::int64_t {
    if (tensor.dims.size() < 2) return -1;
    std::int64_t count = tensor.dims[1];
    for (std::size_t i = 2; t.linear && i < tensor.dims.size(); ++i) count *= tensor.dims[i];
    return count;
  };
  if (t.x && t.w && channels(t.x) != t.w.dims[1] * t.groups)
    return "x and w have different numbers of input channels";
  if (t.dy && t.w && channels(t.dy) != t.w.dims[0])
    return "dy and w have different numbers of output channels";
  if (t.x && t.dy && t.x.dims[0] != t.dy.dims[0]) return "x and dy are of different batches";
  return {};
}

std::vector<OperandRow> JudgeOperands(const ProductTensors& t, const AnyFormat& format) {
  const std::vector<float> x = t.x ? PixelsFirst(t, t.x) : std::vector<float>();
  const std::vector<float> dy = t.dy ? PixelsFirst(t, t.dy) : std::vector<float>();
  const Plane of_x = t.x ? PlaneOfBatch(t, t.x, x) : Plane();
  const Plane of_w = t.w ? PlaneOfWeights(t) : Plane();
  const Plane of_dy = t.dy ? PlaneOfBatch(t, t.dy, dy) : Plane();
  std::vector<OperandRow> rows;
  const auto add = [&](const char* name, const Plane& plane, const StoredTensor& tensor,
                       bool down) {
    if (tensor) rows.push_back(OperandRowOf(t, name, plane, tensor, down, format));
  };
  add("forward.x", of_x, t.x, false);
  add("forward.w", of_w, t.w, false);
  add("dx.dy", of_dy, t.dy, false);
  add("dx.w", of_w, t.w, true);
  add("dw.x", of_x, t.x, true);
  add("dw.dy", of_dy, t.dy, true);
  return rows;
}

}  // namespace ada::what_if

// QuantizeBlocks numbers scales by matrix, row and block; a file wants them as a tensor whose axes
// are those of the values. OrderedScales and OrderedRowAmaxes go from one order to the other.
#include "study/convert/block_tensor.h"

#include <algorithm>
#include <string>

#include "error.h"
#include "io/shown_text.h"

namespace ada::study {
namespace {

std::vector<float> ValuesOf(const SafetensorsFile& file, const TensorEntry& entry, float factor) {
  if (entry.dtype != DType::kF64) {
    std::vector<float> values = file.ReadF32(entry.name);
    for (float& x : values) x *= factor;
    return values;
  }
  const std::vector<double> wide = file.ReadF64(entry.name);
  std::vector<float> values(wide.size());
  std::transform(wide.begin(), wide.end(), values.begin(),
                 [&](double x) { return static_cast<float>(x * static_cast<double>(factor)); });
  return values;
}

std::size_t AxisOf(const SafetensorsFile& file, const TensorEntry& entry, std::optional<int> axis) {
  // A scalar is taken as one axis of one value.
  const int rank = std::max(1, static_cast<int>(entry.shape.size()));
  const int wanted = axis.value_or(-1);
  if (wanted >= -rank && wanted < rank)
    return static_cast<std::size_t>(wanted < 0 ? wanted + rank : wanted);
  throw ConfigError("--axis " + std::to_string(wanted) + ": tensor " + Shown(entry.name) + " of " +
                    file.path() + " has " +
                    (rank == 1 ? "one axis" : std::to_string(rank) + " axes") + "; expected " +
                    std::to_string(-rank) + " to " + std::to_string(rank - 1) +
                    ", or --tensors with a glob that leaves it out");
}

// Whether the tiles' rows are axis 1, not the axes before the blocks'.
// Tiles span the blocks' axis and the axes before it as one, or, where blocks run along axis 0, the
// axis after it.
bool RowsFollow(const BlockTensor& tensor, const BlockFormat& format) {
  return format.square && tensor.axis == 0 && tensor.shape.size() > 1;
}

}  // namespace

BlockTensor ReadBlockTensor(const SafetensorsFile& file, const TensorEntry& entry,
                            const BlockFormat& format, std::optional<int> axis, float factor) {
  BlockTensor tensor;
  tensor.axis = AxisOf(file, entry, axis);
  tensor.shape = entry.shape;
  tensor.layout = BlockLayoutOf(entry.shape, tensor.axis, format.square);
  tensor.values = ValuesOf(file, entry, factor);
  tensor.amax = AmaxOf(tensor.values);
  // The largest scale that a rule may give depends on the type that values come in.
  tensor.bf16 = entry.dtype == DType::kBF16;
  return tensor;
}

std::vector<std::int64_t> ShapeOfScales(const BlockTensor& tensor, const BlockFormat& format) {
  const std::int64_t rows = tensor.layout.block_rows(format);
  const std::int64_t blocks = tensor.layout.blocks_per_row(format);
  std::vector<std::int64_t> shape = tensor.shape;
  if (!format.square) {
    if (!shape.empty()) shape[tensor.axis] = blocks;
    return shape;
  }
  const std::size_t after = RowsFollow(tensor, format) ? 2 : tensor.axis + 1;
  // The axes up to the tiles' second one give way to the two of rows and blocks.
  shape.erase(shape.begin(),
              shape.begin() + static_cast<std::ptrdiff_t>(std::min(after, tensor.shape.size())));
  const bool swapped = RowsFollow(tensor, format);
  shape.insert(shape.begin(), {swapped ? blocks : rows, swapped ? rows : blocks});
  return shape;
}

std::vector<std::int64_t> ShapeOfRows(const BlockTensor& tensor) {
  std::vector<std::int64_t> shape = tensor.shape;
  if (!shape.empty()) shape[tensor.axis] = 1;
  return shape;
}

std::vector<float> OrderedRowAmaxes(const BlockTensor& tensor) {
  const std::vector<float> amaxes = RowAmaxesOf(tensor.layout, tensor.values.data());
  const auto matrices = static_cast<std::size_t>(tensor.layout.matrices);
  const auto rows = static_cast<std::size_t>(tensor.layout.rows);
  std::vector<float> ordered(amaxes.size());
  for (std::size_t m = 0; m < matrices; ++m)
    for (std::size_t r = 0; r < rows; ++r) ordered[r * matrices + m] = amaxes[m * rows + r];
  return ordered;
}

std::vector<float> OrderedScales(const BlockTensor& tensor, const BlockFormat& format,
                                 const std::vector<float>& scales) {
  const auto matrices = static_cast<std::size_t>(tensor.layout.matrices);
  const auto rows = static_cast<std::size_t>(tensor.layout.block_rows(format));
  const auto blocks = static_cast<std::size_t>(tensor.layout.blocks_per_row(format));
  const bool swapped = RowsFollow(tensor, format);
  std::vector<float> ordered(scales.size());
  // The matrix is the fastest axis of the file's order: what follows the blocks' axis.
  for (std::size_t m = 0, from = 0; m < matrices; ++m) {
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t b = 0; b < blocks; ++b)
        ordered[(swapped ? b * rows + r : r * blocks + b) * matrices + m] = scales[from++];
    }
  }
  return ordered;
}

}  // namespace ada::study

// Values are read and their blocks placed; scales go from the order of the quantizer to that of a
// file's tensor.
#include "study/convert/block_tensor.h"

#include <algorithm>
#include <string>

#include "error.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "number/number_format.h"

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

// The codes of stored scales, which are on the grid of their format.
std::vector<std::byte> CodesOfScales(const BlockFormat& format, const std::vector<float>& scales) {
  std::vector<std::byte> codes(scales.size());
  std::transform(scales.begin(), scales.end(), codes.begin(), [&](float scale) {
    return static_cast<std::byte>(ScaleCodeOf(format.scale, scale));
  });
  return codes;
}

// mxint8's are whole numbers as well, of 1/64.
bool HasWholeCodes(const NumberFormat& element) { return IsInteger(element) || element == kMxInt8; }

// Two's complement of codes with their sign on top, which are whole numbers below it.
std::vector<std::byte> WholeCodes(const NumberFormat& element, std::vector<std::byte> codes) {
  const auto minus = std::byte{1} << (element.exponent_bits + element.mantissa_bits);
  for (std::byte& code : codes)
    if ((code & minus) != std::byte{0})
      code = static_cast<std::byte>(-std::to_integer<int>(code & ~minus));
  return codes;
}

// Bit `bit` of each `step`th value along the axis: what `step` values share.
void AddEach(const std::string& name, const ScaledBlocks& blocks, std::int64_t step, int bit,
             TensorList& to) {
  std::vector<std::int64_t> shape = blocks.shape;
  std::int64_t inner = 1, length = 1;
  for (std::size_t i = blocks.axis + 1; i < shape.size(); ++i) inner *= shape[i];
  if (!shape.empty()) {
    length = shape[blocks.axis];
    shape[blocks.axis] = (length + step - 1) / step;
  }
  std::vector<std::byte> bits;
  for (std::size_t i = 0; i < blocks.doubled.size(); ++i)
    if (static_cast<std::int64_t>(i) / inner % length % step == 0)
      bits.push_back(blocks.doubled[i] >> bit & std::byte{1});
  to.Add(name, DType::kU8, std::move(shape), std::move(bits));
}

// The shape of the tensor of scales: that of the values, with the length of the axis replaced by
// the number of blocks along it. For square blocks it is [rows of tiles, blocks, the axes after];
// if they run along axis 0, [blocks, rows of tiles, the axes after axis 1].
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

// That of the largest magnitudes of rows: 1 in the place of the axis. A scalar has no axis.
std::vector<std::int64_t> ShapeOfRows(const BlockTensor& tensor) {
  std::vector<std::int64_t> shape = tensor.shape;
  if (!shape.empty()) shape[tensor.axis] = 1;
  return shape;
}

// These magnitudes; not of square blocks.
std::vector<float> OrderedRowAmaxes(const BlockTensor& tensor) {
  const std::vector<float> amaxes = RowAmaxesOf(tensor.layout, tensor.values.data());
  const auto matrices = static_cast<std::size_t>(tensor.layout.matrices);
  const auto rows = static_cast<std::size_t>(tensor.layout.rows);
  std::vector<float> ordered(amaxes.size());
  for (std::size_t m = 0; m < matrices; ++m)
    for (std::size_t r = 0; r < rows; ++r) ordered[r * matrices + m] = amaxes[m * rows + r];
  return ordered;
}

// Scales as QuantizeBlocks gives them in the order of that tensor.
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

ScaledBlocks QuantizeTensor(const BlockTensor& tensor, const BlockFormat& format,
                            const RoundingWords* words) {
  ScaledBlocks blocks;
  blocks.shape = tensor.shape, blocks.axis = tensor.axis;
  blocks.values.resize(tensor.values.size());
  blocks.codes.resize(tensor.values.size());
  std::vector<float> scales(static_cast<std::size_t>(tensor.layout.blocks(format)));
  QuantizedBlocks output;
  output.values = blocks.values.data();
  output.codes = reinterpret_cast<std::uint8_t*>(blocks.codes.data());
  output.scales = scales.data();
  if (format.rule == BlockRule::kHiFloat4) {
    blocks.doubled.resize(tensor.values.size());
    output.doubled = reinterpret_cast<std::uint8_t*>(blocks.doubled.data());
  }
  if (words != nullptr) output.words = *words;
  QuantizeBlocks(format, tensor.layout, tensor.amax, tensor.bf16, tensor.values.data(), output,
                 nullptr);
  blocks.scales = OrderedScales(tensor, format, scales);
  blocks.scales_shape = ShapeOfScales(tensor, format);
  if (format.row_scaled) {
    blocks.amaxes = OrderedRowAmaxes(tensor);
    blocks.amaxes_shape = ShapeOfRows(tensor);
  } else if (format.tensor_scale) {
    blocks.amaxes = {tensor.amax};
  }
  return blocks;
}

void AddParts(const std::string& name, const BlockFormat& format, const ScaledBlocks& blocks,
              const std::vector<std::int64_t>& shape, TensorList& to) {
  if (format.scale == BlockScale::kFp32)
    to.Add(name + kScaleEnding, blocks.scales_shape, blocks.scales);
  else
    to.Add(name + kScaleEnding, DType::kU8, blocks.scales_shape,
           CodesOfScales(format, blocks.scales));
  if (!blocks.amaxes.empty()) to.Add(name + kAmaxEnding, blocks.amaxes_shape, blocks.amaxes);
  if (!blocks.doubled.empty()) {
    AddEach(name + kEightsEnding, blocks, 8, 0, to);
    AddEach(name + kFoursEnding, blocks, 4, 1, to);
  }
  const bool whole = HasWholeCodes(format.element);
  to.Add(name + kCodesEnding, whole ? DType::kI8 : DType::kU8, shape,
         whole ? WholeCodes(format.element, blocks.codes) : blocks.codes);
}

void CheckTensorsGlob(const SafetensorsFile& file, const std::string& glob) {
  const auto matches = [&](const TensorEntry& entry) { return GlobMatch(glob, entry.name); };
  const auto& entries = file.entries();
  // A file without tensors is no fault of the glob.
  if (entries.empty() || std::any_of(entries.begin(), entries.end(), matches)) return;
  throw ConfigError("--tensors " + glob + ": matches none of the " +
                    std::to_string(entries.size()) + " tensors of " + file.path() +
                    "; the first is " + Shown(entries.front().name));
}

}  // namespace ada::study

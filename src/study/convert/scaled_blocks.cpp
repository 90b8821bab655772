// Scales go from the order of the quantizer to that of a file's tensor.
#include "study/convert/scaled_blocks.h"

#include <algorithm>

#include "number/format_codes.h"

namespace ada::study {
namespace {

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

}  // namespace

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

}  // namespace ada::study

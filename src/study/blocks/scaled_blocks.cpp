// Scales go from the order of the quantizer to that of a file's tensor.
#include "study/blocks/scaled_blocks.h"

#include <algorithm>

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

}  // namespace

ScaledBlocks QuantizeTensor(const BlockTensor& tensor, const BlockFormat& format,
                            const RoundingWords* words) {
  ScaledBlocks blocks;
  blocks.values.resize(tensor.values.size());
  blocks.codes.resize(tensor.values.size());
  std::vector<float> scales(static_cast<std::size_t>(tensor.layout.blocks(format)));
  QuantizedBlocks output;
  output.values = blocks.values.data();
  output.codes = reinterpret_cast<std::uint8_t*>(blocks.codes.data());
  output.scales = scales.data();
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

void AddScales(const std::string& name, const BlockFormat& format, const ScaledBlocks& blocks,
               TensorList& to) {
  if (format.scale == BlockScale::kFp32)
    to.Add(name + kScaleEnding, blocks.scales_shape, blocks.scales);
  else
    to.Add(name + kScaleEnding, DType::kU8, blocks.scales_shape,
           CodesOfScales(format, blocks.scales));
  if (!blocks.amaxes.empty()) to.Add(name + kAmaxEnding, blocks.amaxes_shape, blocks.amaxes);
}

}  // namespace ada::study

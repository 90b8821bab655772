// Where the blocks of a product's operands lie, for tensors in PyTorch's layouts: y = x w sums over
// input channels, dx = dy w over output channels, dw = x dy over images and pixels.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/blocks/block_quantizer.h"

namespace ada {

// An operand of a linear layer or convolution: x or dy [images, channels, pixels...], of a linear
// layer [images, ...], all values of an image its features; w [out, in / groups, taps...].
struct OperandPlace {
  bool weight = false;  // w
  bool linear = true;
  std::int64_t groups = 1;  // divides the channels
  // Blocks run along channels (input channels of w), or else along images and pixels (output
  // channels of w). Square tiles lie in the plane of both and are the same ones either way.
  bool along_channels = true;
  std::vector<std::int64_t> dims;
  // The values of a convolution's x or dy lie as [images, pixels..., channels], whatever dims say.
  bool channels_last = false;
};

// The largest magnitudes that an operand's scales follow from: of its tensor; and of each of its
// rows, [groups or taps, lines] (of weights groups before taps). A row is what is summed over for
// one place along the other axes: an image of a linear layer's forward.x, a pixel's channels of a
// group in a convolution's, a channel of the whole batch in dw.x.
struct OperandAmaxes {
  std::optional<float> tensor;  // unset: of the values
  std::vector<float> rows;      // read where the format is row_scaled; empty: of the values
};
std::vector<float> RowAmaxesOfOperand(const OperandPlace& place, const std::vector<float>& values);

// Quantizes an operand under one scale of the tensor, or of each row, if its format has one. No
// block holds values of two groups, or of two taps. `bf16`: the values are kept as bf16. `decoded`,
// unless null, is written in the layout of `values` and may be the same; counts, unless null, are
// added to.
void QuantizeOperand(const BlockFormat& format, const OperandPlace& place, bool bf16,
                     const std::vector<float>& values, float* decoded, BlockCounts* counts,
                     const OperandAmaxes& amaxes = {});

// The stored scales of an operand's blocks, [groups or taps, lines, blocks of a line]; of weights
// groups stand before taps.
struct OperandScales {
  std::vector<std::int64_t> dims;
  std::vector<float> values;
};
OperandScales ScalesOfOperand(const BlockFormat& format, const OperandPlace& place, bool bf16,
                              const std::vector<float>& values, const OperandAmaxes& amaxes);

}  // namespace ada

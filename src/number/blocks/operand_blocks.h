// Places of the blocks in a matmul's operands, for tensors in PyTorch's layouts: y = x w sums over
// input channels, dx = dy w over output channels, dw = x dy over images and pixels.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "number/blocks/block_quantizer.h"

namespace ada {

// An operand of a linear layer or convolution: x or dy [images, channels, pixels...], for a linear
// layer [images, ...] with all values of an image as features; w [out, in / groups, taps...].
struct OperandPlace {
  bool weight = false;  // w
  bool linear = true;
  std::int64_t groups = 1;  // divides the channels
  // Blocks run along channels (for w: input channels), otherwise along images and pixels (for w:
  // output channels). Square tiles lie in the plane of both and are the same in either case.
  bool along_channels = true;
  std::vector<std::int64_t> dims;
  // A convolution's x or dy is stored as [images, pixels..., channels], whatever dims says.
  bool channels_last = false;
};

// The largest magnitudes from which an operand's scales are computed: of its tensor, and of each of
// its rows, [groups or taps, lines] (for weights groups before taps). A row is all that is summed
// for one position on the other axes: an image of a linear layer's forward.x, a pixel's channels of
// one group in a convolution's, a channel of the whole batch in dw.x.
struct OperandAmaxes {
  std::optional<float> tensor;  // unset: computed from the values
  std::vector<float> rows;      // read if the format is row_scaled; empty: computed
};
std::vector<float> RowAmaxesOfOperand(const OperandPlace& place, const std::vector<float>& values);

// The lines of which a product sums up values, in `planes` planes of `size` values one after the
// other; of a batch with the channels of a pixel together.
struct OperandLines {
  BlockLayout layout;
  std::int64_t planes = 1, size = 0;
};
OperandLines LinesOfOperand(const OperandPlace& place);

// Quantizes an operand, with one tensor scale or one for each row if its format has such. No block
// contains values of two groups or two taps. `bf16`: the values are stored as bf16. `decoded`,
// unless null, is written in the layout of `values`, and may be `values` itself; `counts`, unless
// null, are increased.
void QuantizeOperand(const BlockFormat& format, const OperandPlace& place, bool bf16,
                     const std::vector<float>& values, float* decoded, BlockCounts* counts,
                     const OperandAmaxes& amaxes = {});

// Calls `body` with the values of each block of an operand, row by row.
void ForBlocksOfOperand(const BlockFormat& format, const OperandPlace& place,
                        const std::vector<float>& values,
                        const std::function<void(std::span<const float>)>& body);

// The stored scales of an operand's blocks, [groups or taps, lines, blocks of a line]; for weights
// groups come before taps.
struct OperandScales {
  std::vector<std::int64_t> dims;
  std::vector<float> values;
};
OperandScales ScalesOfOperand(const BlockFormat& format, const OperandPlace& place, bool bf16,
                              const std::vector<float>& values, const OperandAmaxes& amaxes);

}  // namespace ada

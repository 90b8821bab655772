// Windows that slide over height and width: convolutions and poolings.
#pragma once
#include <array>
#include <string>

#include "layers/layer_keys.h"
#include "number/tensor.h"

namespace ada::layers {

// Throws ConfigError where kernel, stride, padding or dilation make no sense.
void CheckWindow(const LayerKeys& keys);

// The shape after sliding the window over `input`: floor((in + 2 padding - effective kernel) /
// stride) + 1, as in PyTorch; `ceil`: rounded up instead, but the last window begins inside the
// input or the padding before it. Throws ConfigError where the window is larger than the padded
// input.
Shape Slide(const LayerKeys& keys, const Shape& input, std::int64_t channels, bool ceil = false);

// The inverse of Slide: the shape over which the window slides to give `input` positions: (in - 1)
// stride - 2 padding + effective kernel + output_padding, as in PyTorch's transposed convolutions.
// Throws ConfigError if padding leaves nothing of it.
Shape SlideBack(const LayerKeys& keys, const Shape& input, std::int64_t channels);

template <typename T>
std::string PairText(const std::array<T, 2>& pair) {
  return std::to_string(pair[0]) + "x" + std::to_string(pair[1]);
}

}  // namespace ada::layers

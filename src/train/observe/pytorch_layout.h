// Tensors of a backend in the order that PyTorch has.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace ada::train {

// Turns [rows, h, w, c] into [rows, c, h, w]; `shape` has h, w and c.
inline std::vector<float> AsPyTorch(const std::vector<float>& in, const Shape& shape) {
  std::vector<float> out;
  out.reserve(in.size());
  const auto pixels = static_cast<std::size_t>(shape.h * shape.w);
  const auto channels = static_cast<std::size_t>(shape.c);
  const std::size_t image = pixels * channels;
  for (std::size_t first = 0; first < in.size(); first += image)
    for (std::size_t c = 0; c < channels; ++c)
      for (std::size_t p = 0; p < pixels; ++p) out.push_back(in[first + p * channels + c]);
  return out;
}

}  // namespace ada::train

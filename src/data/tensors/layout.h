// Which axes of an array of images are rows, columns and channels.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "data/tensors/tensor_file.h"

namespace ada::data {

struct ImageAxes {
  std::int64_t height = 0, width = 0, channels = 1;
};
// `shape`: [n, height, width], or of 4 axes in `layout`, which is not kAuto.
ImageAxes AxesOf(const std::vector<std::int64_t>& shape, ArrayLayout layout);

// What kAuto is for images of 4 axes: an axis of at most 4 values is that of the channels, the last
// before the first of an image; where only the first is so short, rows and columns must be as many,
// since else they may be the rows of an array of many channels: DataError.
ArrayLayout LayoutOf(const TensorInFile& images);

// "train.images [60, 3, 32, 32] are read as chw: 32 rows, 32 columns, 3 channels (data.layout:
// auto)".
std::string LayoutText(const TensorInFile& images, ArrayLayout layout);

// Puts the channels of images last: of `from`, images one after the other [channels, height,
// width], into `to`, which may be the same memory.
void PutChannelsLast(std::span<const std::byte> from, const ImageAxes& axes,
                     std::size_t value_bytes, std::span<std::byte> to);

}  // namespace ada::data

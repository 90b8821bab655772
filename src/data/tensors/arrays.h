// What the arrays of a file hold that say nothing of it themselves: the axes of images, whole
// numbers of any type, and names of classes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "data/tensors/tensor_file.h"
#include "io/tensor_files/safetensors.h"

namespace ada::data {

// The sizes of an image of an array, whose axes are rows, columns and channels in some order.
struct ImageAxes {
  std::int64_t height = 0, width = 0, channels = 1;
};
// `shape`: [n, height, width], or of 4 axes in `layout`, which is not kAuto.
ImageAxes AxesOf(const std::vector<std::int64_t>& shape, ArrayLayout layout);

// The meaning of kAuto for images with 4 axes: an axis of at most 4 values is that of the channels,
// the last before the first of an image; if only the first is so short, rows and columns must be
// equal, because otherwise they may be the rows of an array of many channels: DataError.
ArrayLayout LayoutOf(const TensorInFile& images);

// "train.images [60, 3, 32, 32] are read as chw: 32 rows, 32 columns, 3 channels (data.layout:
// auto)".
std::string LayoutText(const TensorInFile& images, ArrayLayout layout);

// Puts the channels of images last: of `from`, images one after the other [channels, height,
// width], into `to`, which may be the same memory.
void PutChannelsLast(std::span<const std::byte> from, const ImageAxes& axes,
                     std::size_t value_bytes, std::span<std::byte> to);

// Whether elements of this type are whole numbers: I8 to I64 and U8 to U64.
bool IsInteger(DType dtype);
// The number at `at`, which need not be aligned; nothing where it is not 0 .. limit - 1.
std::optional<std::int64_t> IntegerBelow(const std::byte* at, DType dtype, std::int64_t limit);
// Whether it is `number`.
bool IntegerIs(const std::byte* at, DType dtype, std::int64_t number);
// The number in decimal.
std::string IntegerText(const std::byte* at, DType dtype);

// The names of classes in the metadata of a safetensors file, under the key `classes`: a JSON list
// of texts, or names between commas. Empty where there is no such key. DataError naming `path`:
// damaged JSON, a name that is empty, none, too many.
std::vector<std::string> ClassesOfMetadata(const std::map<std::string, std::string>& metadata,
                                           const std::string& path);

}  // namespace ada::data

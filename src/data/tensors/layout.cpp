// Arrays of images do not say what their axes are; the shortest one tells.
#include "data/tensors/layout.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/run_in_parallel.h"
#include "core/text.h"

namespace ada::data {
namespace {

constexpr std::int64_t kFewChannels = 4;  // gray, RGB, RGB and one more
constexpr std::int64_t kArraysOfTask = 64;

template <std::size_t kBytes>
void Transpose(const std::byte* from, const ImageAxes& axes, std::byte* to) {
  const std::int64_t places = axes.height * axes.width;
  for (std::int64_t c = 0; c < axes.channels; ++c)
    for (std::int64_t i = 0; i < places; ++i)
      std::memcpy(to + static_cast<std::size_t>(i * axes.channels + c) * kBytes,
                  from + static_cast<std::size_t>(c * places + i) * kBytes, kBytes);
}

}  // namespace

ImageAxes AxesOf(const std::vector<std::int64_t>& shape, ArrayLayout layout) {
  ADA_CHECK(shape.size() == 3 || layout != ArrayLayout::kAuto);
  if (shape.size() == 3) return {shape[1], shape[2], 1};
  if (layout == ArrayLayout::kChw) return {shape[2], shape[3], shape[1]};
  return {shape[1], shape[2], shape[3]};
}

ArrayLayout LayoutOf(const TensorInFile& images) {
  const std::vector<std::int64_t>& s = images.shape;
  if (s.size() != 4 || s[3] <= kFewChannels || s[1] > kFewChannels) return ArrayLayout::kHwc;
  if (s[2] == s[3]) return ArrayLayout::kChw;
  throw DataError(images.place + ": has the shape " + DimsText(s) +
                  ", which may be [images, channels, height, width], or [images, height, width, "
                  "channels] of " +
                  Counted(s[1], "row") + " and " + Counted(s[3], "channel") +
                  "; say data.layout: chw or data.layout: hwc");
}

std::string LayoutText(const TensorInFile& images, ArrayLayout layout) {
  const ImageAxes axes = AxesOf(images.shape, layout);
  return images.name + " " + DimsText(images.shape) + " are read as " +
         (layout == ArrayLayout::kChw ? "chw: " : "hwc: ") + Counted(axes.height, "row") + ", " +
         Counted(axes.width, "column") + ", " + Counted(axes.channels, "channel") +
         " (data.layout: auto)";
}

void PutChannelsLast(std::span<const std::byte> from, const ImageAxes& axes,
                     std::size_t value_bytes, std::span<std::byte> to) {
  const auto bytes =
      static_cast<std::size_t>(axes.height * axes.width * axes.channels) * value_bytes;
  ADA_CHECK(from.size() == to.size() && from.size() % bytes == 0 &&
            (value_bytes == 1 || value_bytes == sizeof(float)));
  const auto transpose = value_bytes == 1 ? Transpose<1> : Transpose<sizeof(float)>;
  const auto images = static_cast<std::int64_t>(from.size() / bytes);
  RunRangesInParallel(images, kArraysOfTask, [&](std::int64_t begin, std::int64_t end) {
    // Each image is copied first, since `from` and `to` may be the same memory.
    std::vector<std::byte> image(bytes);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * bytes;
      std::memcpy(image.data(), from.data() + at, bytes);
      transpose(image.data(), axes, to.data() + at);
    }
  });
}

}  // namespace ada::data

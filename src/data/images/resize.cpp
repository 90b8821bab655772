// Weights of both axes are computed for the part that is wanted; then the kernels of the best
// instruction set go over bytes. All sets give the same bytes, as sums of whole numbers have no
// rounding on the way.
#include "data/images/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/images/formats.h"
#include "data/images/kernels/picture_kernels.h"
#include "error.h"

namespace ada::data {
namespace {

// Weights of one axis, for the results begin..begin+size of it.
struct Axis {
  std::vector<std::int32_t> first, weights;
  int taps = 0;
  int lowest = 0, end = 0;  // the inputs that they read
  AxisView View() const {
    return {first.data(), weights.data(), taps, static_cast<int>(first.size())};
  }
};

// Pillow's precompute_coeffs and normalize_coeffs_8bpc (src/libImaging/Resample.c) for the triangle
// filter over the whole axis.
Axis AxisOf(int from, int to, int begin, int size) {
  const double scale = static_cast<double>(from) / to;
  const double filter_scale = std::max(scale, 1.0), inverse = 1.0 / filter_scale;
  // A result reads inputs up to filter_scale from its center: the triangle's half width, which
  // grows where the picture shrinks.
  const int most = static_cast<int>(std::ceil(filter_scale)) * 2 + 1;
  Axis axis;
  std::vector<int> counts;
  std::vector<double> values(static_cast<std::size_t>(most) * static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) {
    const double center = (begin + i + 0.5) * scale;
    const int low = std::max(static_cast<int>(center - filter_scale + 0.5), 0);
    const int count = std::min(static_cast<int>(center + filter_scale + 0.5), from) - low;
    double* row = values.data() + static_cast<std::ptrdiff_t>(i) * most;
    double sum = 0;
    for (int t = 0; t < count; ++t) {
      row[t] = std::max(1.0 - std::abs((t + low - center + 0.5) * inverse), 0.0);
      sum += row[t];
    }
    for (int t = 0; t < count && sum != 0; ++t) row[t] /= sum;
    axis.first.push_back(low);
    axis.taps = std::max(axis.taps, count);
    counts.push_back(count);
  }
  axis.lowest = *std::min_element(axis.first.begin(), axis.first.end());
  for (int i = 0; i < size; ++i) {
    const auto n = static_cast<std::size_t>(i);
    axis.end = std::max(axis.end, axis.first[n] + counts[n]);
  }
  // Every result reads as many inputs as the longest one: if that would go beyond the end, it
  // starts earlier, with weights of zero.
  axis.weights.assign(static_cast<std::size_t>(axis.taps) * static_cast<std::size_t>(size), 0);
  for (int i = 0; i < size; ++i) {
    const auto n = static_cast<std::size_t>(i);
    const int shift = std::max(axis.first[n] + axis.taps - axis.end, 0);
    std::int32_t* row = axis.weights.data() + static_cast<std::ptrdiff_t>(i) * axis.taps;
    for (int t = 0; t < counts[n]; ++t) {
      row[t + shift] = static_cast<std::int32_t>(
          0.5 + values[n * static_cast<std::size_t>(most) + static_cast<std::size_t>(t)] *
                    (1 << kWeightBits));
    }
    axis.first[n] -= shift;
  }
  axis.lowest = std::min(axis.lowest, *std::min_element(axis.first.begin(), axis.first.end()));
  for (std::int32_t& first : axis.first) first -= axis.lowest;
  return axis;
}

// Pixels that somebody else keeps.
struct PixelView {
  const std::uint8_t* at;
  std::ptrdiff_t stride;  // bytes from a row to the next
  int height, width, channels;
  std::ptrdiff_t row_bytes() const { return std::ptrdiff_t{width} * channels; }
};

PixelView ViewOf(const Picture& picture) {
  const std::ptrdiff_t stride = std::ptrdiff_t{picture.width} * picture.channels;
  return {picture.pixels.data(), stride, picture.height, picture.width, picture.channels};
}

// A part shares the pixels of the view, which must lie in it.
PixelView Part(const PixelView& view, const Box& box) {
  return {view.at + box.top * view.stride + std::ptrdiff_t{box.left} * view.channels, view.stride,
          box.height, box.width, view.channels};
}

// Returns a black picture; CutBox relies on that where it writes nothing.
Picture Blank(int height, int width, int channels) {
  Picture picture{height, width, channels, {}};
  picture.pixels.resize(static_cast<std::size_t>(height) * static_cast<std::size_t>(width) *
                        static_cast<std::size_t>(channels));
  return picture;
}

Picture Copy(const PixelView& from) {
  Picture to = Blank(from.height, from.width, from.channels);
  for (int y = 0; y < from.height; ++y)
    std::copy_n(from.at + y * from.stride, from.row_bytes(),
                to.pixels.data() + y * from.row_bytes());
  return to;
}

// All rows of `from` that the axis reads, one under the other, become its rows.
Picture Down(const ResizeKernels& kernels, const PixelView& from, const Axis& axis) {
  const AxisView view = axis.View();
  Picture to = Blank(view.size, from.width, from.channels);
  for (int y = 0; y < view.size; ++y) {
    kernels.down(from.at + view.first[y] * from.stride, from.stride,
                 view.weights + std::ptrdiff_t{y} * view.taps, view.taps, from.row_bytes(),
                 to.pixels.data() + y * from.row_bytes());
  }
  return to;
}

// Resizes each row; the kernel takes several rows at a time through `room`.
Picture Across(const ResizeKernels& kernels, const PixelView& from, const Axis& axis) {
  const AxisView view = axis.View();
  Picture to = Blank(from.height, view.size, from.channels);
  std::vector<std::uint8_t> room(static_cast<std::size_t>(RoomAcross(from.width)));
  kernels.across(view, from.at, from.stride, from.width, from.channels, from.height,
                 to.pixels.data(), std::ptrdiff_t{view.size} * from.channels, room.data());
  return to;
}

bool LiesWithin(const Box& box, PictureSize size) {
  return box.top >= 0 && box.left >= 0 && box.height >= 1 && box.width >= 1 &&
         box.height <= size.height - box.top && box.width <= size.width - box.left;
}

Picture Resize(const ResizeKernels& kernels, const Picture& picture, const Box& box, PictureSize to,
               const Box& part) {
  ADA_CHECK(LiesWithin(box, picture.size()) && LiesWithin(part, to));
  const bool down = box.height != to.height, across = box.width != to.width;
  // The order changes bytes, as each axis rounds, so it is Pillow's.
  const bool down_first =
      down && to.height < box.height && box.height - to.height > 2 * (box.width - to.width);
  PixelView view = Part(ViewOf(picture), box);
  const Axis rows = down ? AxisOf(box.height, to.height, part.top, part.height) : Axis{};
  const Axis columns = across ? AxisOf(box.width, to.width, part.left, part.width) : Axis{};
  // Only inputs that the part reads are looked at; an axis that keeps its size has no weights.
  view = Part(view, {down ? rows.lowest : part.top, across ? columns.lowest : part.left,
                     down ? rows.end - rows.lowest : part.height,
                     across ? columns.end - columns.lowest : part.width});
  if (!down && !across) return Copy(view);
  if (!across) return Down(kernels, view, rows);
  if (!down) return Across(kernels, view, columns);
  if (down_first) return Across(kernels, ViewOf(Down(kernels, view, rows)), columns);
  return Down(kernels, ViewOf(Across(kernels, view, columns)), rows);
}

// Python's round(difference / 2): halves to even.
int HalfToEven(int difference) {
  const int half = difference / 2;
  return difference % 2 == 0 ? half : half + half % 2;
}

// Where `crop` begins in an axis of `size`; torchvision pads the smaller half before it.
int CenterOffset(int size, int crop) {
  return crop > size ? -((crop - size) / 2) : HalfToEven(size - crop);
}

}  // namespace

Picture ResizeBox(const Picture& picture, const Box& box, PictureSize to, const Box& part) {
  return Resize(BestResizeKernels(), picture, box, to, part);
}

Picture ResizeBox(const Picture& picture, const Box& box, PictureSize to) {
  return ResizeBox(picture, box, to, WholeOf(to));
}

PictureSize ShorterSide(PictureSize of, int size, const std::string& path) {
  const int shorter = std::min(of.height, of.width), longer = std::max(of.height, of.width);
  const auto scaled = static_cast<std::int64_t>(size) * longer / shorter;
  const bool upright = of.width <= of.height;
  if (scaled > kMaxPixels / size) {
    const std::string least = std::to_string(size), most = std::to_string(scaled);
    throw DataError(path + ": would have " + (upright ? least : most) + " x " +
                    (upright ? most : least) + " pixels when it is resized; expected at most " +
                    std::to_string(kMaxPixels) + ": resize it to less, or leave it out");
  }
  const auto long_side = static_cast<int>(scaled);
  return upright ? PictureSize{long_side, size} : PictureSize{size, long_side};
}

Box CenterBox(PictureSize of, PictureSize crop) {
  return {CenterOffset(of.height, crop.height), CenterOffset(of.width, crop.width), crop.height,
          crop.width};
}

Picture CutBox(const Picture& picture, const Box& box) {
  Picture cut = Blank(box.height, box.width, picture.channels);
  const int left = std::max(box.left, 0);
  const int right = std::min(box.left + box.width, picture.width);
  const std::ptrdiff_t channels = picture.channels;
  for (int y = std::max(box.top, 0); y < std::min(box.top + box.height, picture.height); ++y) {
    if (left >= right) break;
    std::copy_n(
        picture.pixels.data() + (std::ptrdiff_t{y} * picture.width + left) * channels,
        (right - left) * channels,
        cut.pixels.data() + (std::ptrdiff_t{y - box.top} * box.width + left - box.left) * channels);
  }
  return cut;
}

Picture ResizeAndCrop(const Picture& picture, int size, PictureSize crop, const std::string& path) {
  if (size == 0) return CutBox(picture, CenterBox(picture.size(), crop));
  const PictureSize to = ShorterSide(picture.size(), size, path);
  const Box box = CenterBox(to, crop), whole = WholeOf(picture.size());
  if (LiesWithin(box, to)) return ResizeBox(picture, whole, to, box);
  return CutBox(ResizeBox(picture, whole, to), box);
}

void FlipColumns(Picture* picture) {
  const std::ptrdiff_t channels = picture->channels, width = picture->width;
  for (std::ptrdiff_t y = 0; y < picture->height; ++y) {
    std::uint8_t* row = picture->pixels.data() + y * width * channels;
    for (std::ptrdiff_t x = 0; x < width / 2; ++x)
      std::swap_ranges(row + x * channels, row + (x + 1) * channels,
                       row + (width - 1 - x) * channels);
  }
}

std::vector<std::string> ResizeKernelNames() {
  std::vector<std::string> names;
  for (const ResizeKernels* kernels : ResizeKernelsHere()) names.emplace_back(kernels->name);
  return names;
}

Picture ResizeBoxWith(const std::string& kernels, const Picture& picture, const Box& box,
                      PictureSize to, const Box& part) {
  for (const ResizeKernels* set : ResizeKernelsHere())
    if (set->name == kernels) return Resize(*set, picture, box, to, part);
  throw InternalError("this machine has no kernels " + kernels);
}

}  // namespace ada::data

// Changes of bytes are tables of 256 entries; only saturation and hue need the way to HSV and back,
// row by row by the kernels of the best instruction set.
#include <algorithm>
#include <array>

#include "data/images/opencv.h"
#include "data/images/select_kernels.h"
#include "error.h"

namespace ada::data {
namespace {

constexpr int kOpenCvGroup = 32;  // pixels that it computes at a time
constexpr int kHues = 180;

using ByteTable = std::array<std::uint8_t, 256>;

// value * factor + shift in double, cut off to a byte.
ByteTable CutTable(double factor, double shift) {
  ByteTable table;
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] =
        static_cast<std::uint8_t>(std::clamp(static_cast<double>(i) * factor + shift, 0.0, 255.0));
  return table;
}

// Hues turn in a circle of 180; the remainder is taken twice as C++'s may be negative.
ByteTable HueTable(int turn) {
  ByteTable table;
  for (int i = 0; i < 256; ++i)
    table[static_cast<std::size_t>(i)] =
        static_cast<std::uint8_t>(((i + turn) % kHues + kHues) % kHues);
  return table;
}

// One row of a picture, and the changes that are made to it.
class Row {
 public:
  Row(std::uint8_t* begin, int width, HsvRounding rounding)
      : begin_(begin), width_(width), rounding_(rounding) {}

  void Map(const ByteTable& table) {
    for (std::uint8_t* at = begin_; at < begin_ + 3 * std::ptrdiff_t{width_}; ++at)
      *at = table[*at];
  }
  void ToHsv() { BestColorKernels().rgb_to_hsv(begin_, width_, begin_); }
  void ToRgb() {
    const ColorKernels& kernels = BestColorKernels();
    if (rounding_ == HsvRounding::kNearest) return kernels.hsv_to_rgb(begin_, width_, begin_);
    kernels.opencv_to_rgb(begin_, width_, width_ / kOpenCvGroup * kOpenCvGroup, begin_);
  }
  // ChainerCV goes to HSV and back once for saturation and once for hue, each with its rounding, so
  // two changes are two ways.
  void MapInHsv(int channel, const ByteTable& table) {
    ToHsv();
    for (std::uint8_t* at = begin_ + channel; at < begin_ + 3 * std::ptrdiff_t{width_}; at += 3)
      *at = table[*at];
    ToRgb();
  }

 private:
  std::uint8_t* begin_;
  int width_;
  HsvRounding rounding_;
};

template <class Change>
void ForEachRow(Picture* picture, HsvRounding rounding, const Change& change) {
  ADA_CHECK(picture->channels == 3);
  for (int y = 0; y < picture->height; ++y)
    change(Row(picture->pixels.data() + std::ptrdiff_t{3} * y * picture->width, picture->width,
               rounding));
}

}  // namespace

void RgbToHsv(Picture* picture) {
  ForEachRow(picture, HsvRounding::kNearest, [](Row row) { row.ToHsv(); });
}

void HsvToRgb(Picture* picture, HsvRounding rounding) {
  ForEachRow(picture, rounding, [](Row row) { row.ToRgb(); });
}

Distortion DrawDistortion(const DistortSpec& spec, Draws* draws) {
  Distortion drawn;
  // Whether a change is made is drawn before its amount, and no amount is drawn where it is not:
  // recorded draws have this order.
  const auto uniform = [&](const Range& range) -> std::optional<double> {
    if (draws->Below(2) == 0) return std::nullopt;
    return static_cast<double>(
        draws->Uniform(static_cast<float>(range.low), static_cast<float>(range.high)));
  };
  const auto draw_colors = [&] {
    drawn.saturation = uniform(spec.saturation);
    if (draws->Below(2) != 0) drawn.hue = draws->Below(2 * spec.hue + 1) - spec.hue;
  };
  drawn.brightness = uniform({-spec.brightness, spec.brightness});
  drawn.contrast_first = draws->Below(2) != 0;
  if (!drawn.contrast_first) draw_colors();
  drawn.contrast = uniform(spec.contrast);
  if (drawn.contrast_first) draw_colors();
  return drawn;
}

void Distort(const Distortion& drawn, HsvRounding rounding, Picture* picture) {
  const ByteTable contrast = CutTable(drawn.contrast.value_or(1), 0);
  const ByteTable saturation = CutTable(drawn.saturation.value_or(1), 0);
  const ByteTable hue = HueTable(drawn.hue.value_or(0));
  const bool contrast_before = drawn.contrast && drawn.contrast_first;
  const bool contrast_after = drawn.contrast && !drawn.contrast_first;
  ByteTable before = CutTable(1, drawn.brightness.value_or(0));  // both steps of a byte at once
  if (contrast_before)
    for (std::uint8_t& value : before) value = contrast[value];
  ForEachRow(picture, rounding, [&](Row row) {
    if (drawn.brightness || contrast_before) row.Map(before);
    if (drawn.saturation) row.MapInHsv(1, saturation);
    if (drawn.hue) row.MapInHsv(0, hue);
    if (contrast_after) row.Map(contrast);
  });
}

}  // namespace ada::data

// Changes of pictures as OpenCV makes them, which ChainerCV's SSD is trained with.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "data/images/picture.h"
#include "data/images/random_changes.h"

namespace ada::data {

// OpenCV's five interpolations, as its resize computes them on float pictures: half-pixel centers,
// borders repeated, no antialias but in kArea. kCubic and kLanczos4 may leave the range of the
// values.
enum class Interpolation : std::uint8_t {
  kLinear,
  kArea,      // smaller: the mean of what a pixel covers; larger: linear with steps of its own
  kNearest,   // the pixel at floor(x / (to / from))
  kCubic,     // A = -0.75
  kLanczos4,  // eight taps
};

// A picture of 3 channels on a canvas of one color, as made by an expansion, but never stored
// as a whole. The picture must outlive it. Pixels of a `part` outside the picture have the
// color.
struct Canvas {
  const Picture* picture = nullptr;
  PictureSize size;       // of the canvas
  int top = 0, left = 0;  // of the picture on it
  std::array<float, 3> color{};
};

// The part of the canvas, which lies within it, resized: [to.height, to.width, 3].
std::vector<float> ResizeToFloats(const Canvas& canvas, const Box& part, PictureSize to,
                                  Interpolation interpolation);

// How values become bytes on the way back from HSV, which is OpenCV's of 8 bits: hue in 0..179,
// half degrees.
enum class HsvRounding : std::uint8_t {
  kNearest,  // to nearest
  // As OpenCV 4.8 does with AVX2: with fused multiply-adds, and in each row whole groups of 32
  // pixels cut off, the rest rounded, so that a pixel's value depends on the picture's width. To
  // reproduce recordings.
  kOpenCv,
};

// Pictures of 3 channels, RGB or HSV, in place.
void RgbToHsv(Picture* picture);
void HsvToRgb(Picture* picture, HsvRounding rounding);

// Each change has probability 1/2; these are the ranges of its amount, those of ChainerCV's
// random_distort.
struct DistortSpec {
  double brightness = 32;      // added: -32..32
  Range contrast{0.5, 1.5};    // a factor
  Range saturation{0.5, 1.5};  // a factor
  int hue = 18;                // added: whole numbers in -18..18
};
// The random choices of the photometric distortion of SSD as ChainerCV makes it with OpenCV:
// brightness, then contrast, saturation and hue, or saturation, hue and contrast, each cut off to
// bytes (not rounded). Unset: this distortion is not applied.
struct Distortion {
  std::optional<double> brightness, contrast, saturation;
  std::optional<int> hue;
  bool contrast_first = true;
};
Distortion DrawDistortion(const DistortSpec& spec, Draws* draws);

// Distorts a picture of 3 channels, RGB.
void Distort(const Distortion& distortion, HsvRounding rounding, Picture* picture);

}  // namespace ada::data

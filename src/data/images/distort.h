// The photometric distortion of SSD as ChainerCV makes it with OpenCV: brightness, then contrast,
// saturation and hue, or saturation, hue and contrast, each with probability 1/2 and each cut off
// to bytes (not rounded). And OpenCV's 8-bit conversion between RGB and HSV (hue in 0..179, half
// degrees).
#pragma once
#include <cstdint>
#include <optional>

#include "data/images/picture.h"
#include "data/images/random_changes.h"

namespace ada::data {

// How values become bytes on the way back from HSV.
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
// What was drawn; unset: the coin said no.
struct Distortion {
  std::optional<double> brightness, contrast, saturation;
  std::optional<int> hue;
  bool contrast_first = true;
};
Distortion DrawDistortion(const DistortSpec& spec, Draws* draws);

// Distorts a picture of 3 channels, RGB.
void Distort(const Distortion& distortion, HsvRounding rounding, Picture* picture);

}  // namespace ada::data

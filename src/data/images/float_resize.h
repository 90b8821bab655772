// Resizing to fp32 values with OpenCV's five interpolations, as its resize computes them on float
// pictures: half-pixel centers, borders repeated, no antialias but in kArea. Cubic and Lanczos may
// leave the range of the values. Pure functions.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "data/images/picture.h"

namespace ada::data {

enum class Interpolation : std::uint8_t {
  kLinear,
  kArea,      // smaller: the mean of what a pixel covers; larger: linear with steps of its own
  kNearest,   // the pixel at floor(x / (to / from))
  kCubic,     // A = -0.75
  kLanczos4,  // eight taps
};

// A picture of 3 channels on a canvas of one color: what an expansion makes, never stored as a
// whole. The picture must outlive it. What lies in `part` of a call and not in the picture has the
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

}  // namespace ada::data

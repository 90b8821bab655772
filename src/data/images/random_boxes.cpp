// Where a random resized crop lies, and what random erasing erases.
#include <algorithm>
#include <cmath>

#include "data/images/random_changes.h"
#include "error.h"

namespace ada::data {
namespace {

constexpr int kTrials = 10;

// fp32 as torch has it: the logarithm of a ratio, and the ratio of a logarithm.
float LogOf(double ratio) {
  return static_cast<float>(std::log(static_cast<double>(static_cast<float>(ratio))));
}
float ExpOf(float log_ratio) {
  return static_cast<float>(std::exp(static_cast<double>(log_ratio)));
}

// Python's int(round(x)). Halves round to even in both; the bound keeps the result an int, and no
// box is that large.
int Rounded(double x) { return static_cast<int>(std::nearbyint(std::min(x, 2147483646.0))); }

// The sides of a box whose area and ratio are drawn.
struct Sides {
  int by_ratio, over_ratio;  // sqrt(area * ratio), sqrt(area / ratio)
};
Sides DrawSides(const Range& scale, const Range& ratio, PictureSize of, Draws* draws) {
  const double pixels = static_cast<double>(std::int64_t{of.height} * of.width);
  const double area = pixels * static_cast<double>(draws->Uniform(static_cast<float>(scale.low),
                                                                  static_cast<float>(scale.high)));
  const double drawn =
      static_cast<double>(ExpOf(draws->Uniform(LogOf(ratio.low), LogOf(ratio.high))));
  return {Rounded(std::sqrt(area * drawn)), Rounded(std::sqrt(area / drawn))};
}

// The row is drawn before the column, as torchvision draws them.
Box DrawPlace(int height, int width, PictureSize of, Draws* draws) {
  const int top = draws->Below(of.height - height + 1);
  return {top, draws->Below(of.width - width + 1), height, width};
}

}  // namespace

Box RandomCropBox(const RandomCropSpec& spec, PictureSize of, Draws* draws) {
  for (int trial = 0; trial < kTrials; ++trial) {
    const Sides sides = DrawSides(spec.scale, spec.ratio, of, draws);
    const int width = sides.by_ratio, height = sides.over_ratio;
    if (width > 0 && width <= of.width && height > 0 && height <= of.height)
      return DrawPlace(height, width, of, draws);
  }
  // No trial did fit: this is the largest box in the center whose ratio is allowed.
  const double ratio = static_cast<double>(of.width) / of.height;
  int height = of.height, width = of.width;
  if (ratio < spec.ratio.low) {
    height = Rounded(width / spec.ratio.low);
  } else if (ratio > spec.ratio.high) {
    width = Rounded(height * spec.ratio.high);
  }
  height = std::clamp(height, 1, of.height);
  width = std::clamp(width, 1, of.width);
  return {(of.height - height) / 2, (of.width - width) / 2, height, width};
}

std::optional<Box> DrawErasedBox(const RandomErasingSpec& spec, PictureSize of, Draws* draws) {
  if (!(draws->Uniform(0, 1) < static_cast<float>(spec.p))) return std::nullopt;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Sides sides = DrawSides(spec.scale, spec.ratio, of, draws);
    const int height = sides.by_ratio, width = sides.over_ratio;
    // The box must be strictly smaller, as in torchvision: a box as high as the image is not
    // erased.
    if (height < of.height && width < of.width) return DrawPlace(height, width, of, draws);
  }
  return std::nullopt;
}

void EraseBox(const RandomErasingSpec& spec, const Box& box, PictureSize size, int channels,
              Draws* draws, float* image) {
  ADA_CHECK(spec.random_values || spec.value.size() == 1 ||
            spec.value.size() == static_cast<std::size_t>(channels));
  for (std::ptrdiff_t y = box.top; y < box.top + box.height; ++y) {
    float* at = image + (y * size.width + box.left) * channels;
    for (int x = 0; x < box.width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const std::size_t n = spec.value.size() == 1 ? 0 : static_cast<std::size_t>(c);
        *at++ = static_cast<float>(spec.random_values ? draws->Normal() : spec.value[n]);
      }
    }
  }
}

}  // namespace ada::data

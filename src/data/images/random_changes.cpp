// Draws where a random resized crop lies and what random erasing erases. Color jitter has the
// formulas of Pillow's Blend.c and Convert.c (L of RGB, HSV), in their types.
#include "data/images/random_changes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

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

std::uint8_t Clipped(float value) {
  return static_cast<std::uint8_t>(value <= 0 ? 0 : value >= 255 ? 255 : value);
}

// from + factor * (to - from), cut to bytes and without its fraction.
std::uint8_t Blended(int from, int to, float factor) {
  return Clipped(static_cast<float>(from) + factor * static_cast<float>(to - from));
}

// Returns Pillow's L of RGB (ITU-R BT.601), in fixed point of 16 bits and rounded.
int Luma(const std::uint8_t* rgb) {
  return (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16;
}

// All values of a constant away from each byte: one table for the picture.
void BlendFrom(int constant, double factor, Picture* picture) {
  std::array<std::uint8_t, 256> table;
  for (int i = 0; i < 256; ++i)
    table[static_cast<std::size_t>(i)] = Blended(constant, i, static_cast<float>(factor));
  for (std::uint8_t& value : picture->pixels) value = table[value];
}

struct Hsv {
  std::uint8_t h, s, v;
};

// Pillow computes some steps in double and stores them in fp32; so do these, since the bytes are
// cut and not rounded, and the last bit decides.
Hsv ToHsv(int r, int g, int b) {
  const int most = std::max({r, g, b}), least = std::min({r, g, b});
  if (most == least) return {0, 0, static_cast<std::uint8_t>(most)};
  const auto range = static_cast<float>(most - least);
  const float s = range / static_cast<float>(most);
  const float rc = static_cast<float>(most - r) / range, gc = static_cast<float>(most - g) / range,
              bc = static_cast<float>(most - b) / range;
  float h;
  if (r == most) {
    h = bc - gc;
  } else if (g == most) {
    h = static_cast<float>(2.0 + static_cast<double>(rc) - static_cast<double>(bc));
  } else {
    h = static_cast<float>(4.0 + static_cast<double>(gc) - static_cast<double>(rc));
  }
  // In turns: from 5/6 to 11/6, of which the whole turn goes.
  const double turns = static_cast<double>(h) / 6.0 + 1.0;
  h = static_cast<float>(turns >= 1.0 ? turns - 1.0 : turns);
  return {static_cast<std::uint8_t>(
              std::clamp(static_cast<int>(static_cast<double>(h) * 255.0), 0, 255)),
          static_cast<std::uint8_t>(
              std::clamp(static_cast<int>(static_cast<double>(s) * 255.0), 0, 255)),
          static_cast<std::uint8_t>(most)};
}

std::uint8_t RoundedByte(double value) {
  return static_cast<std::uint8_t>(std::clamp(static_cast<int>(value + 0.5), 0, 255));
}

// Here Pillow rounds. `s` of 0 is gray, whose hue means nothing.
void ToRgb(const Hsv& hsv, std::uint8_t* out) {
  const std::uint8_t v = hsv.v;
  if (hsv.s == 0) {
    out[0] = out[1] = out[2] = v;
    return;
  }
  const double sixths = static_cast<double>(hsv.h) * 6.0 / 255.0;
  const int i = static_cast<int>(sixths);
  const auto f = static_cast<double>(static_cast<float>(sixths - i));
  const auto fs = static_cast<double>(static_cast<float>(static_cast<double>(hsv.s) / 255.0));
  const double bright = v;
  const std::uint8_t p = RoundedByte(bright * (1.0 - fs)), q = RoundedByte(bright * (1.0 - fs * f)),
                     t = RoundedByte(bright * (1.0 - fs * (1.0 - f)));
  const std::array<std::array<std::uint8_t, 3>, 6> colors = {
      {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
  std::copy_n(colors[static_cast<std::size_t>(i % 6)].begin(), 3, out);
}

// These are in the order of ColorChange.
constexpr std::array<void (*)(double, Picture*), 4> kAdjust = {AdjustBrightness, AdjustContrast,
                                                               AdjustSaturation, AdjustHue};

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

void AdjustBrightness(double factor, Picture* picture) { BlendFrom(0, factor, picture); }

void AdjustContrast(double factor, Picture* picture) {
  ADA_CHECK(picture->channels == 1 || picture->channels == 3);
  const std::uint8_t* pixels = picture->pixels.data();
  const std::ptrdiff_t count = std::ptrdiff_t{picture->height} * picture->width;
  std::int64_t sum = 0;
  for (std::ptrdiff_t i = 0; i < count; ++i)
    sum += picture->channels == 1 ? pixels[i] : Luma(pixels + 3 * i);
  // The mean of the gray picture is one whole number, from which all values move away or to which
  // they come.
  const double mean = static_cast<double>(sum) / static_cast<double>(count);
  BlendFrom(static_cast<int>(mean + 0.5), factor, picture);
}

void AdjustSaturation(double factor, Picture* picture) {
  if (picture->channels != 3) return;
  const auto alpha = static_cast<float>(factor);
  std::uint8_t* at = picture->pixels.data();
  for (std::uint8_t* end = at + picture->pixels.size(); at < end; at += 3) {
    const int gray = Luma(at);
    for (int c = 0; c < 3; ++c) at[c] = Blended(gray, at[c], alpha);
  }
}

void AdjustHue(double factor, Picture* picture) {
  if (picture->channels != 3) return;
  const auto turn = static_cast<std::uint8_t>(static_cast<int>(factor * 255));
  std::uint8_t* at = picture->pixels.data();
  for (std::uint8_t* end = at + picture->pixels.size(); at < end; at += 3) {
    Hsv hsv = ToHsv(at[0], at[1], at[2]);
    // The hue is a byte whose overflow is a whole turn; a negative factor wraps in the same way.
    hsv.h = static_cast<std::uint8_t>(hsv.h + turn);
    ToRgb(hsv, at);
  }
}

ColorJitter DrawColorJitter(const ColorJitterSpec& spec, Draws* draws) {
  ColorJitter jitter{{ColorChange::kBrightness, ColorChange::kContrast, ColorChange::kSaturation,
                      ColorChange::kHue},
                     {}};
  // The order is a shuffle, as torch.randperm's is one, but from our own draws. Factors are drawn
  // in the order of ColorChange, whatever the order in which they are applied.
  for (int i = 3; i > 0; --i)
    std::swap(jitter.order[static_cast<std::size_t>(i)],
              jitter.order[static_cast<std::size_t>(draws->Below(i + 1))]);
  const std::array<Range, 4> ranges = {spec.brightness, spec.contrast, spec.saturation, spec.hue};
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const double none = i == static_cast<std::size_t>(ColorChange::kHue) ? 0 : 1;
    if (ranges[i] == Range{none, none}) continue;
    jitter.factor[i] = static_cast<double>(
        draws->Uniform(static_cast<float>(ranges[i].low), static_cast<float>(ranges[i].high)));
  }
  return jitter;
}

void ApplyColorJitter(const ColorJitter& jitter, Picture* picture) {
  for (const ColorChange change : jitter.order) {
    const auto n = static_cast<std::size_t>(change);
    if (jitter.factor[n]) kAdjust[n](*jitter.factor[n], picture);
  }
}

}  // namespace ada::data

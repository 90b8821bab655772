// Compiled once per instruction set, whose name is ADA_ISA; nothing of another header is called.
// Loops over blocks of planes, which the compiler turns into vector code.
#include "data/images/kernels/picture_kernels.h"

#define ADA_TEXT_OF_COLOR_NAME(name) #name
#define ADA_TEXT_OF_COLOR(name) ADA_TEXT_OF_COLOR_NAME(name)

namespace ada::data::ADA_ISA {
namespace {

constexpr int kBlock = 64;
constexpr int kFractionBits = 12;  // of the reciprocals below

// Rounded quotients scale * 2^kFractionBits / i, as whole numbers; 0 for i = 0.
struct Reciprocals {
  std::int32_t of[256];
  constexpr Reciprocals(int scale, int divisor) : of{} {
    for (int i = 1; i < 256; ++i) {
      const int numerator = 2 * (scale << kFractionBits), denominator = 2 * divisor * i;
      const int quotient = numerator / denominator;
      const int rest = 2 * (numerator - quotient * denominator);
      const bool up = rest > denominator || (rest == denominator && quotient % 2 == 1);
      of[i] = quotient + (up ? 1 : 0);
    }
  }
};
constexpr Reciprocals kOfValue(255, 1), kOfRange(180, 6);

// Planes hold the three values of up to kBlock pixels, channel by channel; both directions work in
// place.
struct Planes {
  std::int32_t a[kBlock], b[kBlock], c[kBlock];
};

// These take a block apart into planes and put it together; values fit into bytes by then.
inline void Spread(const std::uint8_t* in, std::ptrdiff_t pixels, Planes* to) {
  for (std::ptrdiff_t i = 0; i < pixels; ++i) {
    to->a[i] = in[3 * i];
    to->b[i] = in[3 * i + 1];
    to->c[i] = in[3 * i + 2];
  }
}

inline void Gather(const Planes& from, std::ptrdiff_t pixels, std::uint8_t* out) {
  for (std::ptrdiff_t i = 0; i < pixels; ++i) {
    out[3 * i] = static_cast<std::uint8_t>(from.a[i]);
    out[3 * i + 1] = static_cast<std::uint8_t>(from.b[i]);
    out[3 * i + 2] = static_cast<std::uint8_t>(from.c[i]);
  }
}

// This is OpenCV's conversion in whole numbers: the divisions by value and range are products with
// rounded reciprocals, as there. All branches are selections, which vector code can have.
inline void ToHsvPlanes(Planes* planes) {
  for (int i = 0; i < kBlock; ++i) {
    const std::int32_t r = planes->a[i], g = planes->b[i], b = planes->c[i];
    const std::int32_t rg = r > g ? r : g, low_rg = r > g ? g : r;
    const std::int32_t v = rg > b ? rg : b, low = low_rg > b ? b : low_rg;
    const std::int32_t range = v - low;
    const std::int32_t of_green = b - r + 2 * range, of_blue = r - g + 4 * range;
    const std::int32_t other = v == g ? of_green : of_blue;
    const std::int32_t sixths = v == r ? g - b : other;
    constexpr std::int32_t kHalf = 1 << (kFractionBits - 1);
    const std::int32_t s = (range * kOfValue.of[v] + kHalf) >> kFractionBits;
    const std::int32_t h = (sixths * kOfRange.of[range] + kHalf) >> kFractionBits;
    planes->a[i] = h < 0 ? h + 180 : h;
    planes->b[i] = s;
    planes->c[i] = v;
  }
}

// To the nearest whole number, halves to even: fp32 has no fractions above 2^23.
inline float Nearest(float value) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  return (value + kShift) - kShift;
}

template <bool kCut, bool kFused>
inline void ToRgbPlanes(Planes* planes) {
  constexpr auto kSixth = static_cast<float>(6.0 / 180.0), kByte = static_cast<float>(1.0 / 255.0);
  // The conversion to a whole number cuts off; rounding goes before it.
  const auto byte_of = [](float value) {
    const float scaled = value * 255.0f;
    return static_cast<std::int32_t>(kCut ? scaled : Nearest(scaled));
  };
  const auto rest_of = [](float a, float b) {
    if constexpr (kFused)  // rounded once
      return static_cast<float>(1.0 - static_cast<double>(a) * static_cast<double>(b));
    else
      return 1.0f - a * b;
  };
  for (int i = 0; i < kBlock; ++i) {
    const float h = static_cast<float>(planes->a[i]) * kSixth;
    const float s = static_cast<float>(planes->b[i]) * kByte;
    const float v = static_cast<float>(planes->c[i]) * kByte;
    const auto whole = static_cast<std::int32_t>(h);
    const float f = h - static_cast<float>(whole);
    const std::int32_t k = whole >= 6 ? whole - 6 : whole;
    const float p = v * (1.0f - s), q = v * rest_of(s, f), t = v * rest_of(s, 1.0f - f);
    float r = k == 0 || k == 5 ? v : p;
    r = k == 1 ? q : r;
    r = k == 4 ? t : r;
    float g = k == 1 || k == 2 ? v : p;
    g = k == 0 ? t : g;
    g = k == 3 ? q : g;
    float b = k == 3 || k == 4 ? v : p;
    b = k == 2 ? t : b;
    b = k == 5 ? q : b;
    planes->a[i] = byte_of(r);
    planes->b[i] = byte_of(g);
    planes->c[i] = byte_of(b);
  }
}

// Whole blocks are computed; of the last one only what is asked for is written.
template <class Change>
inline void ByBlocks(const std::uint8_t* in, std::ptrdiff_t pixels, std::uint8_t* out,
                     const Change& change) {
  Planes planes{};
  for (std::ptrdiff_t i = 0; i < pixels; i += kBlock) {
    const std::ptrdiff_t count = pixels - i < kBlock ? pixels - i : kBlock;
    if (count == kBlock) {
      Spread(in + 3 * i, kBlock, &planes);
    } else {
      Spread(in + 3 * i, count, &planes);
    }
    change(&planes);
    if (count == kBlock) {
      Gather(planes, kBlock, out + 3 * i);
    } else {
      Gather(planes, count, out + 3 * i);
    }
  }
}

void RgbToHsvPixels(const std::uint8_t* in, std::ptrdiff_t pixels, std::uint8_t* out) {
  ByBlocks(in, pixels, out, ToHsvPlanes);
}

void HsvToRgbPixels(const std::uint8_t* in, std::ptrdiff_t pixels, std::uint8_t* out) {
  ByBlocks(in, pixels, out, ToRgbPlanes<false, false>);
}

void OpenCvToRgbPixels(const std::uint8_t* in, std::ptrdiff_t pixels, std::ptrdiff_t cut,
                       std::uint8_t* out) {
  // The pixels that OpenCV's vector loop takes are cut off, those of its scalar rest are rounded.
  ByBlocks(in, cut, out, ToRgbPlanes<true, true>);
  ByBlocks(in + 3 * cut, pixels - cut, out + 3 * cut, ToRgbPlanes<false, true>);
}

}  // namespace

const ColorKernels kColorKernels = {ADA_TEXT_OF_COLOR(ADA_ISA), RgbToHsvPixels, HsvToRgbPixels,
                                    OpenCvToRgbPixels};

}  // namespace ada::data::ADA_ISA

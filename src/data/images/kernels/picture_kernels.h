// The inner loops of random colors and of resizing, compiled once per instruction set, and which
// set this machine uses. Every set gives the same bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ada::data {

struct ColorKernels {
  const char* name;
  // These take `pixels` pixels of 3 bytes; in and out may be the same.
  void (*rgb_to_hsv)(const std::uint8_t* in, std::ptrdiff_t pixels, std::uint8_t* out);
  // Values are rounded to bytes.
  void (*hsv_to_rgb)(const std::uint8_t* in, std::ptrdiff_t pixels, std::uint8_t* out);
  // As OpenCV's code for AVX2: 1 - s * f is rounded once (a fused multiply-add), and the values of
  // the first `cut` pixels are cut off to bytes, the others rounded.
  void (*opencv_to_rgb)(const std::uint8_t* in, std::ptrdiff_t pixels, std::ptrdiff_t cut,
                        std::uint8_t* out);
};

// Tables of the sets that this program was compiled for: generic, or on x86-64 the others.
namespace generic {
extern const ColorKernels kColorKernels;
}
namespace sse2 {
extern const ColorKernels kColorKernels;
}
namespace avx2 {
extern const ColorKernels kColorKernels;
}
namespace avx512 {
extern const ColorKernels kColorKernels;
}

// --- Resizing ---

// How one axis of a picture becomes another: value i of the result is the sum of in[first[i] + t] *
// weights[i * taps + t] over t < taps, rounded. Weights have kWeightBits bits after the point, are
// not negative and add up to one.
struct AxisView {
  const std::int32_t *first, *weights;
  int taps, size;
};

inline constexpr int kWeightBits = 22;

struct ResizeKernels {
  const char* name;
  // Writes `bytes` values: out[x] from in[t * stride + x] * weights[t].
  void (*down)(const std::uint8_t* in, std::ptrdiff_t stride, const std::int32_t* weights, int taps,
               std::ptrdiff_t bytes, std::uint8_t* out);
  // Resizes `rows` rows, of `columns` pixels each, to axis.size pixels. `room` has
  // RoomAcross(columns) bytes.
  void (*across)(const AxisView& axis, const std::uint8_t* in, std::ptrdiff_t in_stride,
                 std::ptrdiff_t columns, int channels, std::ptrdiff_t rows, std::uint8_t* out,
                 std::ptrdiff_t out_stride, std::uint8_t* room);
};

constexpr std::ptrdiff_t RoomAcross(std::ptrdiff_t columns) { return columns * 16; }

// Tables of the sets that this program was compiled for: generic, or on x86-64 the others.
namespace generic {
extern const ResizeKernels kResizeKernels;
}
namespace sse2 {
extern const ResizeKernels kResizeKernels;
}
namespace avx2 {
extern const ResizeKernels kResizeKernels;
}
namespace avx512 {
extern const ResizeKernels kResizeKernels;
}

// Those that this machine can run, the best first.
std::vector<const ResizeKernels*> ResizeKernelsHere();
const ResizeKernels& BestResizeKernels();
std::vector<const ColorKernels*> ColorKernelsHere();
const ColorKernels& BestColorKernels();

}  // namespace ada::data

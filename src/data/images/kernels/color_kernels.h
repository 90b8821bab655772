// The inner loops between RGB and OpenCV's 8-bit HSV, compiled once per instruction set. Whole
// numbers one way, fp32 operation by operation the other: every set gives the same bytes.
#pragma once
#include <cstddef>
#include <cstdint>

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

}  // namespace ada::data

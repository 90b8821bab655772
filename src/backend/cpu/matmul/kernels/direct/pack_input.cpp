// Packs images and weights; packed_convolution.h draws how packed pixels lie. A packed pixel has 64
// bytes: 16 fp32 values or, where the kernels multiply pairs of bf16 values, 16 pairs.
#include <algorithm>

#include "backend/cpu/matmul/kernels/direct/sums.h"
#include "backend/cpu/matmul/kernels/packed_convolution_args.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

constexpr int kPixelChannels = 16;  // fp32 values or pairs
constexpr int kImagesAhead = 2;     // whose lines are fetched while an image is packed

// What a packed pixel holds: channels of a pixel in fp32, pairs of channels, or the same channel of
// two images.
enum class Holds : std::uint8_t { kFloats, kChannelPairs, kImagePairs };

// The layout of rows of packed pixels, in numbers of values or pairs.
struct PackedRows {
  explicit PackedRows(const PackInputArgs& a)
      : step(std::int64_t{kPixelChannels} * a.frame.interleaved),
        row(a.frame.line_bytes() / 4),
        phase(row * a.frame.rows),
        group(a.frame.group_bytes() / 4),
        plane(a.plane_bytes / 4),
        image(std::int64_t{a.h} * a.w * a.pixel) {}
  std::int64_t step, row, phase, group, plane;
  std::int64_t image;  // values of x
};

ADA_INLINE void ZeroPixels(const PackedRows& at, int blocks, float* to, std::int64_t packed) {
  for (int block = 0; block < blocks; ++block)
    for (std::int64_t k = 0; k < packed; ++k) StoreF(to + block * at.plane + k * at.step, F{});
}

template <Holds kHolds>
ADA_INLINE void StorePixel(float* to, F first, [[maybe_unused]] F second) {
#ifdef __AVX512BF16__
  if constexpr (kHolds == Holds::kChannelPairs) {
    _mm512_store_si512(to, (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
    return;
  } else if constexpr (kHolds == Holds::kImagePairs) {
    StoreF(to, Float((Bits(first) >> 16) | (Bits(second) & 0xffff0000u)));
    return;
  }
#endif
  StoreF(to, first);
}
template <class Mode>
ADA_INLINE F LoadUpTo16(const TensorSpan& x, std::int64_t i, std::int64_t channels) {
  return channels >= 16 ? Mode::Load(x, i) : Mode::LoadFirst(x, i, static_cast<int>(channels));
}

// Packs one pixel: the `channels` that are left of it, at value i.
template <class Mode, Holds kHolds>
ADA_INLINE void PackBlock(const PackInputArgs& a, const PackedRows& at, bool two, std::int64_t i,
                          std::int64_t channels, float* to) {
  F second{};
  if constexpr (kHolds == Holds::kChannelPairs) {
    if (channels > 16) second = LoadUpTo16<Mode>(a.x, i + 16, channels - 16);
  } else if constexpr (kHolds == Holds::kImagePairs) {
    if (two) second = LoadUpTo16<Mode>(a.x, i + at.image, channels);
  }
  StorePixel<kHolds>(to, LoadUpTo16<Mode>(a.x, i, channels), second);
}

// All channels of pixels first, first + stride, .. of a row, `count` of them. two: there is a
// second image of a pair.
template <class Mode, Holds kHolds>
ADA_INLINE void PackPixels(const PackInputArgs& a, const PackedRows& at, bool two,
                           std::int64_t value, std::int64_t count, float* to) {
  constexpr int kChannels = kHolds == Holds::kChannelPairs ? 32 : 16;
  const std::int64_t channels = a.c, step = std::int64_t{a.pixel} * a.frame.phases;
  // Images of one pixel go to a line of every plane each, far apart: no processor foresees that.
  const bool alone = count == 1 && a.frame.interleaved > 1;
  for (std::int64_t k = 0; k < count; ++k, value += step, to += at.step) {
    float* packed_pixel = to;
    std::int64_t c = 0;
    for (; c + kChannels <= channels; c += kChannels, packed_pixel += at.plane) {
      if (alone) __builtin_prefetch(packed_pixel + kImagesAhead * kPixelChannels, 1);
      PackBlock<Mode, kHolds>(a, at, two, value + c, kChannels, packed_pixel);
    }
    if (c < channels) PackBlock<Mode, kHolds>(a, at, two, value + c, channels - c, packed_pixel);
  }
}

// Packs a row of an image into the frame of one phase: columns left, left + 1, ..
template <class Mode, Holds kHolds>
ADA_INLINE void PackRow(const PackInputArgs& a, const PackedRows& at, bool two,
                        std::int64_t row_value, int phase, float* to) {
  const int stride = a.frame.phases, blocks = a.frame.blocks;
  // Column j of this frame is pixel j * stride + phase - left of the image.
  const int offset = phase - a.frame.left;
  const int begin = std::min(offset >= 0 ? 0 : (-offset + stride - 1) / stride, a.frame.columns);
  const int end = std::clamp((a.w - offset + stride - 1) / stride, begin, a.frame.columns);
  ZeroPixels(at, blocks, to, begin);
  PackPixels<Mode, kHolds>(a, at, two,
                           row_value + (std::int64_t{begin} * stride + offset) * a.pixel,
                           end - begin, to + begin * at.step);
  ZeroPixels(at, blocks, to + end * at.step, a.frame.columns - end);
}

// The window at column x of an image, with zeros outside of the image; all channels of a row's
// pixels are contiguous.
template <class Mode>
ADA_INLINE F LoadWindow(const PackInputArgs& a, std::int64_t row_value, std::int64_t x) {
  const int width = a.frame.window;
  if (x >= 0 && x + width <= a.w) return LoadUpTo16<Mode>(a.x, row_value + x * a.c, width * a.c);
  alignas(64) float values[kPixelChannels] = {};
  const std::int64_t first = std::max<std::int64_t>(0, -x);
  const std::int64_t last = std::min<std::int64_t>(width, a.w - x);
  if (last > first) {
    const std::int64_t count = (last - first) * a.c;
    StoreFirstF(values + first * a.c, static_cast<int>(count),
                LoadUpTo16<Mode>(a.x, row_value + (x + first) * a.c, count));
  }
  return LoadF(values);
}
template <class Mode, Holds kHolds>
ADA_INLINE void PackWindows(const PackInputArgs& a, const PackedRows& at, bool two,
                            std::int64_t row_value, float* to) {
  for (int column = 0; column < a.frame.columns; ++column) {
    const std::int64_t x = std::int64_t{column} * a.frame.window_step - a.frame.left;
    F second{};
    if (kHolds == Holds::kImagePairs && two) second = LoadWindow<Mode>(a, row_value + at.image, x);
    StorePixel<kHolds>(to + column * at.step, LoadWindow<Mode>(a, row_value, x), second);
  }
}

// Packs 16 values of a dense row. Returns the pointer after them.
template <Holds kHolds>
ADA_INLINE std::byte* StoreValues(std::byte* to, F first, [[maybe_unused]] F second) {
#ifdef __AVX512BF16__
  if constexpr (kHolds == Holds::kChannelPairs) {
    StoreH(reinterpret_cast<std::uint16_t*>(to), (H)_mm512_cvtneps_pbh((__m512)first));
    return to + 32;
  }
#endif
  StorePixel<kHolds>(reinterpret_cast<float*>(to), first, second);
  return to + 64;
}
template <Holds kHolds>
ADA_INLINE std::byte* ZeroValues(std::byte* to, const std::byte* end) {
  while (to < end) to = StoreValues<kHolds>(to, F{}, F{});
  return to;
}
// Packs a row of an image as a dense row: its values follow one another as they do in the image. Up
// to a line after each part is written, before what lies there.
template <class Mode, Holds kHolds>
ADA_INLINE void PackRun(const PackInputArgs& a, const PackedRows& at, bool two, std::int64_t value,
                        std::byte* to) {
  constexpr std::int64_t kBytes = kHolds == Holds::kChannelPairs ? 2 : 4;
  const std::byte* const end = to + a.frame.line_bytes();
  const std::int64_t values =
      std::int64_t{std::clamp(a.frame.columns - a.frame.left, 0, a.w)} * a.c;
  std::byte* const begin = to + a.frame.left * a.c * kBytes;
  ZeroValues<kHolds>(to, begin);
  to = begin;
  for (std::int64_t i = 0; i < values; i += kPixelChannels) {
    F second{};
    if (kHolds == Holds::kImagePairs && two)
      second = LoadUpTo16<Mode>(a.x, value + at.image + i, values - i);
    to = StoreValues<kHolds>(to, LoadUpTo16<Mode>(a.x, value + i, values - i), second);
  }
  ZeroValues<kHolds>(begin + values * kBytes, end);
}

// Image by image, or pair by pair.
// Slots without an image, and rows outside of it, become zeros: kernels read whole frames.
template <class Mode, Holds kHolds>
void PackImages(const PackInputArgs& a) {
  constexpr int kImages = kHolds == Holds::kImagePairs ? 2 : 1;
  const PackedRows at(a);
  const int interleaved = a.frame.interleaved, images = (a.images + kImages - 1) / kImages;
  const int slots = (images + interleaved - 1) / interleaved * interleaved;
  auto* packed = reinterpret_cast<float*>(a.packed);
  for (int slot = 0; slot < slots; ++slot) {
    const int image = slot * kImages;
    const bool two = image + 1 < a.images;
    float* group = packed + slot / interleaved * at.group + slot % interleaved * kPixelChannels;
    for (int phase = 0; phase < a.frame.phases; ++phase) {
      for (int row = 0; row < a.frame.rows; ++row) {
        float* to = group + phase * at.phase + row * at.row;
        const int y = row - a.frame.top;
        const std::int64_t value = image * at.image + std::int64_t{y} * a.w * a.pixel;
        const bool outside = slot >= images || y < 0 || y >= a.h;
        auto* const run = reinterpret_cast<std::byte*>(to);
        if (a.frame.dense_rows() && outside)
          ZeroValues<kHolds>(run, run + a.frame.line_bytes());
        else if (a.frame.dense_rows())
          PackRun<Mode, kHolds>(a, at, two, value, run);
        else if (outside)
          ZeroPixels(at, a.frame.blocks, to, a.frame.columns);
        else if (a.frame.window > 1)
          PackWindows<Mode, kHolds>(a, at, two, value, to);
        else
          PackRow<Mode, kHolds>(a, at, two, value, phase, to);
      }
    }
  }
  std::byte* const end = a.packed + a.plane_bytes;
  if (a.frame.dense_rows()) ZeroValues<kHolds>(end, end + 64);
}

template <class Mode>
void PackMode(const PackInputArgs& a) {
  if constexpr (!kPairs)
    PackImages<Mode, Holds::kFloats>(a);
  else if (a.image_pairs)
    PackImages<Mode, Holds::kImagePairs>(a);
  else
    PackImages<Mode, Holds::kChannelPairs>(a);
}

}  // namespace

void PackInputForSums(const PackInputArgs& a) {
  ForStorage(a.x.storage, [&](auto mode) { PackMode<decltype(mode)>(a); });
}

namespace {

// rows[k][column]; lines at a time where either step is 1, as in linear layers and 1x1
// convolutions.
ADA_INLINE void GatherWeights(const PackWeightsArgs& a, float (*rows)[kPixelChannels]) {
  if (a.column_step == 1) {
    for (int k = 0; k < a.k; ++k) std::copy_n(a.plain + k * a.k_step, a.columns, rows[k]);
  } else if (a.k_step == 1 && a.columns == kPixelChannels && a.k % kPixelChannels == 0) {
    for (int k = 0; k < a.k; k += kPixelChannels)
      Transpose16(a.plain + k, a.column_step, rows[k], kPixelChannels);
  } else {
    for (int column = 0; column < a.columns; ++column)
      for (int k = 0; k < a.k; ++k)
        rows[k][column] = a.plain[column * a.column_step + k * a.k_step];
  }
}

}  // namespace

// Row k of a tile holds input channel k, or channels 2 k and 2 k + 1, of 16 output channels.
void PackWeightsForSums(const PackWeightsArgs& a) {
  alignas(64) float rows[kPairs ? 2 * kPixelChannels : kPixelChannels][kPixelChannels] = {};
  GatherWeights(a, rows);
  auto* to = reinterpret_cast<float*>(a.tiles);
  for (int k = 0; k < kPixelChannels; ++k) {
    if constexpr (kPairs)
      StoreF(to + k * kPixelChannels, Float((Bits(LoadF(rows[2 * k])) >> 16) |
                                            (Bits(LoadF(rows[2 * k + 1])) & 0xffff0000u)));
    else
      StoreF(to + k * kPixelChannels, LoadF(rows[k]));
  }
}

}  // namespace ada::backend::cpu::ADA_ISA

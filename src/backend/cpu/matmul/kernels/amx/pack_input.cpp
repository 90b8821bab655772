// Packs images for the kernels; packed_convolution.h draws how the packed pixels lie.
#include "backend/cpu/matmul/kernels/amx/bf16_split.h"
#include "backend/cpu/matmul/kernels/packed_convolution_args.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// What does not change within a call, as plain numbers.
struct Target {
  explicit Target(const PackInputArgs& a)
      : row_bytes(a.frame.row_bytes()),
        plane_bytes(a.plane_bytes),
        row_pixels(static_cast<std::int64_t>(a.frame.columns) * a.frame.interleaved),
        phase_pixels(row_pixels * a.frame.rows),
        group_pixels(phase_pixels * a.frame.phases),
        blocks(a.frame.blocks),
        interleaved(a.frame.interleaved) {}
  std::int64_t row_bytes, plane_bytes, row_pixels, phase_pixels, group_pixels;
  int blocks, interleaved;
};

// --- one record ----------------------------------------------------------------------------------

// Stores 16 or 32 channels of a pixel as one row of an AMX tile, or one row for each bf16 part.
// With up to 16 channels both parts share one row.
template <int kParts, int kBlock>
ADA_INLINE void StorePixel(F a, F b, std::byte* to) {
  if constexpr (kBlock == 16) {
    _mm512_store_si512(to, Bf16Of(HighPart(a), kParts == 2 ? a - HighPart(a) : F{}));
  } else if constexpr (kParts == 2) {
    const Parts32 parts = SplitParts(a, b);
    _mm512_store_si512(to, parts.high);
    _mm512_store_si512(to + 64, parts.low);
  } else {
    _mm512_store_si512(to, HighParts(a, b));
  }
}
template <Storage kStorage, int kParts, int kBlock>
ADA_INLINE void PackBlock(const void* x, std::int64_t i, std::byte* to) {
  const F b = kBlock == 32 ? LoadWhole<kStorage>(x, i + kBlock - 16) : F{};
  StorePixel<kParts, kBlock>(LoadWhole<kStorage>(x, i), b, to);
}
// Where only `channels` are left.
template <Storage kStorage, int kParts, int kBlock>
ADA_INLINE void PackBlockOf(const void* x, std::int64_t i, std::int64_t channels, std::byte* to) {
  const F b = channels > 16 ? LoadLanes<kStorage>(x, i + 16, Lanes(channels - 16)) : F{};
  StorePixel<kParts, kBlock>(LoadLanes<kStorage>(x, i, Lanes(channels)), b, to);
}

// --- rows ----------------------------------------------------------------------------------------

ADA_INLINE void ZeroPixels(const Target& t, std::byte* to, std::int64_t packed, std::int64_t step) {
  const __m512i zero = _mm512_setzero_si512();
  for (int block = 0; block < t.blocks; ++block)
    for (std::int64_t k = 0; k < packed; ++k)
      for (std::int64_t b = 0; b < t.row_bytes; b += 64)
        _mm512_store_si512(to + block * t.plane_bytes + k * step + b, zero);
}

// Pixels first, first + stride, .. of a row, `count` of them, to neighboring columns.
template <Storage kStorage, int kParts, int kBlock>
ADA_INLINE void PackPixels(const PackInputArgs& a, const Target& t, std::int64_t value,
                           std::int64_t count, std::byte* to) {
  const void* x = a.x.data;
  const std::int64_t channels = a.c, step = channels * a.frame.phases;
  const std::int64_t to_step = t.row_bytes * t.interleaved;
  if (channels == kBlock) {
    for (std::int64_t k = 0; k < count; ++k)
      PackBlock<kStorage, kParts, kBlock>(x, value + k * step, to + k * to_step);
    return;
  }
  for (std::int64_t k = 0; k < count; ++k) {
    std::byte* packed_pixel = to + k * to_step;
    std::int64_t c = 0;
    for (; c + kBlock <= channels; c += kBlock, packed_pixel += t.plane_bytes)
      PackBlock<kStorage, kParts, kBlock>(x, value + k * step + c, packed_pixel);
    if (c < channels)
      PackBlockOf<kStorage, kParts, kBlock>(x, value + k * step + c, channels - c, packed_pixel);
  }
}

// Packs a row of an image into the frame of one phase: columns left, left + 1, ..
template <Storage kStorage, int kParts, int kBlock>
ADA_INLINE void PackRow(const PackInputArgs& a, const Target& t, std::int64_t row_value, int phase,
                        std::byte* to) {
  const int stride = a.frame.phases, step = static_cast<int>(t.row_bytes) * t.interleaved;
  // Column j of this frame is pixel j * stride + phase - left of the image.
  const int offset = phase - a.frame.left;
  const int begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  int end = (a.w - offset + stride - 1) / stride;
  end = end > a.frame.columns ? a.frame.columns : end;
  if (end <= begin) return ZeroPixels(t, to, a.frame.columns, step);
  ZeroPixels(t, to, begin, step);
  const std::int64_t first = begin * stride + offset;
  PackPixels<kStorage, kParts, kBlock>(a, t, row_value + first * a.c, end - begin,
                                       to + static_cast<std::int64_t>(begin) * step);
  ZeroPixels(t, to + static_cast<std::int64_t>(end) * step, a.frame.columns - end, step);
}

// The part of the window at column x that is inside the image; all channels of a row's pixels are
// contiguous.
template <Storage kStorage, int kParts>
ADA_INLINE void PackWindow(const void* row, std::int64_t value, __mmask16 lanes, std::byte* to) {
  StorePixel<kParts, 16>(LoadLanes<kStorage>(row, value, lanes), F{}, to);
}
ADA_INLINE __mmask16 LanesWithin(const PackInputArgs& a, std::int64_t x) {
  const std::int64_t low = x < 0 ? -x : 0;
  const std::int64_t high = x + a.frame.window > a.w ? a.w - x : a.frame.window;
  return high <= low ? static_cast<__mmask16>(0)
                     : static_cast<__mmask16>(Lanes(high * a.c) & ~Lanes(low * a.c));
}
template <Storage kStorage, int kParts>
ADA_INLINE void PackWindows(const PackInputArgs& a, const Target& t, std::int64_t row_value,
                            std::byte* to) {
  const std::int64_t step = t.row_bytes * t.interleaved, window_step = a.frame.window_step;
  const __mmask16 all = Lanes(static_cast<std::int64_t>(a.frame.window) * a.c);
  for (int column = 0; column < a.frame.columns; ++column) {
    const std::int64_t x = column * window_step - a.frame.left;
    const bool within = x >= 0 && x + a.frame.window <= a.w;
    PackWindow<kStorage, kParts>(a.x.data, row_value + x * a.c, within ? all : LanesWithin(a, x),
                                 to + column * step);
  }
}

// --- images --------------------------------------------------------------------------------------

// The last group of interleaved images is filled up with images of zeros.
template <Storage kStorage, int kParts, int kBlock>
void PackImages(const PackInputArgs& a) {
  const Target t(a);
  const int slots = (a.images + t.interleaved - 1) / t.interleaved * t.interleaved;
  for (int image = 0; image < slots; ++image) {
    std::byte* group = a.packed + image / t.interleaved * t.group_pixels * t.row_bytes +
                       image % t.interleaved * t.row_bytes;
    for (int phase = 0; phase < a.frame.phases; ++phase) {
      for (int row = 0; row < a.frame.rows; ++row) {
        std::byte* to = group + (phase * t.phase_pixels + row * t.row_pixels) * t.row_bytes;
        const int y = row - a.frame.top;
        if (image >= a.images || y < 0 || y >= a.h) {
          ZeroPixels(t, to, a.frame.columns, t.row_bytes * t.interleaved);
          continue;
        }
        const std::int64_t value = (static_cast<std::int64_t>(image) * a.h + y) * a.w * a.c;
        if constexpr (kBlock == 16) {
          if (a.frame.window > 1) {
            PackWindows<kStorage, kParts>(a, t, value, to);
            continue;
          }
        }
        PackRow<kStorage, kParts, kBlock>(a, t, value, phase, to);
      }
    }
  }
}

template <Storage kStorage>
void PackFrom(const PackInputArgs& a) {
  const bool two = a.frame.parts == 2;
  if (a.frame.block == 16)
    return two ? PackImages<kStorage, 2, 16>(a) : PackImages<kStorage, 1, 16>(a);
  two ? PackImages<kStorage, 2, 32>(a) : PackImages<kStorage, 1, 32>(a);
}

}  // namespace

void PackInput(const PackInputArgs& a) {
  switch (a.x.storage) {
    case Storage::kF16:
      return PackFrom<Storage::kF16>(a);
    case Storage::kBF16:
      return PackFrom<Storage::kBF16>(a);
    default:
      return PackFrom<Storage::kF32>(a);
  }
}

// Packs a tile of weights: row r holds input channels 2r and 2r + 1 of 16 output channels.
void PackWeights(const PackWeightsArgs& a) {
  const int fields[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const __m512i columns = _mm512_mullo_epi32(_mm512_loadu_si512(fields),
                                             _mm512_set1_epi32(static_cast<int>(a.column_step)));
  const __mmask16 lanes = Lanes(a.columns);
  const __m512i high = _mm512_set1_epi32(~0xffff);
  const int rows = a.twice ? 8 : 16;
  for (int row = 0; row < rows; ++row) {
    __m512i pair[2];
    for (int e = 0; e < 2; ++e) {
      const int k = 2 * row + e;
      pair[e] = k >= a.k ? _mm512_setzero_si512()
                         : (__m512i)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), lanes, columns,
                                                             a.plain + k * a.k_step, 4);
    }
    for (int part = 0; part < a.parts; ++part) {
      const __m512i first = _mm512_and_si512(pair[0], high),
                    second = _mm512_and_si512(pair[1], high);
      const __m512i both = _mm512_or_si512(second, _mm512_srli_epi32(first, 16));
      std::byte* to = a.tiles + part * 1024 + row * 64;
      _mm512_storeu_si512(to, both);
      if (a.twice) _mm512_storeu_si512(to + 512, both);
      pair[0] = (__m512i)_mm512_sub_ps((__m512)pair[0], (__m512)first);
      pair[1] = (__m512i)_mm512_sub_ps((__m512)pair[1], (__m512)second);
    }
  }
}

}  // namespace ada::backend::cpu::ADA_ISA

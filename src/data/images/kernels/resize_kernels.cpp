// Compiled once per instruction set, whose name is ADA_ISA. Only what stands here may be called: a
// function of another header could be shared by all sets.
#include "data/images/kernels/picture_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define ADA_TEXT_OF_NAME(name) #name
#define ADA_TEXT_OF(name) ADA_TEXT_OF_NAME(name)

namespace ada::data::ADA_ISA {
namespace {

#if defined(__AVX512BW__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
using Ints [[gnu::vector_size(kLanes * 4), gnu::aligned(4)]] = std::int32_t;

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

// kLanes bytes as numbers, and numbers of 0..255 as bytes. The compiler's own conversions go byte
// by byte.
[[gnu::always_inline]] inline Ints Widened(const std::uint8_t* bytes) {
#if defined(__AVX512BW__)
  return reinterpret_cast<Ints>(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
#elif defined(__AVX2__)
  return reinterpret_cast<Ints>(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))));
#elif defined(__SSE2__)
  std::int32_t four;
  __builtin_memcpy(&four, bytes, 4);
  const __m128i zero = _mm_setzero_si128();
  return reinterpret_cast<Ints>(
      _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero), zero));
#else
  return Ints{bytes[0], bytes[1], bytes[2], bytes[3]};
#endif
}

[[gnu::always_inline]] inline void StoreBytes(const Ints& sums, std::uint8_t* out) {
#if defined(__AVX512BW__)
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(out),
      _mm512_cvtepi32_epi8(_mm512_srai_epi32(reinterpret_cast<__m512i>(sums), kWeightBits)));
#elif defined(__AVX2__)
  const __m256i values = _mm256_srai_epi32(reinterpret_cast<__m256i>(sums), kWeightBits);
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packus_epi16(words, words));
#elif defined(__SSE2__)
  const __m128i values = _mm_srai_epi32(reinterpret_cast<__m128i>(sums), kWeightBits);
  const __m128i words = _mm_packs_epi32(values, values);
  const std::int32_t four = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  __builtin_memcpy(out, &four, 4);
#else
  for (int k = 0; k < kLanes; ++k) out[k] = static_cast<std::uint8_t>(sums[k] >> kWeightBits);
#endif
}

// Two registers of sums go over all taps, so that each weight is loaded once for both. `x` counts
// bytes: channels do not matter when rows are added.
void Down(const std::uint8_t* in, std::ptrdiff_t stride, const std::int32_t* weights, int taps,
          std::ptrdiff_t bytes, std::uint8_t* out) {
  const auto at = [&](std::ptrdiff_t x) {
    Ints sums = Ints{} + kHalf, more = sums;
    for (int t = 0; t < taps; ++t) {
      const std::uint8_t* row = in + t * stride + x;
      sums += Widened(row) * weights[t];
      more += Widened(row + kLanes) * weights[t];
    }
    StoreBytes(sums, out + x);
    StoreBytes(more, out + x + kLanes);
  };
  std::ptrdiff_t x = 0;
  for (; x + 2 * kLanes <= bytes; x += 2 * kLanes) at(x);
  if (x < bytes && bytes >= 2 * kLanes) {
    at(bytes - 2 * kLanes);  // some bytes are written twice
    return;
  }
  for (; x < bytes; ++x) {
    std::int32_t sum = kHalf;
    for (int t = 0; t < taps; ++t) sum += in[t * stride + x] * weights[t];
    out[x] = static_cast<std::uint8_t>(sum >> kWeightBits);
  }
}

// So many rows have their sums side by side, in four lanes each.
constexpr int kRowsAtOnce = kLanes / 4;

// Four bytes of each pixel, of the channels from `channel` on, those of the rows beside each other.
// Where a pixel has fewer, they hold what lies after it, or zero at the end of the row.
[[gnu::always_inline]] inline void SpreadPixels(const std::uint8_t* const* rows,
                                                std::ptrdiff_t columns, int channels, int channel,
                                                std::uint8_t* room) {
  std::ptrdiff_t x = 0;
  for (; x * channels + channel + 4 <= columns * channels; ++x, room += kLanes) {
    for (int r = 0; r < kRowsAtOnce; ++r)
      __builtin_memcpy(room + 4 * r, rows[r] + x * channels + channel, 4);
  }
  for (; x < columns; ++x, room += kLanes) {
    for (int r = 0; r < kRowsAtOnce; ++r)
      for (int c = 0; c < 4; ++c)
        room[4 * r + c] =
            channel + c < channels ? rows[r][x * channels + channel + c] : std::uint8_t{0};
  }
}

// Each lane of a register is a channel of a row, so that a weight, which all channels and rows
// share, is one broadcast.
[[gnu::always_inline]] inline void AcrossRows(const AxisView& axis, const std::uint8_t* room,
                                              int channels, int channel, std::uint8_t* const* out) {
  const int here = channels - channel < 4 ? channels - channel : 4;
  const std::int32_t* weights = axis.weights;
  for (std::ptrdiff_t x = 0; x < axis.size; ++x, weights += axis.taps) {
    const std::uint8_t* in = room + axis.first[x] * std::ptrdiff_t{kLanes};
    Ints sums = Ints{} + kHalf;
    for (int t = 0; t < axis.taps; ++t, in += kLanes) sums += Widened(in) * weights[t];
    std::uint8_t bytes[kLanes];
    StoreBytes(sums, bytes);
    // What is written after the pixel the next one writes anew.
    const bool four = (x + 1) * channels + 1 <= axis.size * static_cast<std::ptrdiff_t>(channels);
    for (int r = 0; r < kRowsAtOnce; ++r) {
      std::uint8_t* to = out[r] + x * channels + channel;
      if (channels == 3 && four) {
        __builtin_memcpy(to, bytes + 4 * r, 4);
      } else {
        for (int c = 0; c < here; ++c) to[c] = bytes[4 * r + c];
      }
    }
  }
}

void Across(const AxisView& axis, const std::uint8_t* in, std::ptrdiff_t in_stride,
            std::ptrdiff_t columns, int channels, std::ptrdiff_t rows, std::uint8_t* out,
            std::ptrdiff_t out_stride, std::uint8_t* room) {
  for (std::ptrdiff_t y = 0; y < rows; y += kRowsAtOnce) {
    const std::uint8_t* from[kRowsAtOnce];
    std::uint8_t* to[kRowsAtOnce];
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const std::ptrdiff_t row = y + r < rows ? y + r : rows - 1;  // the last one again
      from[r] = in + row * in_stride;
      to[r] = out + row * out_stride;
    }
    for (int channel = 0; channel < channels; channel += 4) {
      SpreadPixels(from, columns, channels, channel, room);
      AcrossRows(axis, room, channels, channel, to);
    }
  }
}

}  // namespace

const ResizeKernels kResizeKernels = {ADA_TEXT_OF(ADA_ISA), Down, Across};

}  // namespace ada::data::ADA_ISA

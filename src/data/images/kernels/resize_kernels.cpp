// Compiled once per instruction set, whose name is ADA_ISA. Only what stands here may be called: a
// function of another header could be shared by all sets.
#include "data/images/kernels/resize_kernels.h"

#define ADA_JOIN_NAMES(a, b) a##b
#define ADA_PICTURE_SET(isa) ADA_JOIN_NAMES(picture_, isa)
#define ADA_TEXT_OF_NAME(name) #name
#define ADA_TEXT_OF(name) ADA_TEXT_OF_NAME(name)

namespace ada::data::ADA_PICTURE_SET(ADA_ISA) {
  namespace {

#if defined(__AVX512BW__)
  constexpr int kLanes = 16;
#elif defined(__AVX2__)
  constexpr int kLanes = 8;
#else
  constexpr int kLanes = 4;
#endif
  using Ints [[gnu::vector_size(kLanes * 4), gnu::aligned(4)]] = std::int32_t;
  using Bytes [[gnu::vector_size(kLanes), gnu::aligned(1)]] = std::uint8_t;

  constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

  [[gnu::always_inline]] inline Ints Widened(const std::uint8_t* bytes) {
    return __builtin_convertvector(*reinterpret_cast<const Bytes*>(bytes), Ints);
  }

  [[gnu::always_inline]] inline void StoreBytes(const Ints& sums, std::uint8_t* out) {
    *reinterpret_cast<Bytes*>(out) = __builtin_convertvector(sums >> kWeightBits, Bytes);
  }

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
  constexpr int kRowsTogether = kLanes / 4;

  // Four lanes of each row, of the channels from `channel` on. Where a pixel has fewer, lanes hold
  // what lies behind it, or zero at the end of the row.
  [[gnu::always_inline]] inline void SpreadPixels(const std::uint8_t* const* rows,
                                                  std::ptrdiff_t columns, int channels, int channel,
                                                  std::int32_t* room) {
    std::uint8_t bytes[kLanes] = {};
    std::ptrdiff_t x = 0;
    for (; x * channels + channel + 4 <= columns * channels; ++x, room += kLanes) {
      for (int r = 0; r < kRowsTogether; ++r)
        __builtin_memcpy(bytes + 4 * r, rows[r] + x * channels + channel, 4);
      *reinterpret_cast<Ints*>(room) = Widened(bytes);
    }
    for (; x < columns; ++x, room += kLanes) {
      for (int r = 0; r < kRowsTogether; ++r)
        for (int c = 0; c < 4; ++c)
          room[4 * r + c] = channel + c < channels ? rows[r][x * channels + channel + c] : 0;
    }
  }

  [[gnu::always_inline]] inline void AcrossRows(const AxisView& axis, const std::int32_t* room,
                                                int channels, int channel,
                                                std::uint8_t* const* out) {
    const int here = channels - channel < 4 ? channels - channel : 4;
    const std::int32_t* weights = axis.weights;
    for (std::ptrdiff_t x = 0; x < axis.size; ++x, weights += axis.taps) {
      const std::int32_t* in = room + axis.first[x] * std::ptrdiff_t{kLanes};
      Ints sums = Ints{} + kHalf;
      for (int t = 0; t < axis.taps; ++t, in += kLanes)
        sums += *reinterpret_cast<const Ints*>(in) * weights[t];
      std::uint8_t bytes[kLanes];
      StoreBytes(sums, bytes);
      // What is written behind the pixel the next one writes anew.
      const bool four = (x + 1) * channels + 1 <= axis.size * static_cast<std::ptrdiff_t>(channels);
      for (int r = 0; r < kRowsTogether; ++r) {
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
              std::ptrdiff_t out_stride, std::int32_t* room) {
    for (std::ptrdiff_t y = 0; y < rows; y += kRowsTogether) {
      const std::uint8_t* from[kRowsTogether];
      std::uint8_t* to[kRowsTogether];
      for (int r = 0; r < kRowsTogether; ++r) {
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

}  // namespace ada::data::ADA_PICTURE_SET(ADA_ISA)

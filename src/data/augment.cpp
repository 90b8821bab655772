// The inner loops for images that are only shifted and mirrored. Each byte is converted by the
// table of its channel; runs of pixels within a row are written at once, forwards or, where columns
// are mirrored, backwards.
#include "data/augment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace ada::data {
namespace {

// Pixels written together: the compiler sees straight code.
constexpr int kPixelsAtOnce = 8;

// Writes kPixelsAtOnce pixels as one expression without a loop. A negative kStep lets the pixels
// run to the left, while the channels of each keep their order.
template <int kChannels, int kStep, class Value, std::size_t... kByte>
inline void WriteAtOnce(const std::uint8_t* in, const Value* table, Value* out,
                        std::index_sequence<kByte...>) {
  ((out[static_cast<int>(kByte) / kChannels * kStep + static_cast<int>(kByte) % kChannels] =
        table[kByte % kChannels * 256 + in[kByte]]),
   ...);
}

// `count` pixels of one row; a step of -channels writes them from right to left.
template <int kChannels, int kStep, class Value>
void WritePixels(const std::uint8_t* in, std::int64_t count, const Value* table, Value* out) {
  constexpr auto kBytes = std::make_index_sequence<kPixelsAtOnce * kChannels>();
  std::int64_t i = 0;
  for (; i + kPixelsAtOnce <= count; i += kPixelsAtOnce)
    WriteAtOnce<kChannels, kStep>(in + i * kChannels, table, out + i * kStep, kBytes);
  for (; i < count; ++i)
    for (int c = 0; c < kChannels; ++c) out[i * kStep + c] = table[c * 256 + in[i * kChannels + c]];
}

// The same for any number of channels.
template <class Value>
void WriteAnyPixels(const std::uint8_t* in, std::int64_t count, int channels, std::int64_t step,
                    const Value* table, Value* out) {
  for (std::int64_t i = 0; i < count; ++i)
    for (int c = 0; c < channels; ++c) out[i * step + c] = table[c * 256 + in[i * channels + c]];
}

// Writes `count` pixels by the loop for this number of channels. `out` is the place of the first
// pixel of `in`; of a mirrored row that is the last one, from which the others run to the left.
template <class Value>
void WriteRun(const std::uint8_t* in, std::int64_t count, int channels, bool backwards,
              const Value* table, Value* out) {
  if (channels == 3)
    return (backwards ? WritePixels<3, -3, Value> : WritePixels<3, 3, Value>)(in, count, table,
                                                                              out);
  if (channels == 1)
    return (backwards ? WritePixels<1, -1, Value> : WritePixels<1, 1, Value>)(in, count, table,
                                                                              out);
  WriteAnyPixels(in, count, channels, backwards ? -channels : channels, table, out);
}

// Writes `count` pixels of byte 0 in all channels, as the table has it.
template <class Value>
void WriteBlack(std::int64_t count, int channels, const Value* table, Value* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    for (int c = 0; c < channels; ++c) *out++ = table[c * 256];
  }
}

// Columns first..last of the result, before it is mirrored, lie inside the stored image; the others
// are black.
struct Columns {
  std::int64_t first, last;
};
Columns ColumnsOf(const ImageShape& stored, const ImageShape& shape, const Placement& place) {
  const std::int64_t w = shape.width;
  const std::int64_t first = std::clamp<std::int64_t>(-place.dx, 0, w);
  return {first, std::clamp<std::int64_t>(stored.width - place.dx, first, w)};
}

}  // namespace

std::vector<float> NormalizeTable(int channels, const std::vector<double>& mean,
                                  const std::vector<double>& std) {
  std::vector<float> table;
  for (int c = 0; c < channels; ++c) {
    for (int pixel = 0; pixel < 256; ++pixel) {
      // Each operation is rounded to fp32 by itself. One factor and one summand would do the same
      // faster, with other last bits than torchvision's.
      float value = static_cast<float>(pixel) / 255.0f;
      if (!mean.empty()) value -= static_cast<float>(mean[static_cast<std::size_t>(c)]);
      if (!std.empty()) value /= static_cast<float>(std[static_cast<std::size_t>(c)]);
      table.push_back(value);
    }
  }
  return table;
}

template <class Value>
void WriteImage(const std::uint8_t* pixels, const ImageShape& stored, const ImageShape& shape,
                const Placement& place, const std::vector<Value>& table, Value* out) {
  const std::int64_t w = shape.width, c = shape.channels;
  const Columns columns = ColumnsOf(stored, shape, place);
  const std::int64_t first = columns.first, last = columns.last;
  for (std::int64_t y = 0; y < shape.height; ++y, out += w * c) {
    const std::int64_t from = y + place.dy;
    if (from < 0 || from >= stored.height || first == last) {
      WriteBlack(w, shape.channels, table.data(), out);
      continue;
    }
    // `first` and `last` count columns before they are mirrored, `before` and `after` those of the
    // result.
    const std::int64_t before = place.flip ? w - last : first;  // black pixels left in the result
    const std::int64_t after = w - before - (last - first);
    WriteBlack(before, shape.channels, table.data(), out);
    WriteRun(pixels + (from * stored.width + first + place.dx) * c, last - first, shape.channels,
             place.flip, table.data(), out + (place.flip ? w - 1 - first : first) * c);
    WriteBlack(after, shape.channels, table.data(), out + (w - after) * c);
  }
}

template void WriteImage(const std::uint8_t*, const ImageShape&, const ImageShape&,
                         const Placement&, const std::vector<float>&, float*);
template void WriteImage(const std::uint8_t*, const ImageShape&, const ImageShape&,
                         const Placement&, const std::vector<std::uint8_t>&, std::uint8_t*);

bool WriteFloatImage(const std::byte* values, const ImageShape& stored, const ImageShape& shape,
                     const Placement& place, const std::vector<double>& mean,
                     const std::vector<double>& std, float* out) {
  const std::int64_t w = shape.width, c = shape.channels;
  const Columns columns = ColumnsOf(stored, shape, place);
  std::vector<float> shift(static_cast<std::size_t>(c)), divisor(shift.size(), 1.0f);
  for (std::size_t k = 0; k < mean.size(); ++k)
    shift[k] = static_cast<float>(mean[k]), divisor[k] = static_cast<float>(std[k]);
  bool finite = true;
  for (std::int64_t y = 0; y < shape.height; ++y) {
    const std::int64_t from = y + place.dy;
    // Columns are taken in the order of the result, so that one expression serves both directions;
    // black is 0 before it is normalized, as in WriteImage.
    for (std::int64_t column = 0; column < w; ++column) {
      const std::int64_t x = place.flip ? w - 1 - column : column;
      const bool inside =
          from >= 0 && from < stored.height && x >= columns.first && x < columns.last;
      const std::int64_t at = (from * stored.width + x + place.dx) * c;
      for (std::int64_t k = 0; k < c; ++k, ++out) {
        float value = 0;
        if (inside) std::memcpy(&value, values + (at + k) * sizeof value, sizeof value);
        finite &= std::isfinite(value);
        const auto channel = static_cast<std::size_t>(k);
        *out = mean.empty() ? value : (value - shift[channel]) / divisor[channel];
      }
    }
  }
  return finite;
}

}  // namespace ada::data

#include "data/augment.h"

#include <algorithm>
#include <utility>

namespace ada::data {
namespace {

// Pixels written together: the compiler sees straight code.
constexpr int kTogether = 8;

template <int kChannels, int kStep, std::size_t... kByte>
inline void WriteTogether(const std::uint8_t* in, const float* table, float* out,
                          std::index_sequence<kByte...>) {
  ((out[static_cast<int>(kByte) / kChannels * kStep + static_cast<int>(kByte) % kChannels] =
        table[kByte % kChannels * 256 + in[kByte]]),
   ...);
}

// `count` pixels of one row; a step of -channels writes them from right to left.
template <int kChannels, int kStep>
void WritePixels(const std::uint8_t* in, std::int64_t count, const float* table, float* out) {
  constexpr auto kBytes = std::make_index_sequence<kTogether * kChannels>();
  std::int64_t i = 0;
  for (; i + kTogether <= count; i += kTogether)
    WriteTogether<kChannels, kStep>(in + i * kChannels, table, out + i * kStep, kBytes);
  for (; i < count; ++i)
    for (int c = 0; c < kChannels; ++c) out[i * kStep + c] = table[c * 256 + in[i * kChannels + c]];
}

// The same for any number of channels.
void WriteAnyPixels(const std::uint8_t* in, std::int64_t count, int channels, std::int64_t step,
                    const float* table, float* out) {
  for (std::int64_t i = 0; i < count; ++i)
    for (int c = 0; c < channels; ++c) out[i * step + c] = table[c * 256 + in[i * channels + c]];
}

void WriteRun(const std::uint8_t* in, std::int64_t count, int channels, bool backwards,
              const float* table, float* out) {
  if (channels == 3)
    return (backwards ? WritePixels<3, -3> : WritePixels<3, 3>)(in, count, table, out);
  if (channels == 1)
    return (backwards ? WritePixels<1, -1> : WritePixels<1, 1>)(in, count, table, out);
  WriteAnyPixels(in, count, channels, backwards ? -channels : channels, table, out);
}

void WriteBlack(std::int64_t count, int channels, const float* table, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    for (int c = 0; c < channels; ++c) *out++ = table[c * 256];
  }
}

}  // namespace

std::vector<float> NormalizeTable(int channels, const std::vector<double>& mean,
                                  const std::vector<double>& std) {
  std::vector<float> table;
  for (int c = 0; c < channels; ++c) {
    for (int pixel = 0; pixel < 256; ++pixel) {
      float value = static_cast<float>(pixel) / 255.0f;
      if (!mean.empty()) value -= static_cast<float>(mean[static_cast<std::size_t>(c)]);
      if (!std.empty()) value /= static_cast<float>(std[static_cast<std::size_t>(c)]);
      table.push_back(value);
    }
  }
  return table;
}

void WriteImage(const std::uint8_t* pixels, const ImageShape& shape, const Placement& place,
                const std::vector<float>& table, float* out) {
  const std::int64_t h = shape.height, w = shape.width, c = shape.channels;
  // Columns first..last of the crop lie inside the stored image, the others are black.
  const std::int64_t first = std::clamp<std::int64_t>(-place.dx, 0, w);
  const std::int64_t last = std::clamp<std::int64_t>(w - place.dx, first, w);
  for (std::int64_t y = 0; y < h; ++y, out += w * c) {
    const std::int64_t from = y + place.dy;
    if (from < 0 || from >= h || first == last) {
      WriteBlack(w, shape.channels, table.data(), out);
      continue;
    }
    const std::int64_t before = place.flip ? w - last : first;  // black pixels left in the result
    const std::int64_t after = w - before - (last - first);
    WriteBlack(before, shape.channels, table.data(), out);
    WriteRun(pixels + (from * w + first + place.dx) * c, last - first, shape.channels, place.flip,
             table.data(), out + (place.flip ? w - 1 - first : first) * c);
    WriteBlack(after, shape.channels, table.data(), out + (w - after) * c);
  }
}

}  // namespace ada::data

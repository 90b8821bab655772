// Images stored as bytes: their values, and batches of a data set in device memory.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "vision/image_placement.h"

namespace ada::backend::cuda {

// --- Values of bytes ---

// The fp32 values of images stored as bytes, channel by channel.
// Four values a thread: one load of four bytes, one store of 16. `bytes` and `out` are aligned for
// that.
// Body of ForEach over a quarter of the values, rounded up. The table has the mean and deviation of
// data.normalize in it, so that values have the bits of the host's.
struct ValuesOfBytes {
  ADA_HOST_DEVICE void operator()(std::int64_t four) const {
    const std::int64_t i = 4 * four;
    auto c = static_cast<std::uint32_t>(static_cast<std::uint64_t>(i) % channels);
    if (i + 4 > values) {
      for (std::int64_t k = i; k < values; ++k) out[k] = Next(bytes[k], c);
      return;
    }
    const std::uint32_t codes = reinterpret_cast<const std::uint32_t*>(bytes)[four];
    Vec4 x;
    for (int k = 0; k < 4; ++k) x.of[k] = Next(codes >> 8 * k & 0xffu, c);
    reinterpret_cast<Vec4*>(out)[four] = x;
  }
  // The value of a byte of channel c; advances c to the channel of the next byte.
  ADA_HOST_DEVICE float Next(std::uint32_t byte, std::uint32_t& c) const {
    const float value = table[c * 256 + byte];
    if (++c == channels) c = 0;
    return value;
  }

  const std::uint8_t* bytes;
  const float* table;  // [channels][256]
  float* out;
  std::int64_t values;
  std::uint32_t channels;
};

// --- Batches of a resident data set ---

// One batch from a data set that lies in device memory: which image, where it lies after its crop
// and flip, and the value of each of its bytes. The random numbers and the arithmetic are those of
// data/augment.h.
// What stays in device memory for a whole run.
// Whole data sets of bytes; `order` is uploaded once an epoch.
struct ResidentImages {
  const std::uint8_t* pixels = nullptr;   // [images, height, width, channels]
  const std::uint16_t* labels = nullptr;  // [images]
  const float* table = nullptr;           // [channels][256]: the value of a byte
  const std::uint32_t* order = nullptr;   // [images], of the present epoch
  int height = 0, width = 0, channels = 0;
};

// Position `i` (row, column) of the result takes its values from this pixel of the stored image;
// -1: from none, it is black.
ADA_HOST_DEVICE inline std::int64_t StoredPixel(const Placement& place, int height, int width,
                                                std::int64_t i) {
  const std::int64_t column = i % width;
  const std::int64_t y = i / width + place.dy;
  const std::int64_t x = (place.flip ? width - 1 - column : column) + place.dx;
  return y < 0 || y >= height || x < 0 || x >= width ? -1 : y * width + x;
}

// A row of the batch is `parts` blocks of kPixels pixels; the first of them writes its label.
// Phase 0 finds the image and its placement once for the block; phase 1 writes its pixels.
struct FillBatch {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  static constexpr int kPixels = 4096;
  struct Shared {  // of the block's image
    std::int64_t image, dy, dx;
    bool flip;
  };
  struct Own {};

  // Blocks for one image of `pixels` pixels.
  static std::int64_t Parts(std::int64_t pixels) { return (pixels + kPixels - 1) / kPixels; }

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t row = at.block / parts;
    const std::int64_t part = at.block % parts;
    if constexpr (kPhase == 0) {
      if (at.thread == 0) Choose(shared, row, part);
    } else {
      Write(shared, row, part, at.thread);
    }
  }

  ADA_HOST_DEVICE void Choose(Shared& shared, std::int64_t row, std::int64_t part) const {
    shared.image = data.order[first + row];
    const Placement place = PlaceImage(augment, seed, epoch, shared.image);
    shared.dy = place.dy, shared.dx = place.dx, shared.flip = place.flip;
    if (part == 0) out_labels[row] = data.labels[shared.image];
  }

  ADA_HOST_DEVICE void Write(const Shared& shared, std::int64_t row, std::int64_t part,
                             int thread) const {
    const std::int64_t pixels = std::int64_t{data.height} * data.width;
    const std::uint8_t* stored = data.pixels + shared.image * pixels * data.channels;
    float* out = out_images + row * pixels * data.channels;
    const Placement place{shared.dy, shared.dx, shared.flip};
    const std::int64_t end = (part + 1) * kPixels < pixels ? (part + 1) * kPixels : pixels;
    for (std::int64_t i = part * kPixels + thread; i < end; i += kThreads) {
      const std::int64_t from = StoredPixel(place, data.height, data.width, i);
      for (int c = 0; c < data.channels; ++c) {
        const int byte = from < 0 ? 0 : stored[from * data.channels + c];
        out[i * data.channels + c] = data.table[c * 256 + byte];
      }
    }
  }

  ResidentImages data;
  AugmentSpec augment;
  std::uint64_t seed = 0;
  std::int64_t epoch = 0, first = 0;  // of the order: the batch's first image
  std::int64_t parts = 1;             // blocks of a row
  float* out_images = nullptr;
  std::int32_t* out_labels = nullptr;
};

}  // namespace ada::backend::cuda

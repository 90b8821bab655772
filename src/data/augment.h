// One image from stored bytes to a network's input: pad and crop, flip, normalize. Pure functions;
// the loader decides which image, vision/image_placement.h where it lies, this file what becomes of
// it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "number/random.h"
#include "vision/image_placement.h"

namespace ada::data {

// Describes an image in memory, [height, width, channels] without gaps: as a data set stores it, or
// as the network takes it.
struct ImageShape {
  int height = 0, width = 0, channels = 0;
  std::int64_t numel() const { return std::int64_t{height} * width * channels; }
};

// [channels][256]: (p / 255 - mean) / std in fp32, operation by operation like torchvision's
// ToTensor and Normalize. Empty mean and std: p / 255.
std::vector<float> NormalizeTable(int channels, const std::vector<double>& mean,
                                  const std::vector<double>& std);

// Writes [h, w, c] values of `shape` from the bytes of a `stored` image with as many channels.
// Value: float or std::uint8_t; table: [channels][256], the value of each byte. `place` is the
// place of the result in the stored image; pixels outside of that are black, the table's entry for
// byte 0, as if the image had been padded before it was normalized.
template <class Value>
void WriteImage(const std::uint8_t* pixels, const ImageShape& stored, const ImageShape& shape,
                const Placement& place, const std::vector<Value>& table, Value* out);
inline void WriteImage(const std::uint8_t* pixels, const ImageShape& shape, const Placement& place,
                       const std::vector<float>& table, float* out) {
  WriteImage(pixels, shape, shape, place, table, out);
}

// The same from fp32 values, which need not be aligned: (x - mean) / std, operation by operation;
// empty mean and std: x. Returns whether all of the stored values that it took are finite.
bool WriteFloatImage(const std::byte* values, const ImageShape& stored, const ImageShape& shape,
                     const Placement& place, const std::vector<double>& mean,
                     const std::vector<double>& std, float* out);

// Random numbers of what becomes of one image of the data set in one epoch, for one purpose
// (StreamId of its name). Each purpose draws from a stream of its own, so that a change which is
// switched on or off, or draws more numbers, leaves the choices of the others as they are.
inline RandomStream StreamFor(std::uint64_t seed, std::uint64_t purpose, std::int64_t epoch,
                              std::int64_t image) {
  const auto words = Philox(
      seed, purpose, static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint32_t>(image));
  return RandomStream(seed, static_cast<std::uint64_t>(words[0]) << 32 | words[1]);
}

}  // namespace ada::data

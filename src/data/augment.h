// One image from stored bytes to a network's input: pad and crop, flip, normalise. Pure functions;
// the loader decides which image, this file what becomes of it.
#pragma once
#include <cstdint>
#include <vector>

namespace ada::data {

struct ImageShape {
  int height = 0, width = 0, channels = 0;
  std::int64_t numel() const { return std::int64_t{height} * width * channels; }
};

// Where an image lies after cropping: row y, column x of the result is pixel (y + dy, x + dx) of
// the stored image, black where there is none; then the columns are mirrored if `flip`.
struct Placement {
  std::int64_t dy = 0, dx = 0;
  bool flip = false;
  friend bool operator==(const Placement&, const Placement&) = default;
};

struct AugmentSpec {
  int pad = 0;
  bool random_crop = false;  // false: the pad is cut off again
  bool horizontal_flip = false;
};

// The random choices for the image at position `image` of the data set in `epoch`: dy and dx
// uniform in -pad..pad (to 2^-32; torchvision's RandomCrop(size, padding=pad)), a flip in half of
// the cases.
Placement Place(const AugmentSpec& spec, std::uint64_t seed, std::int64_t epoch,
                std::int64_t image);

// [channels][256]: (p / 255 - mean) / std in fp32, operation by operation like torchvision's
// ToTensor and Normalize. Empty mean and std: p / 255.
std::vector<float> NormalizeTable(int channels, const std::vector<double>& mean,
                                  const std::vector<double>& std);

// Writes [h, w, c] floats from [h, w, c] bytes.
void WriteImage(const std::uint8_t* pixels, const ImageShape& shape, const Placement& place,
                const std::vector<float>& table, float* out);

}  // namespace ada::data

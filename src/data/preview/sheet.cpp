#include "data/preview/sheet.h"

#include <algorithm>
#include <cmath>

#include "data/images/resize.h"
#include "data/preview/letters.h"

namespace ada::data {
namespace {

constexpr int kColumns = 8, kGap = 8, kTextScale = 2;
constexpr int kTextRows = kTextScale * kLetterRows + 6;
constexpr int kSmallest = 96, kLargest = 224;  // sides of an image on the sheet
constexpr std::array<std::uint8_t, 3> kInk = {30, 30, 30};
constexpr std::uint8_t kPaper = 245;

// What was normalised, as it was before; [0, 1] where that holds the values.
class Shades {
 public:
  Shades(const Batch& batch, const ImageShape& shape, const LoaderSpec& spec)
      : mean_(spec.mean), std_(spec.std) {
    mean_.resize(static_cast<std::size_t>(shape.channels), 0);
    std_.resize(static_cast<std::size_t>(shape.channels), 1);
    if (spec.changes.random_erasing) return;  // what it puts in may lie anywhere
    constexpr double kRounding = 1e-4;
    for (std::size_t i = 0; i < batch.images.size(); ++i) {
      const double value = Before(batch.images[i], i % mean_.size());
      if (value < low_ - kRounding) low_ = value;
      if (value > high_ + kRounding) high_ = value;
    }
  }
  std::uint8_t Of(float value, std::size_t channel) const {
    const double share = (Before(value, channel) - low_) / (high_ - low_);
    return static_cast<std::uint8_t>(std::lround(std::clamp(share, 0.0, 1.0) * 255));
  }

 private:
  double Before(float value, std::size_t channel) const {
    return static_cast<double>(value) * std_[channel] + mean_[channel];
  }
  std::vector<double> mean_, std_;
  double low_ = 0, high_ = 1;
};

// RGB of three channels, grey of the first channel else; in the size of the sheet.
Picture ImageOf(const float* values, const ImageShape& shape, const Shades& shades) {
  Picture picture{shape.height, shape.width, 3, {}};
  const auto channels = static_cast<std::size_t>(shape.channels);
  for (std::int64_t pixel = 0; pixel < std::int64_t{shape.height} * shape.width; ++pixel)
    for (std::size_t c = 0; c < 3; ++c) {
      const std::size_t channel = channels == 3 ? c : 0;
      picture.pixels.push_back(shades.Of(values[pixel * shape.channels + channel], channel));
    }
  const int side = std::max(shape.height, shape.width);
  if (side <= kLargest) return picture;
  const auto scaled = [&](int length) { return std::max(1, length * kLargest / side); };
  return ResizeBox(picture, {0, 0, shape.height, shape.width},
                   {scaled(shape.height), scaled(shape.width)});
}

// Each pixel `scale` times, in both directions.
void Put(const Picture& picture, int scale, int top, int left, Picture* sheet) {
  for (int y = 0; y < picture.height * scale; ++y)
    for (int x = 0; x < picture.width * scale; ++x) {
      const std::int64_t from = (std::int64_t{y / scale} * picture.width + x / scale) * 3;
      const std::int64_t to = (std::int64_t{top + y} * sheet->width + left + x) * 3;
      std::copy_n(picture.pixels.begin() + from, 3, sheet->pixels.begin() + to);
    }
}

// As much of it as fits.
std::string Fitting(std::string text, int width) {
  while (!text.empty() && TextWidth(text, kTextScale) > width) text.pop_back();
  return text;
}

}  // namespace

Picture DrawSheet(const Batch& batch, const ImageShape& shape, const LoaderSpec& spec,
                  const std::vector<std::string>& names) {
  const int images = std::min(batch.rows, kMostOnSheet);
  const Shades shades(batch, shape, spec);
  const int side = std::max(shape.height, shape.width);
  const int scale = std::max(1, (kSmallest + side - 1) / side);
  const Picture first = ImageOf(batch.images.data(), shape, shades);
  const int columns = std::min(kColumns, images), rows = (images + columns - 1) / columns;
  const int cell_width = std::max(first.width * scale, kSmallest) + kGap;
  const int cell_height = first.height * scale + kTextRows + kGap;
  Picture sheet{rows * cell_height + kGap, columns * cell_width + kGap, 3, {}};
  sheet.pixels.assign(static_cast<std::size_t>(sheet.height) * sheet.width * 3, kPaper);
  for (int i = 0; i < images; ++i) {
    const int top = kGap + i / columns * cell_height, left = kGap + i % columns * cell_width;
    const Picture image = ImageOf(batch.images.data() + i * shape.numel(), shape, shades);
    Put(image, scale, top, left, &sheet);
    const auto label = static_cast<std::size_t>(batch.labels[static_cast<std::size_t>(i)]);
    const std::string name = label < names.size() ? names[label] : std::to_string(label);
    DrawText(Fitting(name, cell_width - kGap), kTextScale, top + image.height * scale + 4, left,
             kInk, &sheet);
  }
  return sheet;
}

}  // namespace ada::data

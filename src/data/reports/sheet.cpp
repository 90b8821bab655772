// Draws what a batch holds and not the files: errors of resizing, normalization and labels are to
// be seen here before anything is trained.
#include <algorithm>
#include <cmath>
#include <set>

#include "data/images/resize.h"
#include "data/reports/reports.h"
#include "error.h"
#include "vision/coder.h"
#include "vision/draw.h"

namespace ada::data {
namespace {

constexpr int kColumns = 8, kGap = 8;
constexpr int kMargin = 3;                     // above and below the line of text under an image
constexpr int kSmallest = 96, kLargest = 224;  // sides of an image on the sheet
constexpr int kColumnsWithLabels = 4,
              kLargestWithLabels = 448;  // where labels or boxes are drawn on it
constexpr vision::Rgb kInk = {30, 30, 30}, kPaper = {245, 245, 245};

// Shows values as they were before normalization, with shades for [0, 1], or for a wider range if
// the batch needs one. Looks at the whole batch first, so that all images have the same shades.
class Shades {
 public:
  Shades(const Batch& batch, const ImageShape& shape, const LoaderSpec& spec)
      : mean_(spec.mean), std_(spec.std) {
    mean_.resize(static_cast<std::size_t>(shape.channels), 0);
    std_.resize(static_cast<std::size_t>(shape.channels), 1);
    if (spec.changes.random_erasing) return;  // its values may be anything
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

// RGB of three channels, gray of the first channel else.
Picture ImageOf(const float* values, const ImageShape& shape, const Shades& shades) {
  Picture picture{shape.height, shape.width, 3, {}};
  const auto channels = static_cast<std::size_t>(shape.channels);
  for (std::int64_t pixel = 0; pixel < std::int64_t{shape.height} * shape.width; ++pixel)
    for (std::size_t c = 0; c < 3; ++c) {
      const std::size_t channel = channels == 3 ? c : 0;
      picture.pixels.push_back(shades.Of(values[pixel * shape.channels + channel], channel));
    }
  return picture;
}

Picture AtMost(const Picture& picture, int largest) {
  const int side = std::max(picture.height, picture.width);
  if (side <= largest) return picture;
  const auto scaled = [&](int length) { return std::max(1, length * largest / side); };
  return ResizeBox(picture, {0, 0, picture.height, picture.width},
                   {scaled(picture.height), scaled(picture.width)});
}

std::string NameOfClass(std::int32_t label, const std::vector<std::string>& names) {
  const auto at = static_cast<std::size_t>(label);
  return at < names.size() ? names[at] : std::to_string(label);
}

// What a batch holds about its images besides one label each.
class DrawnLabels {
 public:
  DrawnLabels(const Batch& batch, const ImageShape& shape, const LoaderSpec& spec,
              const std::vector<std::string>& names)
      : batch_(batch), spec_(spec), names_(names) {
    labels_ = batch.labels.size() / static_cast<std::size_t>(batch.rows);
    pixels_ = static_cast<std::size_t>(shape.height) * static_cast<std::size_t>(shape.width);
  }
  bool boxes() const { return spec_.coder != nullptr; }
  bool any() const { return boxes() || labels_ > 1; }

  // Draws what belongs to image `row`, and returns what is written below it. The picture is in RGB
  // and of the batch's size: labels and boxes are in its pixels.
  std::string Draw(int row, Picture* picture) const {
    const std::int32_t* labels = batch_.labels.data() + static_cast<std::size_t>(row) * labels_;
    if (!any()) return NameOfClass(*labels, names_);
    const vision::RgbView view{picture->pixels.data(), picture->height, picture->width};
    if (!boxes()) {
      ADA_CHECK(labels_ == pixels_);
      vision::DrawLabels(view, {labels, labels_});
      std::set<std::int32_t> classes(labels, labels + labels_);
      classes.erase(kNoLabel);
      return std::to_string(classes.size()) + (classes.size() == 1 ? " class" : " classes");
    }
    const std::vector<vision::Detection> found = BoxesOf(row, labels);
    for (const vision::Detection& object : found)
      vision::DrawLabeledBox(view, object.box, object.label, NameOfClass(object.label, names_));
    return std::to_string(found.size()) + (found.size() == 1 ? " box" : " boxes");
  }

 private:
  // The boxes that the targets encode; several default boxes mean the same.
  std::vector<vision::Detection> BoxesOf(int row, const std::int32_t* labels) const {
    // The targets are decoded like predictions that are certain of them, and boxes that several
    // default boxes stand for become one by suppression.
    constexpr float kSure = 20;
    const std::size_t classes =
        1 + static_cast<std::size_t>(*std::max_element(labels, labels + labels_));
    std::vector<float> scores(labels_ * classes, -kSure);
    for (std::size_t i = 0; i < labels_; ++i)
      scores[i * classes + static_cast<std::size_t>(labels[i])] = kSure;
    vision::DecodeSpec same;
    same.nms = 0.95;
    return spec_.coder->Decode(
        batch_.locations.data() + static_cast<std::size_t>(row) * labels_ * 4, scores.data(),
        static_cast<int>(classes), same);
  }

  const Batch& batch_;
  const LoaderSpec& spec_;
  const std::vector<std::string>& names_;
  std::size_t labels_ = 1, pixels_ = 1;
};

// Each pixel `scale` times, in both directions.
void Put(const Picture& picture, int scale, int top, int left, Picture* sheet) {
  for (int y = 0; y < picture.height * scale; ++y)
    for (int x = 0; x < picture.width * scale; ++x) {
      const std::int64_t from = (std::int64_t{y / scale} * picture.width + x / scale) * 3;
      const std::int64_t to = (std::int64_t{top + y} * sheet->width + left + x) * 3;
      std::copy_n(picture.pixels.begin() + from, 3, sheet->pixels.begin() + to);
    }
}

// As much of it as fits. Bytes are taken off the end; the letters that are drawn count what remains
// of a character as one.
std::string Fitting(std::string text, int width) {
  while (!text.empty() && vision::TextWidth(text) > width) text.pop_back();
  return text;
}

}  // namespace

Picture DrawSheet(const Batch& batch, const ImageShape& shape, const LoaderSpec& spec,
                  const std::vector<std::string>& names) {
  const int images = std::min(batch.rows, kMostOnSheet);
  const Shades shades(batch, shape, spec);
  const DrawnLabels truth(batch, shape, spec, names);
  const int largest = truth.any() ? kLargestWithLabels : kLargest;
  const int side = std::max(shape.height, shape.width);
  // Small images are enlarged by whole factors, without smoothing: each pixel becomes a square.
  const int scale = std::max(1, (kSmallest + side - 1) / side);
  const auto image_of = [&](int row, std::string* text) {
    Picture image = ImageOf(batch.images.data() + row * shape.numel(), shape, shades);
    *text = truth.Draw(row, &image);
    return AtMost(image, largest);
  };
  std::string text;
  const Picture first = image_of(0, &text);
  const int columns = std::min(truth.any() ? kColumnsWithLabels : kColumns, images);
  const int rows = (images + columns - 1) / columns;
  const int cell_width = std::max(first.width * scale, kSmallest) + kGap;
  const int cell_height = first.height * scale + 2 * kMargin + vision::TextHeight() + kGap;
  Picture sheet{rows * cell_height + kGap, columns * cell_width + kGap, 3, {}};
  sheet.pixels.assign(static_cast<std::size_t>(sheet.height) * sheet.width * 3, kPaper.r);
  const vision::RgbView view{sheet.pixels.data(), sheet.height, sheet.width};
  for (int i = 0; i < images; ++i) {
    const int top = kGap + i / columns * cell_height, left = kGap + i % columns * cell_width;
    const Picture image = image_of(i, &text);
    Put(image, scale, top, left, &sheet);
    vision::DrawText(view, top + image.height * scale + kMargin, left,
                     Fitting(text, cell_width - kGap), kInk, kPaper);
  }
  return sheet;
}

}  // namespace ada::data

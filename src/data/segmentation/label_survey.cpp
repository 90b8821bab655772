// Sizes of label images are compared from headers, whose errors are faults of those files; classes
// are counted, some images at a time, each time in parallel, until nothing more is to be found:
// sets in which all classes are common end after the first few.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "data/images/picture.h"
#include "data/segmentation/label_files.h"
#include "error.h"
#include "io/run_in_parallel.h"

namespace ada::data {

namespace {

constexpr std::int64_t kPairsOfTask = 64;

// What EXIF has to do with it: a picture that it would turn to the size of its labels.
std::string TurnedText(const std::string& picture, PictureSize labels) {
  PictureNeeds read;
  try {
    read = NeedsOfPictureFile(picture);
  } catch (const DataError&) {
    return "";
  }
  const int orientation = read.traits.orientation;
  if (orientation == 1 || Turned(read.stored, orientation) != labels) return "";
  return "; EXIF orientation " + std::to_string(orientation) +
         " turns the picture to that size: set data.exif: apply, or turn the picture itself";
}

// If a header cannot be read, that is no mismatch of sizes; decoding will report the fault.
void RequirePair(const Dataset& dataset, std::int64_t image) {
  const std::int64_t number = dataset.NumberInFiles(image);
  PictureSize picture, labels;
  try {
    picture = dataset.store->HeaderOf(number).size;
    labels = dataset.label_images->SizeOf(number);
  } catch (const DataError&) {
    return;
  }
  if (picture != labels) throw DataError(OtherSizeText(dataset, number, picture, labels));
}

}  // namespace

std::string OtherSizeText(const Dataset& dataset, std::int64_t number, PictureSize picture,
                          PictureSize labels) {
  return dataset.label_images->NameOf(number) + ": " + SizeText(labels) + ", and its picture " +
         dataset.store->NameOf(number) + " has " + SizeText(picture) +
         "; expected a label for each pixel" + TurnedText(dataset.store->NameOf(number), labels);
}

void RequireLabelSizes(const Dataset& dataset, bool skip_broken) {
  if (skip_broken) return;
  RunRangesInParallel(dataset.images(), kPairsOfTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) RequirePair(dataset, i);
  });
}

Picture ReadLabels(const Dataset& dataset, std::int64_t number, PictureSize picture) {
  const std::string name = dataset.label_images->NameOf(number);
  Picture labels;
  try {
    labels = dataset.label_images->Read(number);
  } catch (const FaultyFile& error) {
    throw BrokenLabels(name, error.what(), error.kind());
  } catch (const DataError& error) {
    throw BrokenLabels(name, error.what());
  }
  if (labels.size() == picture) return labels;
  throw BrokenLabels(name, OtherSizeText(dataset, number, picture, labels.size()),
                     FaultKind::kSize);
}

// --- Classes ---

namespace {

constexpr std::int64_t kMostLabelImages = 1'000, kAtOnce = 32;

using LabelCounts = std::array<std::int64_t, 256>;

LabelCounts CountLabels(const Dataset& dataset, std::int64_t image) {
  LabelCounts counts{};
  try {
    for (const std::uint8_t label : dataset.label_images->Read(dataset.NumberInFiles(image)).pixels)
      ++counts[label];
  } catch (const DataError&) {
  }
  return counts;
}

}  // namespace

UnseenClasses FindUnseenClasses(const Dataset& dataset) {
  ADA_CHECK(dataset.label_images);
  const std::int64_t most = std::min(dataset.images(), kMostLabelImages);
  LabelCounts all{};
  const auto is_seen = [&](std::int64_t count) { return count > 0; };
  UnseenClasses found;
  while (found.looked < most && !std::all_of(all.begin(), all.begin() + dataset.classes, is_seen)) {
    const std::int64_t first = found.looked, count = std::min(kAtOnce, most - first);
    std::array<LabelCounts, kAtOnce> counts{};
    RunRangesInParallel(count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        counts[static_cast<std::size_t>(i)] =
            CountLabels(dataset, dataset.SpreadImage(first + i, most));
    });
    for (const LabelCounts& of_image : counts)
      for (std::size_t k = 0; k < all.size(); ++k) all[k] += of_image[k];
    found.looked += count;
  }
  std::int64_t pixels = 0;
  for (const std::int64_t count : all) pixels += count;
  if (pixels == 0) return {{}, found.looked, 0};
  found.ignored_share = static_cast<double>(all[kIgnoredPixel]) / static_cast<double>(pixels);
  for (int k = 0; k < dataset.classes; ++k)
    if (all[static_cast<std::size_t>(k)] == 0) found.classes.push_back(k);
  return found;
}

namespace {

constexpr std::int64_t kLabelImagesOfTask = 16;

// For each class `pixels` counts its own, and `of` all pixels of the images that have it.
struct PixelCounts {
  std::vector<std::int64_t> pixels, of;
  std::vector<BrokenImage> left_out = {};
};

// The label image of image `image`; or, if `left_out` collects images, none for an image that
// training cannot use, as far as the beginning of its picture shows.
Picture LabelsToCount(const Dataset& dataset, std::int64_t image,
                      std::vector<BrokenImage>* left_out) {
  const std::int64_t number = dataset.NumberInFiles(image);
  if (left_out == nullptr) return dataset.label_images->Read(number);
  const std::string picture = dataset.store->NameOf(number);
  Picture labels;
  BrokenImage broken;
  if (!Usable(image, picture, &broken,
              [&] { labels = ReadLabels(dataset, number, dataset.store->HeaderOf(number).size); }))
    left_out->push_back(std::move(broken));
  return labels;
}

// Counts the images begin..end - 1 of the set.
PixelCounts CountPixels(const Dataset& dataset, std::int64_t begin, std::int64_t end,
                        bool skip_broken) {
  const auto classes = static_cast<std::size_t>(dataset.classes);
  PixelCounts counts{std::vector<std::int64_t>(classes), std::vector<std::int64_t>(classes)};
  for (std::int64_t i = begin; i < end; ++i) {
    // An image that is left out gives no pixels, which adds nothing below.
    const Picture labels = LabelsToCount(dataset, i, skip_broken ? &counts.left_out : nullptr);
    std::array<std::int64_t, 256> found{};
    for (const std::uint8_t label : labels.pixels) ++found[label];
    for (std::size_t k = 0; k < classes; ++k) {
      counts.pixels[k] += found[k];
      if (found[k] > 0) counts.of[k] += static_cast<std::int64_t>(labels.pixels.size());
    }
  }
  return counts;
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

std::vector<double> MedianFrequencyWeights(const std::vector<std::int64_t>& pixels,
                                           const std::vector<std::int64_t>& of,
                                           UnseenClass unseen) {
  ADA_CHECK(pixels.size() == of.size());
  std::vector<double> seen, weights(pixels.size(), 1.0);
  for (std::size_t k = 0; k < pixels.size(); ++k)
    if (pixels[k] > 0) seen.push_back(static_cast<double>(pixels[k]) / static_cast<double>(of[k]));
  if (unseen == UnseenClass::kAllNan && seen.size() < pixels.size())
    return std::vector<double>(pixels.size(), std::numeric_limits<double>::quiet_NaN());
  if (seen.empty()) return weights;
  const double median = MedianOf(seen);
  for (std::size_t k = 0; k < pixels.size(); ++k)
    if (pixels[k] > 0)
      weights[k] = median / (static_cast<double>(pixels[k]) / static_cast<double>(of[k]));
  return weights;
}

std::vector<double> MedianFrequencyWeights(const Dataset& dataset, UnseenClass unseen,
                                           std::vector<int>* unseen_classes,
                                           std::vector<BrokenImage>* left_out) {
  ADA_CHECK(dataset.label_images);
  const bool skip_broken = left_out != nullptr;
  std::vector<PixelCounts> parts(
      static_cast<std::size_t>((dataset.images() + kLabelImagesOfTask - 1) / kLabelImagesOfTask));
  RunRangesInParallel(dataset.images(), kLabelImagesOfTask,
                      [&](std::int64_t begin, std::int64_t end) {
                        parts[static_cast<std::size_t>(begin / kLabelImagesOfTask)] =
                            CountPixels(dataset, begin, end, skip_broken);
                      });
  const auto classes = static_cast<std::size_t>(dataset.classes);
  PixelCounts all{std::vector<std::int64_t>(classes), std::vector<std::int64_t>(classes)};
  for (const PixelCounts& counts : parts) {
    if (skip_broken)
      left_out->insert(left_out->end(), counts.left_out.begin(), counts.left_out.end());
    for (std::size_t k = 0; k < classes; ++k) {
      all.pixels[k] += counts.pixels[k];
      all.of[k] += counts.of[k];
    }
  }
  if (unseen_classes != nullptr)
    for (std::size_t k = 0; k < classes; ++k)
      if (all.pixels[k] == 0) unseen_classes->push_back(static_cast<int>(k));
  return MedianFrequencyWeights(all.pixels, all.of, unseen);
}

}  // namespace ada::data

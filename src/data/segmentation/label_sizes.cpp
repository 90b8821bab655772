#include "data/segmentation/label_sizes.h"

#include <algorithm>

#include "core/error.h"
#include "core/run_in_parallel.h"

namespace ada::data {
namespace {

constexpr std::int64_t kPairsOfTask = 64;

// Of the image with this number in its files.
std::string OtherSizeText(const Dataset& dataset, std::int64_t number, PictureSize picture,
                          PictureSize labels) {
  return dataset.label_images->NameOf(number) + ": " + SizeText(labels) + ", and its picture " +
         dataset.store->NameOf(number) + " has " + SizeText(picture) +
         "; expected a label for each pixel";
}

void RequirePair(const Dataset& dataset, std::int64_t image) {
  const std::int64_t number = dataset.NumberInFiles(image);
  PictureSize picture, labels;
  try {
    picture = SizeInPictureFile(dataset.store->NameOf(number));
    labels = dataset.label_images->SizeOf(number);
  } catch (const DataError&) {
    return;
  }
  if (picture != labels) throw DataError(OtherSizeText(dataset, number, picture, labels));
}

}  // namespace

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
  } catch (const DataError& error) {
    throw BrokenTruth(name, error.what());
  }
  if (labels.size() == picture) return labels;
  throw BrokenTruth(name, OtherSizeText(dataset, number, picture, labels.size()));
}

}  // namespace ada::data

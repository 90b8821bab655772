// Compares sizes from headers, and makes errors of label images faults of those files.
#include <algorithm>

#include "data/images/orientation.h"
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

}  // namespace ada::data

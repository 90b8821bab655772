// Images are taken some at a time, each time in parallel, until nothing more is to be found: sets
// in which all classes are common end after the first few.
#include "data/segmentation/unseen_classes.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/run_in_parallel.h"

namespace ada::data {
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

}  // namespace ada::data

// Parts of a data set: the first images, the last ones, or some spread over all of them.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/dataset.h"

namespace ada::data {
namespace {

// Facts and store of a data set, none of its images.
Dataset EmptyLike(const Dataset& dataset) {
  Dataset empty;
  empty.name = dataset.name;
  empty.height = dataset.height, empty.width = dataset.width;
  empty.channels = dataset.channels, empty.classes = dataset.classes;
  empty.store = dataset.store;
  empty.by_class = dataset.by_class;
  empty.label_images = dataset.label_images;
  empty.objects = dataset.objects;
  if (dataset.tokens) empty.tokens = dataset.tokens->Part(0, 0);
  return empty;
}

// Whether image `i` is one of the `count` that are spread evenly over `images`: some j in
// 0..count-1 has i = floor((2 j + 1) images / (2 count)).
bool IsSpread(std::int64_t i, std::int64_t images, std::int64_t count) {
  // The smallest j whose number is at least i.
  const std::int64_t twice = 2 * count * i - images;
  const std::int64_t j = twice <= 0 ? 0 : (twice + 2 * images - 1) / (2 * images);
  return j < count && (2 * j + 1) * images / (2 * count) == i;
}

// The images of `dataset` of which `chosen` says yes.
template <class Chosen>
Dataset Pick(const Dataset& dataset, Chosen chosen) {
  Dataset part = EmptyLike(dataset);
  for (std::int64_t i = 0; i < dataset.images(); ++i) {
    if (!chosen(i)) continue;
    part.labels.push_back(dataset.labels[static_cast<std::size_t>(i)]);
    part.picked.push_back(static_cast<std::uint32_t>(dataset.NumberInFiles(i)));
  }
  return part;
}

void KeepFirst(Dataset& dataset, std::int64_t count) {
  if (dataset.tokens) {
    dataset.tokens = dataset.tokens->Part(0, count);
    return;
  }
  const auto kept = static_cast<std::size_t>(count);
  dataset.labels.resize(kept);
  if (!dataset.picked.empty()) dataset.picked.resize(kept);
  if (!dataset.store) dataset.pixels.resize(kept * static_cast<std::size_t>(dataset.per_image()));
}

Dataset CopyFrom(const Dataset& dataset, std::int64_t first) {
  Dataset last = EmptyLike(dataset);
  if (dataset.tokens) {
    last.tokens = dataset.tokens->Part(first, dataset.images() - first);
    return last;
  }
  last.labels.assign(dataset.labels.begin() + first, dataset.labels.end());
  if (!dataset.picked.empty())
    last.picked.assign(dataset.picked.begin() + first, dataset.picked.end());
  last.first = dataset.first + first;
  if (!dataset.store)
    last.pixels.assign(dataset.pixels.begin() + first * dataset.per_image(), dataset.pixels.end());
  return last;
}

}  // namespace

void Limit(Dataset& dataset, std::int64_t count) {
  ADA_CHECK(count >= 0);
  const std::int64_t images = dataset.images();
  if (count == 0 || count >= images) return;
  if (!dataset.by_class) return KeepFirst(dataset, count);
  dataset = Pick(dataset, [&](std::int64_t i) { return IsSpread(i, images, count); });
}

Dataset SplitLast(Dataset& dataset, std::int64_t count) {
  ADA_CHECK(count >= 0);
  const std::int64_t images = dataset.images();
  if (count >= images) {
    throw ConfigError("data.validation: holds back " + std::to_string(count) + " of " +
                      std::to_string(images) +
                      " training images; expected fewer, so that some are left to train on");
  }
  if (count == 0) return EmptyLike(dataset);
  const auto held_back = [&](std::int64_t i) { return IsSpread(i, images, count); };
  Dataset last = dataset.by_class ? Pick(dataset, held_back) : CopyFrom(dataset, images - count);
  if (dataset.by_class)
    dataset = Pick(dataset, [&](std::int64_t i) { return !held_back(i); });
  else
    KeepFirst(dataset, images - count);
  return last;
}

const std::uint8_t* Dataset::bytes() const {
  if (!store) return pixels.data();
  const std::uint8_t* all = picked.empty() ? store->Bytes() : nullptr;
  return all == nullptr ? nullptr : all + first * per_image();
}

}  // namespace ada::data

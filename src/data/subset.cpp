// Parts of a data set: the first images, the last ones, or some spread over all of them.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "data/dataset.h"
#include "error.h"
#include "number/random.h"

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

// The images of `dataset` for which `chosen` returns true.
template <class Chosen>
Dataset Pick(const Dataset& dataset, Chosen chosen) {
  Dataset part = EmptyLike(dataset);
  for (std::int64_t i = 0; i < dataset.images(); ++i) {
    if (!chosen(i)) continue;
    part.labels.push_back(dataset.labels[static_cast<std::size_t>(i)]);
    part.picked.push_back(static_cast<std::uint32_t>(dataset.NumberInFiles(i)));
    if (dataset.store) continue;
    const std::uint8_t* pixels = dataset.pixels.data() + i * dataset.per_image();
    part.pixels.insert(part.pixels.end(), pixels, pixels + dataset.per_image());
  }
  return part;
}

// Images in a store are not moved: the number of labels tells how many are used, and `picked` or
// `first` which.
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

// Copies the images from `first` on into a set of their own; those before it stay as they are.
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

// The images of each class, in their order.
std::vector<std::vector<std::int64_t>> ByClass(const Dataset& dataset) {
  std::vector<std::vector<std::int64_t>> by_class;
  for (std::int64_t i = 0; i < dataset.images(); ++i) {
    const std::size_t label = dataset.labels[static_cast<std::size_t>(i)];
    if (by_class.size() <= label) by_class.resize(label + 1);
    by_class[label].push_back(i);
  }
  return by_class;
}

// How many of `count` images each class contributes, by largest remainders, the first of equal
// ones; a class contributes its last image only if no other can.
std::vector<std::int64_t> PartsOf(const std::vector<std::vector<std::int64_t>>& by_class,
                                  std::int64_t images, std::int64_t count) {
  std::vector<std::int64_t> parts;
  std::vector<std::size_t> order(by_class.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::int64_t left = count;
  const auto product = [&](std::size_t k) {
    return count * static_cast<std::int64_t>(by_class[k].size());
  };
  for (std::size_t k = 0; k < by_class.size(); ++k) {
    parts.push_back(product(k) / images);
    left -= parts.back();
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto gives_last = [&](std::size_t k) {
      return parts[k] + 1 >= static_cast<std::int64_t>(by_class[k].size());
    };
    if (gives_last(a) != gives_last(b)) return gives_last(b);
    return product(a) % images > product(b) % images;
  });
  for (const std::size_t k : order) {
    if (left == 0) break;
    if (parts[k] == static_cast<std::int64_t>(by_class[k].size())) continue;
    ++parts[k];
    --left;
  }
  ADA_CHECK(left == 0);
  return parts;
}

// Some images of each class are drawn by the first steps of a shuffle (Fisher and Yates). Sets
// whose labels are all 0 (boxes, label images) count as one class; sequences have no labels and
// never come here.
Dataset SplitShare(Dataset& dataset, std::int64_t count, std::uint64_t seed) {
  constexpr std::uint64_t kStream = StreamId("validation");
  std::vector<std::vector<std::int64_t>> by_class = ByClass(dataset);
  const std::vector<std::int64_t> parts = PartsOf(by_class, dataset.images(), count);
  std::vector<bool> held_back(static_cast<std::size_t>(dataset.images()));
  RandomStream random(seed, kStream);
  for (std::size_t k = 0; k < by_class.size(); ++k) {
    std::vector<std::int64_t>& images = by_class[k];
    for (std::size_t i = 0; i < static_cast<std::size_t>(parts[k]); ++i) {
      const auto rest = static_cast<std::uint32_t>(images.size() - i);
      std::swap(images[i], images[i + random.Below(rest)]);
      held_back[static_cast<std::size_t>(images[i])] = true;
    }
  }
  const auto is_held_back = [&](std::int64_t i) { return held_back[static_cast<std::size_t>(i)]; };
  Dataset part = Pick(dataset, is_held_back);
  // What was left out is counted for the training split, whatever is held out of that.
  std::vector<BrokenImage> left_out = std::move(dataset.left_out);
  dataset = Pick(dataset, [&](std::int64_t i) { return !is_held_back(i); });
  dataset.left_out = std::move(left_out);
  return part;
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
  // The last images of a set that is sorted by class would be those of its last classes.
  const auto held_back = [&](std::int64_t i) { return IsSpread(i, images, count); };
  Dataset last = dataset.by_class ? Pick(dataset, held_back) : CopyFrom(dataset, images - count);
  if (dataset.by_class)
    dataset = Pick(dataset, [&](std::int64_t i) { return !held_back(i); });
  else
    KeepFirst(dataset, images - count);
  return last;
}

std::int64_t HeldBack::Of(std::int64_t images) const {
  if (share == 0) return count;
  const auto part = static_cast<std::int64_t>(std::llround(share * static_cast<double>(images)));
  return std::clamp(part, std::int64_t{1}, std::max(images - 1, std::int64_t{1}));
}

Dataset SplitOff(Dataset& dataset, const HeldBack& held_back) {
  const std::int64_t count = held_back.Of(dataset.images());
  if (held_back.share == 0 || count >= dataset.images()) return SplitLast(dataset, count);
  return SplitShare(dataset, count, held_back.seed);
}

const std::uint8_t* Dataset::bytes() const {
  if (!store) return pixels.data();
  // Picked images do not follow each other in the store.
  const std::uint8_t* all = picked.empty() ? store->Bytes() : nullptr;
  return all == nullptr ? nullptr : all + first * per_image();
}

}  // namespace ada::data

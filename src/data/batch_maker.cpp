#include "data/batch_maker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/error.h"

namespace ada::data {
namespace {

void CheckNormalize(const Dataset& dataset, const LoaderSpec& spec) {
  const auto channels = static_cast<std::size_t>(dataset.channels);
  if (spec.mean.size() != spec.std.size() || (!spec.mean.empty() && spec.mean.size() != channels)) {
    throw ConfigError("data.normalize: " + std::to_string(spec.mean.size()) + " values in mean, " +
                      std::to_string(spec.std.size()) + " in std; expected " +
                      std::to_string(channels) + " in each, one a channel of " + dataset.name);
  }
  for (const double std : spec.std) {
    if (!(std > 0) || !std::isfinite(std)) {
      throw ConfigError("data.normalize: a std of " + std::to_string(std) +
                        "; expected a number above 0");
    }
  }
}

void CheckSpec(const Dataset& dataset, const LoaderSpec& spec) {
  ADA_CHECK(spec.batch_size >= 1 && spec.pad >= 0 && spec.workers >= 0 && spec.prefetch >= 0);
  ADA_CHECK(dataset.height >= 1 && dataset.width >= 1 && dataset.channels >= 1);
  ADA_CHECK(dataset.images() <= std::numeric_limits<std::uint32_t>::max());
  if (dataset.images() == 0) {
    throw ConfigError("data set " + dataset.name +
                      ": no images; expected at least one: see data.limit and data.validation");
  }
  if (spec.drop_last && dataset.images() < spec.batch_size) {
    throw ConfigError("data.drop_last: " + std::to_string(dataset.images()) + " images make no " +
                      "whole batch of " + std::to_string(spec.batch_size) +
                      "; lower data.batch_size or set data.drop_last: false");
  }
  CheckNormalize(dataset, spec);
}

// An image lies anywhere in the data set: it is on its way from memory while the one before it is
// written.
void Prefetch(const std::uint8_t* image, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  for (std::int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(image + i);
}

}  // namespace

BatchMaker::BatchMaker(const Dataset& dataset, const LoaderSpec& spec)
    : dataset_(dataset),
      spec_(spec),
      shape_{dataset.height, dataset.width, dataset.channels},
      augment_{spec.pad, spec.random_crop, spec.horizontal_flip},
      images_(dataset.images()),
      orders_(spec.seed, dataset.images()) {
  CheckSpec(dataset, spec);
  table_ = NormalizeTable(dataset.channels, spec.mean, spec.std);
  batches_per_epoch_ = spec.drop_last ? images_ / spec.batch_size
                                      : (images_ + spec.batch_size - 1) / spec.batch_size;
}

void BatchMaker::Make(std::int64_t sequence, Batch* batch) {
  const std::int64_t epoch = sequence / batches_per_epoch_;
  const std::int64_t first = sequence % batches_per_epoch_ * spec_.batch_size;
  const std::int64_t rows = std::min<std::int64_t>(spec_.batch_size, images_ - first);
  const std::int64_t size = shape_.numel();
  const std::shared_ptr<const Order> order = spec_.shuffle ? orders_.Get(epoch) : nullptr;
  ADA_CHECK(dataset_.images() == images_ &&
            static_cast<std::int64_t>(dataset_.pixels.size()) == images_ * size);
  batch->rows = static_cast<int>(rows);
  batch->images.resize(static_cast<std::size_t>(rows * size));
  batch->labels.resize(static_cast<std::size_t>(rows));
  const auto image_at = [&](std::int64_t row) -> std::int64_t {
    return order ? (*order)[static_cast<std::size_t>(first + row)] : first + row;
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t image = image_at(row);
    if (row + 1 < rows) Prefetch(dataset_.pixels.data() + image_at(row + 1) * size, size);
    WriteImage(dataset_.pixels.data() + image * size, shape_,
               PlaceImage(augment_, spec_.seed, epoch, image), table_,
               batch->images.data() + row * size);
    batch->labels[static_cast<std::size_t>(row)] = dataset_.labels[static_cast<std::size_t>(image)];
  }
}

}  // namespace ada::data

// The device stores the images as bytes; an epoch needs only the transfer of its order, and each
// batch is augmented on the device. Random choices depend on the seed, the epoch and the image's
// position, as in data::BatchMaker, so both give the same bits.
#include "step/batches/resident_batches.h"

#include <algorithm>
#include <utility>

#include "data/augment.h"
#include "data/batch_maker.h"
#include "error.h"
#include "io/run_in_parallel.h"

namespace ada::step {

std::unique_ptr<ResidentBatches> ResidentBatches::Make(backend::Backend& backend,
                                                       const data::Dataset& dataset,
                                                       const data::LoaderSpec& spec) {
  if (dataset.tokens) return nullptr;
  // The check comes first: a configuration that is wrong is refused whether or not the backend
  // keeps data sets.
  const data::BatchMaker checked(dataset, spec);  // throws where they do not go together
  if (!WhyNot(dataset, spec).empty()) return nullptr;
  const std::vector<float> table = data::NormalizeTable(dataset.channels, spec.mean, spec.std);
  backend::ImageSourceSpec source;
  source.pixels = dataset.bytes();
  source.labels = dataset.labels.data();
  source.images = dataset.images();
  source.image = {1, dataset.height, dataset.width, dataset.channels};
  source.pad = spec.pad;
  source.random_crop = spec.random_crop;
  source.horizontal_flip = spec.horizontal_flip;
  source.table = table.data();
  source.seed = spec.seed;
  std::unique_ptr<backend::ImageSource> made = backend.MakeImageSource(source);
  if (!made) return nullptr;
  return std::unique_ptr<ResidentBatches>(
      new ResidentBatches(std::move(made), dataset, spec, checked.batches_per_epoch()));
}

std::string ResidentBatches::WhyNot(const data::Dataset& dataset, const data::LoaderSpec& spec) {
  if (dataset.tokens) return "they are sequences of tokens";
  if (dataset.store && dataset.store->is_float()) return "their values are fp32, not bytes";
  if (dataset.bytes() == nullptr) return "they are read from their files one by one";
  if (dataset.task() != Task::kClassification) return "their labels are made there";
  if (spec.mixing.any()) return "they are mixed there";
  if (spec.changes.any()) return "they are resized, coloured or erased there";
  if (spec.changes.crops()) return "they are cropped there";
  return "";
}

ResidentBatches::ResidentBatches(std::unique_ptr<backend::ImageSource> source,
                                 const data::Dataset& dataset, const data::LoaderSpec& spec,
                                 std::int64_t batches_per_epoch)
    : source_(std::move(source)),
      images_(dataset.images()),
      batch_size_(spec.batch_size),
      shuffle_(spec.shuffle),
      part_(spec.part),
      seed_(spec.seed),
      batches_per_epoch_(batches_per_epoch) {}

void ResidentBatches::Seek(std::int64_t epoch, std::int64_t index) {
  ADA_CHECK(epoch >= 0 && index >= 0 && index <= batches_per_epoch_);
  next_ = epoch * batches_per_epoch_ + index;
}

// Batches are numbered through all epochs, so that Seek needs only the number and the order of an
// epoch is sent when its first batch is asked for, from wherever training goes on.
int ResidentBatches::Next() {
  present_.epoch = next_ / batches_per_epoch_;
  present_.first = next_ % batches_per_epoch_ * batch_size_;
  present_.rows = static_cast<int>(std::min<std::int64_t>(batch_size_, images_ - present_.first));
  ++next_;
  if (shuffle_ && order_epoch_ != present_.epoch) {
    source_->SetOrder(data::ShuffledOrder(seed_, present_.epoch, images_).data());
    order_epoch_ = present_.epoch;
  }
  return rows();
}

const std::vector<data::BrokenImage>& ResidentBatches::broken() const {
  static const std::vector<data::BrokenImage> none;
  return none;
}

Batches::Rows ResidentBatches::Feed(graph::Graph& graph, int first, int rows) {
  ADA_CHECK(graph.label_memory() != nullptr);
  Fill(first, rows, graph.image_memory(), graph.label_memory());
  return {};
}

// The rows of this process: its share of every micro-batch.
int ResidentBatches::RowsOfPart(int rows) const {
  const int micro = part_.micro > 0 ? part_.micro : std::max(rows, 1);
  std::int64_t count = 0;
  for (int first = 0; first < rows; first += micro)
    count += ShareOf(std::min(micro, rows - first), part_.of, part_.index).count;
  return static_cast<int>(count);
}

// Micro-batches are cut first and then shared by the processes: the rows of a part are not one
// range of the batch.
int ResidentBatches::RowInWhole(int row) const {
  const int all = present_.rows, micro = part_.micro > 0 ? part_.micro : all;
  int first = 0;
  for (;; first += micro) {
    const ada::Share share = ShareOf(std::min(micro, all - first), part_.of, part_.index);
    if (row < share.count) return first + static_cast<int>(share.first) + row;
    row -= static_cast<int>(share.count);
    ADA_CHECK(first + micro < all);
  }
}

}  // namespace ada::step

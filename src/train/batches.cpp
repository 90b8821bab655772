#include "train/batches.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/share.h"
#include "data/augment.h"
#include "data/batch_maker.h"

namespace ada::train {

std::unique_ptr<ResidentData> ResidentData::Make(backend::Backend& backend,
                                                 const data::Dataset& dataset,
                                                 const data::LoaderSpec& spec) {
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
  return std::unique_ptr<ResidentData>(
      new ResidentData(std::move(made), dataset, spec, checked.batches_per_epoch()));
}

std::string ResidentData::WhyNot(const data::Dataset& dataset, const data::LoaderSpec& spec) {
  if (dataset.tokens) return "they are sequences of tokens";
  if (dataset.store && dataset.store->is_float()) return "their values are fp32, not bytes";
  if (dataset.bytes() == nullptr) return "they are read from their files one by one";
  if (dataset.task() != Task::kClassification) return "their labels are made there";
  if (spec.mixing.any()) return "they are mixed there";
  if (spec.changes.any()) return "they are resized, coloured or erased there";
  if (spec.changes.crops()) return "they are cropped there";
  return "";
}

ResidentData::ResidentData(std::unique_ptr<backend::ImageSource> source,
                           const data::Dataset& dataset, const data::LoaderSpec& spec,
                           std::int64_t batches_per_epoch)
    : source_(std::move(source)),
      images_(dataset.images()),
      batch_size_(spec.batch_size),
      shuffle_(spec.shuffle),
      part_(spec.part),
      seed_(spec.seed),
      batches_per_epoch_(batches_per_epoch) {}

void ResidentData::Seek(std::int64_t epoch, std::int64_t index) {
  ADA_CHECK(epoch >= 0 && index >= 0 && index <= batches_per_epoch_);
  next_ = epoch * batches_per_epoch_ + index;
}

// The rows of this process: its share of every micro-batch.
int ResidentData::RowsOfPart(int rows) const {
  const int micro = part_.micro > 0 ? part_.micro : std::max(rows, 1);
  std::int64_t count = 0;
  for (int first = 0; first < rows; first += micro)
    count += ShareOf(std::min(micro, rows - first), part_.of, part_.index).count;
  return static_cast<int>(count);
}

int ResidentData::RowInWhole(const Batch& batch, int row) const {
  const int micro = part_.micro > 0 ? part_.micro : batch.rows;
  int first = 0;
  for (;; first += micro) {
    const ada::Share share = ShareOf(std::min(micro, batch.rows - first), part_.of, part_.index);
    if (row < share.count) return first + static_cast<int>(share.first) + row;
    row -= static_cast<int>(share.count);
    ADA_CHECK(first + micro < batch.rows);
  }
}

ResidentData::Batch ResidentData::Next() {
  Batch batch;
  batch.epoch = next_ / batches_per_epoch_;
  batch.first = next_ % batches_per_epoch_ * batch_size_;
  batch.rows = static_cast<int>(std::min<std::int64_t>(batch_size_, images_ - batch.first));
  ++next_;
  if (shuffle_ && order_epoch_ != batch.epoch) {
    source_->SetOrder(data::ShuffledOrder(seed_, batch.epoch, images_).data());
    order_epoch_ = batch.epoch;
  }
  return batch;
}

Batches::Batches(backend::Backend& backend, const data::Dataset& dataset,
                 const data::LoaderSpec& spec, Residence residence) {
  why_on_host_ = ResidentData::WhyNot(dataset, spec);
  if (residence != Residence::kHost && !dataset.tokens)
    resident_ = ResidentData::Make(backend, dataset, spec);
  if (resident_) return;
  data::LoaderSpec on_host = spec;
  on_host.as_bytes =
      residence != Residence::kHost && backend.takes_bytes() && data::ComeAsBytes(dataset, spec);
  loader_.emplace(dataset, on_host);
  if (on_host.as_bytes) table_ = data::NormalizeTable(dataset.channels, spec.mean, spec.std);
}

std::int64_t Batches::batches_per_epoch() const {
  return resident_ ? resident_->batches_per_epoch() : loader_->batches_per_epoch();
}

void Batches::Seek(std::int64_t epoch, std::int64_t index) {
  sent_.reset();
  resident_ ? resident_->Seek(epoch, index) : loader_->Seek(epoch, index);
}

int Batches::Next() {
  if (resident_) {
    resident_batch_ = resident_->Next();
    return rows();
  }
  batch_ = &loader_->Next();
  if (sent_ && sent_->batch != batch_) sent_.reset();
  return batch_->rows;
}

const std::vector<data::BrokenImage>& Batches::broken() const {
  static const std::vector<data::BrokenImage> none;
  return resident_ ? none : batch_->broken;
}

std::int64_t Batches::NumberOf(int row) const {
  return resident_ ? resident_batch_.first + resident_->RowInWhole(resident_batch_, row)
                   : batch_->numbers[static_cast<std::size_t>(row)];
}

std::int64_t Batches::terms() const { return resident_ ? rows() : batch_->terms; }

Batches::Rows Batches::Feed(graph::Graph& graph, int first, int rows) {
  if (resident_) {
    ADA_CHECK(graph.label_memory() != nullptr);
    resident_->Fill(resident_batch_, first, rows, graph.image_memory(), graph.label_memory());
    return {};
  }
  // The values of all rows from row `first` on.
  const auto from = [&](const auto& values) {
    return values.data() + static_cast<std::int64_t>(values.size()) / batch_->rows * first;
  };
  Rows part{nullptr, nullptr, {from(batch_->labels)}};
  if (!batch_->shares.empty())
    part.targets.second =
        backend::SecondLabels{batch_->second_labels.data(), batch_->shares.data()}.From(first);
  if (!batch_->locations.empty()) part.targets.locations = from(batch_->locations);
  if (!batch_->tokens.empty()) {
    part.tokens = from(batch_->tokens);
    graph.SetTokens(part.tokens, part.targets, rows);
  } else if (as_bytes()) {
    graph.SetTargets(part.targets, rows);
    TakeBytes(graph, from(batch_->bytes), first, rows);
  } else {
    part.images = from(batch_->images);
    graph.SetBatch(part.images, part.targets, rows);
  }
  return part;
}

void Batches::TakeBytes(graph::Graph& graph, const std::uint8_t* bytes, int first, int rows) {
  backend::ByteFeed& feed = *graph.byte_feed();
  const bool is_there = first == 0 && sent_ && sent_->rows == rows;
  feed.Take(is_there ? sent_->number : feed.Send({bytes, table_.data(), rows}));
  sent_.reset();
}

void Batches::SendAhead(graph::Graph& graph, int rows) {
  if (!as_bytes() || sent_) return;
  const data::Batch* next = loader_->Ahead();
  if (next == nullptr || next->rows == 0) return;
  rows = std::min(rows, next->rows);
  sent_ = {next, rows, graph.byte_feed()->Send({next->bytes.data(), table_.data(), rows})};
}

}  // namespace ada::train

// See batches.h.
#include "train/batches.h"

#include "core/error.h"

namespace ada::train {

Batches::Batches(backend::Backend& backend, const data::Dataset& dataset,
                 const data::LoaderSpec& spec, Where where) {
  if (where != Where::kHost) resident_ = ResidentData::Make(backend, dataset, spec);
  if (!resident_) loader_.emplace(dataset, spec);
}

std::int64_t Batches::batches_per_epoch() const {
  return resident_ ? resident_->batches_per_epoch() : loader_->batches_per_epoch();
}

void Batches::Seek(std::int64_t epoch, std::int64_t index) {
  resident_ ? resident_->Seek(epoch, index) : loader_->Seek(epoch, index);
}

int Batches::Next() {
  if (resident_) return (resident_batch_ = resident_->Next()).rows;
  batch_ = &loader_->Next();
  return batch_->rows;
}

Batches::Rows Batches::Feed(graph::Graph& graph, int first, int rows) {
  if (resident_) {
    ADA_CHECK(graph.label_memory() != nullptr);
    resident_->Fill(resident_batch_, first, rows, graph.image_memory(), graph.label_memory());
    return {};
  }
  const auto per_image = static_cast<std::int64_t>(batch_->images.size()) / batch_->rows;
  const Rows part{batch_->images.data() + first * per_image, batch_->labels.data() + first};
  graph.SetBatch(part.images, part.labels, rows);
  return part;
}

}  // namespace ada::train

// Wraps data::Loader, whose worker threads make batches ahead. Images travel as fp32, or as bytes
// with a table by which the device normalizes them, which takes a quarter of the transfer.
#include "train/batches/host_batches.h"

#include <algorithm>

#include "data/augment.h"
#include "train/batches/resident_batches.h"

namespace ada::train {

HostBatches::HostBatches(const data::Dataset& dataset, const data::LoaderSpec& spec)
    : loader_(dataset, spec), why_on_host_(ResidentBatches::WhyNot(dataset, spec)) {
  if (spec.as_bytes) table_ = data::NormalizeTable(dataset.channels, spec.mean, spec.std);
}

// What was sent ahead is of another place, and is forgotten.
void HostBatches::Seek(std::int64_t epoch, std::int64_t index) {
  sent_.reset();
  loader_.Seek(epoch, index);
}

int HostBatches::Next() {
  batch_ = &loader_.Next();
  if (sent_ && sent_->batch != batch_) sent_.reset();
  return batch_->rows;
}

Batches::Rows HostBatches::Feed(graph::Graph& graph, int first, int rows) {
  // The values of all rows from row `first` on.
  // Values per row differ from field to field: the field's size divided by the rows gives them.
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

// Only the first part of a batch may have been sent ahead, and only counts where it has as many
// rows as are wanted.
void HostBatches::TakeBytes(graph::Graph& graph, const std::uint8_t* bytes, int first, int rows) {
  backend::ByteFeed& feed = *graph.byte_feed();
  const bool is_there = first == 0 && sent_ && sent_->rows == rows;
  feed.Take(is_there ? sent_->number : feed.Send({bytes, table_.data(), rows}));
  sent_.reset();
}

// Nothing is sent where the loader has not made the next batch yet: this never waits.
void HostBatches::SendAhead(graph::Graph& graph, int rows) {
  if (!as_bytes() || sent_) return;
  const data::Batch* next = loader_.Ahead();
  if (next == nullptr || next->rows == 0) return;
  rows = std::min(rows, next->rows);
  sent_ = {next, rows, graph.byte_feed()->Send({next->bytes.data(), table_.data(), rows})};
}

}  // namespace ada::train

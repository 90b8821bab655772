// Batches that a loader makes on the host, and the choice between these and batches of a data set
// in the backend's memory (resident_batches.cpp).
#include <algorithm>
#include <optional>
#include <utility>

#include "data/augment.h"
#include "step/batches/batches.h"
#include "step/batches/resident_batches.h"

namespace ada::step {

// Batches that data::Loader, whose worker threads make batches ahead, makes on the host, and which
// go to the backend one by one. Images travel as fp32, or as bytes with a table by which the device
// normalizes them, which takes a quarter of the transfer. Made by MakeBatches. It owns the loader
// and its threads, which end with it; the data set has to outlive it.
class HostBatches final : public Batches {
 public:
  HostBatches(const data::Dataset& dataset, const data::LoaderSpec& spec);

  std::int64_t batches_per_epoch() const override { return loader_.batches_per_epoch(); }
  void Seek(std::int64_t epoch, std::int64_t index) override;
  int Next() override;
  int rows() const override { return batch_->rows; }
  int whole_rows() const override { return batch_->whole_rows; }
  const std::vector<data::BrokenImage>& broken() const override { return batch_->broken; }
  std::int64_t terms() const override { return batch_->terms; }
  std::int64_t NumberOf(int row) const override {
    return batch_->numbers[static_cast<std::size_t>(row)];
  }
  Rows Feed(graph::Graph& graph, int first, int rows) override;
  void SendAhead(graph::Graph& graph, int rows) override;
  bool resident() const override { return false; }
  bool as_bytes() const override { return !table_.empty(); }
  std::string why_on_host() const override { return why_on_host_; }

 private:
  void TakeBytes(graph::Graph& graph, const std::uint8_t* bytes, int first, int rows);
  // A batch that was sent ahead, and the number of its transfer.
  struct Sent {
    const data::Batch* batch;
    int rows;
    std::int64_t number;
  };

  data::Loader loader_;
  const data::Batch* batch_ = nullptr;
  std::string why_on_host_;
  std::vector<float> table_;  // for images sent as bytes: the value of each byte
  std::optional<Sent> sent_;
};

HostBatches::HostBatches(const data::Dataset& dataset, const data::LoaderSpec& spec)
    : loader_(dataset, spec), why_on_host_(ResidentBatches::WhyNot(dataset, spec)) {
  if (spec.as_bytes) table_ = data::NormalizeTable(dataset.channels, spec.mean, spec.std);
}

// What was sent ahead belongs to another position, and is discarded.
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

namespace {

bool TravelAsBytes(const backend::Backend& backend, const data::Dataset& dataset,
                   const data::LoaderSpec& spec) {
  return backend.takes_bytes() && data::ComeAsBytes(dataset, spec);
}

}  // namespace

std::unique_ptr<Batches> MakeBatches(backend::Backend& backend, const data::Dataset& dataset,
                                     const data::LoaderSpec& spec, Residence residence) {
  if (residence == Residence::kHost) return std::make_unique<HostBatches>(dataset, spec);
  std::unique_ptr<Batches> resident = ResidentBatches::Make(backend, dataset, spec);
  if (resident) return resident;
  data::LoaderSpec on_host = spec;
  on_host.as_bytes = TravelAsBytes(backend, dataset, spec);
  return std::make_unique<HostBatches>(dataset, on_host);
}

Residence ResidenceOf(const config::Config& config) {
  const bool read = config.log.probe_every > 0 || config.log.dump_on != config::DumpOn::kNever;
  return read ? Residence::kHost : Residence::kAnywhere;
}

std::unique_ptr<Batches> MakeBatchesOfTeam(backend::Backend& backend, const data::Dataset& dataset,
                                           data::LoaderSpec spec, Residence residence,
                                           const config::Config& config, const Team& team,
                                           int threads) {
  if (team.ranks() > 1) {
    spec.part = {team.rank(), team.ranks(), config.data.batch_size / config.train.accumulate};
    if (!config.data.workers) spec.workers = std::min(spec.workers, std::max(1, threads));
    if (residence == Residence::kAnywhere) spec.as_bytes = TravelAsBytes(backend, dataset, spec);
    residence = Residence::kHost;
  }
  return MakeBatches(backend, dataset, spec, residence);
}

}  // namespace ada::step

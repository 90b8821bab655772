// Batches that a loader makes on the host, and which go to the backend one by one.
#pragma once
#include <optional>

#include "train/batches/batches.h"

namespace ada::train {

// Made by MakeBatches. It owns the loader and its threads, which end with it; the data set has to
// outlive it.
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
  // What was sent ahead, and its number there.
  struct Sent {
    const data::Batch* batch;
    int rows;
    std::int64_t number;
  };

  data::Loader loader_;
  const data::Batch* batch_ = nullptr;
  std::string why_on_host_;
  std::vector<float> table_;  // of images that go as bytes: what each stands for
  std::optional<Sent> sent_;
};

}  // namespace ada::train

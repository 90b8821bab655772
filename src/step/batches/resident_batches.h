// Batches made from a data set in the backend's memory, for backends that support it: the same
// images, order and random choices as those of data::Loader, but made on the device.
#pragma once
#include "data/batch.h"
#include "step/batches/batches.h"

namespace ada::step {

// Made by MakeBatches where the backend takes the data set. Since every epoch's order is a pure
// function of the seed, a run that is resumed sees the same batches.
class ResidentBatches final : public Batches {
 public:
  // Returns null if the backend declines or `WhyNot` gives a reason: batches then come from the
  // loader. The data set's bytes are copied. Throws ConfigError like the Loader if `dataset` and
  // `spec` do not fit together.
  static std::unique_ptr<ResidentBatches> Make(backend::Backend& backend,
                                               const data::Dataset& dataset,
                                               const data::LoaderSpec& spec);

  // Returns why no backend can make such batches, or "" if one may.
  static std::string WhyNot(const data::Dataset& dataset, const data::LoaderSpec& spec);

  std::int64_t batches_per_epoch() const override { return batches_per_epoch_; }
  void Seek(std::int64_t epoch, std::int64_t index) override;
  // Sends the order of an epoch to the backend when it begins.
  int Next() override;
  int rows() const override { return RowsOfPart(present_.rows); }
  int whole_rows() const override { return present_.rows; }
  const std::vector<data::BrokenImage>& broken() const override;  // none
  std::int64_t terms() const override { return rows(); }
  std::int64_t NumberOf(int row) const override { return present_.first + RowInWhole(row); }
  Rows Feed(graph::Graph& graph, int first, int rows) override;
  bool resident() const override { return true; }

  // Writes images and labels to backend memory: rows from..from + rows of this process's part
  // (LoaderSpec::part) of the current batch or micro-batch.
  void Fill(int from, int rows, float* images, std::int32_t* labels) {
    source_->Fill(present_.epoch, present_.first + RowInWhole(from), rows, images, labels);
  }

 private:
  ResidentBatches(std::unique_ptr<backend::ImageSource> source, const data::Dataset& dataset,
                  const data::LoaderSpec& spec, std::int64_t batches_per_epoch);

  // Returns the number of rows in this process's part of a batch of `rows` rows.
  int RowsOfPart(int rows) const;
  // Returns the index in the whole current batch of row `row` of the part.
  int RowInWhole(int row) const;

  // The position of a batch: rows first..first + rows of the epoch's order.
  struct Place {
    std::int64_t epoch = 0, first = 0;
    int rows = 0;
  };

  std::unique_ptr<backend::ImageSource> source_;
  std::int64_t images_;
  int batch_size_;
  bool shuffle_;
  data::BatchPart part_;
  std::uint64_t seed_;
  std::int64_t batches_per_epoch_;
  Place present_;
  std::int64_t next_ = 0;          // of the next batch, counted from the first batch of epoch 0
  std::int64_t order_epoch_ = -1;  // the epoch whose order the backend has
};

}  // namespace ada::step

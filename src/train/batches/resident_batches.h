// A data set in the backend's memory, for backends that take one: which images, in the same order
// and with the same random choices as data::Loader's, made there.
#pragma once
#include "data/order.h"
#include "train/batches/batches.h"

namespace ada::train {

// Made by MakeBatches where the backend takes the data set. Since every epoch's order is a pure
// function of the seed, a run that is resumed sees the same batches.
class ResidentBatches final : public Batches {
 public:
  // Null where the backend declines, or `WhyNot` says something: batches are the loader's then. The
  // data set's bytes are copied. Throws ConfigError like the Loader where the two do not go
  // together.
  static std::unique_ptr<ResidentBatches> Make(backend::Backend& backend,
                                               const data::Dataset& dataset,
                                               const data::LoaderSpec& spec);

  // Why no backend can make such batches; "": one may.
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

  // Images and labels of rows from..from + rows of the present batch (of a micro-batch), of those
  // that LoaderSpec::part takes of it, in backend memory.
  void Fill(int from, int rows, float* images, std::int32_t* labels) {
    source_->Fill(present_.epoch, present_.first + RowInWhole(from), rows, images, labels);
  }

 private:
  ResidentBatches(std::unique_ptr<backend::ImageSource> source, const data::Dataset& dataset,
                  const data::LoaderSpec& spec, std::int64_t batches_per_epoch);

  // What the part has of a batch of `rows` rows.
  int RowsOfPart(int rows) const;
  // Where row `row` of the part is among all of the present batch.
  int RowInWhole(int row) const;

  // Where a batch lies: rows first..first + rows of the epoch's order.
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
  std::int64_t next_ = 0;          // counted from the first batch of epoch 0
  std::int64_t order_epoch_ = -1;  // whose order the backend has
};

}  // namespace ada::train

// Batches of a data set as graphs take them: made where the graph reads them, if the backend keeps
// the data set (ResidentData), else by a loader on the host. The same images either way.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "data/loader.h"
#include "data/order.h"
#include "graph/graph.h"

namespace ada::train {

// A data set in the backend's memory, for backends that take one: which images, in the same order
// and with the same random choices as data::Loader's, made there.
class ResidentData {
 public:
  // Null where the backend declines, or `WhyNot` says something: batches are the loader's then. The
  // data set's bytes are copied. Throws ConfigError like the Loader where the two do not go
  // together.
  static std::unique_ptr<ResidentData> Make(backend::Backend& backend, const data::Dataset& dataset,
                                            const data::LoaderSpec& spec);

  // Why no backend can make such batches; "": one may.
  static std::string WhyNot(const data::Dataset& dataset, const data::LoaderSpec& spec);

  std::int64_t batches_per_epoch() const { return batches_per_epoch_; }

  // Goes to batch `index` (from 0, at most batches_per_epoch) of `epoch` (from 0).
  void Seek(std::int64_t epoch, std::int64_t index);

  // Where a batch lies: rows first..first + rows of the epoch's order.
  struct Batch {
    std::int64_t epoch = 0, first = 0;
    int rows = 0;
  };
  // The next batch; goes on into the next epoch, whose order it sends to the backend.
  Batch Next();

  // Images and labels of rows from..from + rows of `batch` (of a micro-batch), of those that
  // LoaderSpec::part takes of it, in backend memory. Only the batch that Next returned last.
  void Fill(const Batch& batch, int from, int rows, float* images, std::int32_t* labels) {
    source_->Fill(batch.epoch, batch.first + RowInWhole(batch, from), rows, images, labels);
  }
  // What the part has of a batch of `rows` rows.
  int RowsOfPart(int rows) const;
  // Where row `row` of the part is among all of the batch.
  int RowInWhole(const Batch& batch, int row) const;

 private:
  ResidentData(std::unique_ptr<backend::ImageSource> source, const data::Dataset& dataset,
               const data::LoaderSpec& spec, std::int64_t batches_per_epoch);

  std::unique_ptr<backend::ImageSource> source_;
  std::int64_t images_;
  int batch_size_;
  bool shuffle_;
  data::BatchPart part_;
  std::uint64_t seed_;
  std::int64_t batches_per_epoch_;
  std::int64_t next_ = 0;          // counted from the first batch of epoch 0
  std::int64_t order_epoch_ = -1;  // whose order the backend has
};

class Batches {
 public:
  enum class Residence : std::uint8_t {
    kAnywhere,
    kHost,  // an observer reads the images
  };
  // `dataset` must outlive it, unchanged. Throws ConfigError like data::Loader.
  Batches(backend::Backend& backend, const data::Dataset& dataset, const data::LoaderSpec& spec,
          Residence residence = Residence::kAnywhere);

  bool resident() const { return resident_ != nullptr; }
  // Whether images go to the backend as bytes.
  bool as_bytes() const { return !table_.empty(); }
  // Why it is not, where that is not for the backend to say; else "".
  const std::string& why_on_host() const { return why_on_host_; }
  std::int64_t batches_per_epoch() const;
  // Goes to batch `index` (from 0, at most batches_per_epoch) of `epoch` (from 0).
  void Seek(std::int64_t epoch, std::int64_t index);
  // The next batch; goes on into the next epoch. Returns its rows: none where all its images are
  // broken and left out.
  int Next();
  int rows() const {
    return resident_ ? resident_->RowsOfPart(resident_batch_.rows) : batch_->rows;
  }
  // Rows of the present batch in all parts of it (LoaderSpec::part).
  int whole_rows() const { return resident_ ? resident_batch_.rows : batch_->whole_rows; }
  // Images of the present batch that could not be read.
  const std::vector<data::BrokenImage>& broken() const;
  // Which image of the data set row `row` of the present batch is; the batches do not shuffle where
  // the data set is resident.
  std::int64_t NumberOf(int row) const;

  // What the loss of the present batch is a mean over (backend::Pass::loss_terms).
  std::int64_t terms() const;

  // On the host; null where they never were there. Images that are bytes are not among them.
  struct Rows {
    const float* images = nullptr;         // [rows, h, w, c]
    const std::int32_t* tokens = nullptr;  // language: instead, [rows, context]
    backend::Targets targets = {};
  };
  // Rows first..first + rows of the present batch become what `graph` reads in its next pass.
  Rows Feed(graph::Graph& graph, int first, int rows);
  // The first `rows` rows of the next batch, as far as it is made already, go to the backend while
  // that works on the present one. This is only for speed; only one Batches may do so with one
  // graph.
  void SendAhead(graph::Graph& graph, int rows);

 private:
  void TakeBytes(graph::Graph& graph, const std::uint8_t* bytes, int first, int rows);
  // What was sent ahead, and its number there.
  struct Sent {
    const data::Batch* batch;
    int rows;
    std::int64_t number;
  };

  std::unique_ptr<ResidentData> resident_;
  std::optional<data::Loader> loader_;  // where resident_ is null
  ResidentData::Batch resident_batch_;
  const data::Batch* batch_ = nullptr;
  std::string why_on_host_;
  std::vector<float> table_;  // of images that go as bytes: what each stands for
  std::optional<Sent> sent_;
};

}  // namespace ada::train

// Makes any batch of a run on its own: the pure function behind the loader, without threads.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/row_writer.h"

namespace ada::data {

// A Loader calls it from its threads; others make one only to have a data set and a spec checked. A
// batch is made anew from nothing but its number, so that batches can be made in any order, more
// than once and, each in a Batch of its own, at the same time. Images that turned out to be broken
// are remembered and not decoded again.
class BatchMaker {
 public:
  // The data set outlives it. Throws ConfigError where it and `spec` do not go together.
  BatchMaker(const Dataset& dataset, const LoaderSpec& spec);

  std::int64_t batches_per_epoch() const { return batches_per_epoch_; }
  const ImageShape& shape() const { return shape_; }

  // Makes batch `sequence`, counted from the first of epoch 0. Safe from several threads, each with
  // its own batch. DataError: an image cannot be read, and the spec says to fail. DeviceError: the
  // machine fails to read one, whatever the spec says.
  void Make(std::int64_t sequence, Batch* batch);

  // The same in parts that several threads make at a time: Begin, then MakePart once for each of
  // `parts()`, then Finish.
  int parts() const { return parts_; }
  void Begin(std::int64_t sequence, Batch* batch) const;
  void MakePart(std::int64_t sequence, int part, Batch* batch);
  void Finish(std::int64_t sequence, Batch* batch);

 private:
  // Which rows of the whole batch a part is made of. A row that is mixed needs the one before it:
  // where that is another process's it is made as well, to be dropped.
  struct Rows {
    std::vector<int> at;        // in the whole batch
    std::vector<bool> belongs;  // false: only to be mixed with
  };
  // Returns the rows that this process makes of batch `sequence`, in the order in which they lie in
  // its Batch.
  Rows RowsOf(std::int64_t sequence) const;
  // Returns the rows of all processes together, which are fewer in the last batch of an epoch.
  std::int64_t WholeRows(std::int64_t sequence) const;
  // Returns the place in the order of its epoch at which a batch begins.
  std::int64_t FirstOf(std::int64_t sequence) const;
  // MakeRow writes `image`, or what the spec puts in the place of one that is broken; WriteRow
  // writes this image or throws; WriteUsable returns false for one that is broken, and says why in
  // `broken`.
  void MakeRow(std::int64_t epoch, std::int64_t image, int row, Batch* batch);
  void WriteRow(std::int64_t epoch, std::int64_t image, int row, Batch* batch) const;
  bool WriteUsable(std::int64_t epoch, std::int64_t image, int row, Batch* batch,
                   BrokenImage* broken);
  // Writes the next image that can be read after the broken `image`; false: there is none.
  bool WriteNextUsable(std::int64_t epoch, std::int64_t image, int row, Batch* batch,
                       BrokenImage* broken);
  void KeepRows(const std::vector<bool>& keep, Batch* batch) const;

  const Dataset& dataset_;
  const LoaderSpec spec_;
  const std::unique_ptr<RowWriter> writer_;
  const RowSizes sizes_;
  const ImageShape shape_;
  std::int64_t images_ = 0, batches_per_epoch_ = 0;
  int parts_ = 1;
  OrderCache orders_;
  std::mutex mutex_;                            // guards what follows, and `broken` of batches
  std::map<std::int64_t, BrokenImage> broken_;  // images that are known to be
  // By broken image: the first after it that could be read when it was looked for; all between them
  // are broken.
  std::map<std::int64_t, std::int64_t> usable_after_;
};

}  // namespace ada::data

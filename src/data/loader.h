// Batches from a data set: shuffling, augmentation and normalization on worker threads. Every batch
// is a pure function of (seed, epoch, index), whatever the threads do.
#pragma once
#include <cstdint>
#include <memory>

#include "data/batch.h"
#include "data/dataset.h"

namespace ada::data {

// Serves one thread, which calls Seek and Next; the threads that make batches are its own. It holds
// prefetch + 1 batches (one where there are no workers), each in memory that is used again.
class Loader {
 public:
  // The data set must outlive it, unchanged. Throws ConfigError where the two do not go together:
  // no images, drop_last without one whole batch, mean and std for another number of channels.
  Loader(const Dataset& dataset, const LoaderSpec& spec);
  ~Loader();
  std::int64_t batches_per_epoch() const;
  // Goes to batch `index` (from 0, at most batches_per_epoch) of `epoch` (from 0). Threads start at
  // the first Seek or Next.
  void Seek(std::int64_t epoch, std::int64_t index);
  // The next batch; goes on into the next epoch. Valid until the following call. What went wrong in
  // a worker is thrown here, by every call until a Seek.
  const Batch& Next();
  // The batch that the next Next will return, where it is made already; else, or where something
  // went wrong, null. Valid until that call.
  const Batch* Ahead();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ada::data

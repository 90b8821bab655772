// Makes any batch of a run on its own: the pure function behind the loader, without threads.
#pragma once
#include <cstdint>
#include <vector>

#include "data/augment.h"
#include "data/loader.h"
#include "data/order.h"

namespace ada::data {

class BatchMaker {
 public:
  // Throws ConfigError where the data set and `spec` do not go together.
  BatchMaker(const Dataset& dataset, const LoaderSpec& spec);

  std::int64_t batches_per_epoch() const { return batches_per_epoch_; }

  // Batch `sequence` counted from the first of epoch 0. Safe from several threads, each with a
  // batch of its own.
  void Make(std::int64_t sequence, Batch* batch);

 private:
  const Dataset& dataset_;
  LoaderSpec spec_;
  ImageShape shape_;
  AugmentSpec augment_;
  std::vector<float> table_;
  std::int64_t images_ = 0, batches_per_epoch_ = 0;
  OrderCache orders_;
};

}  // namespace ada::data

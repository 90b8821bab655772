// Refreshes the copies of weights of several layers in one launch, which reads its work from a
// table in backend memory.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

// The copies of one weight tensor, as a refresh of several sees them (WeightCopies).
class RefreshedWeights {
 public:
  // Its own among all of a backend.
  virtual std::int64_t number() const = 0;
  // What a refresh does, but for how it is cut into blocks; and what it measures.
  virtual WeightTensor Describe(const Pass& pass) const = 0;
  virtual StatsLevel Level(const Pass& pass) const = 0;
  // The part of a refresh that follows what Describe describes: operands that are rounded.
  virtual void RefreshOperands(const Pass& pass) const = 0;

 protected:
  ~RefreshedWeights() = default;
};

// One for a backend. Tables are kept: a recording that reads one may be replayed at any time.
class WeightRefresh {
 public:
  WeightRefresh(Stream& stream, Memory& memory) : stream_(stream), memory_(memory) {}
  // A number that identifies tensors, even those of ops that no longer exist.
  std::int64_t NextNumber() { return next_++; }
  // At once, or at the end of the InOneLaunch that runs.
  void Refresh(const RefreshedWeights& weights, const Pass& pass);
  // Performs the refreshes that `body` makes with `pass` in one launch, except for operands that
  // are rounded. A table is made when tensors are first refreshed together, which is never while
  // such a pass is recorded (recordings.h).
  void InOneLaunch(const Pass& pass, const std::function<void()>& body);

 private:
  // Numbers of tensors, and what of a pass their table depends on.
  using Key = std::tuple<std::vector<std::int64_t>, bool, bool, bool>;
  struct Table {
    StatsLevel level = StatsLevel::kNone;  // the most that one of them measures
    int blocks = 0;
    const WeightTensor* tensors = nullptr;
    const std::int32_t* tensor_of_block = nullptr;
  };
  void Launch(const std::vector<const RefreshedWeights*>& all, const Pass& pass);
  Table Make(const std::vector<const RefreshedWeights*>& all, const Pass& pass);
  template <class T>
  const T* Keep(const std::vector<T>& host);

  Stream& stream_;
  Memory& memory_;
  std::int64_t next_ = 0;
  bool in_one_launch_ = false;
  std::vector<const RefreshedWeights*> waiting_;  // for the end of InOneLaunch
  std::map<Key, Table> tables_;
};

}  // namespace ada::backend::cuda

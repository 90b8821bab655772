// The order of a data set's images in each epoch: a pure function of (seed, epoch, images).
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ada::data {

using Order = std::vector<std::uint32_t>;

// A uniformly random permutation of 0..images-1 (Fisher and Yates; Knuth's algorithm P).
Order ShuffledOrder(std::uint64_t seed, std::int64_t epoch, std::int64_t images);

// Remembers the orders of the epochs last asked for. Safe from several threads. Shuffling takes a
// while for large sets, and each part of each batch asks for its epoch's order.
class OrderCache {
 public:
  OrderCache(std::uint64_t seed, std::int64_t images) : seed_(seed), images_(images) {}
  std::shared_ptr<const Order> Get(std::int64_t epoch);

 private:
  std::uint64_t seed_;
  std::int64_t images_;
  std::mutex mutex_;
  std::vector<std::pair<std::int64_t, std::shared_ptr<const Order>>> known_;  // oldest first
};

}  // namespace ada::data

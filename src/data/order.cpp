// Shuffles by Fisher and Yates with the random numbers of the epoch, and keeps the latest two
// orders.
#include "data/order.h"

#include <numeric>

#include "number/random.h"

namespace ada::data {
namespace {

constexpr std::uint64_t kShuffleStream = StreamId("shuffle");
constexpr std::size_t kOrdersKept = 2;  // batches of this epoch and the next are made side by side

}  // namespace

Order ShuffledOrder(std::uint64_t seed, std::int64_t epoch, std::int64_t images) {
  Order order(static_cast<std::size_t>(images));
  std::iota(order.begin(), order.end(), 0u);
  RandomStream random(seed, kShuffleStream + static_cast<std::uint64_t>(epoch));
  // From the last place down: each place takes one of those that are left, itself included.
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[random.Below(static_cast<std::uint32_t>(left))]);
  }
  return order;
}

std::shared_ptr<const Order> OrderCache::Get(std::int64_t epoch) {
  const std::lock_guard lock(mutex_);
  for (const auto& [known_epoch, order] : known_) {
    if (known_epoch == epoch) return order;
  }
  if (known_.size() == kOrdersKept) known_.erase(known_.begin());
  known_.emplace_back(epoch, std::make_shared<const Order>(ShuffledOrder(seed_, epoch, images_)));
  return known_.back().second;
}

}  // namespace ada::data

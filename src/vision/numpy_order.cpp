// This follows NumPy's argsort (npysort/quicksort.cpp, aquicksort_) step by step: the order of
// equal elements follows from the exact sequence of exchanges.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "vision/numpy.h"

namespace ada::vision {
namespace {

constexpr std::ptrdiff_t kSmall = 15;  // what is at most one longer is sorted by insertion

// Sorts indices by rising value, NaN last.
class IndexSort {
 public:
  IndexSort(std::span<const float> values, std::int32_t* order) : values_(values), order_(order) {}

  // From `low` to `high`, both included. `depth`: partitions that are left before the data count as
  // made to be slow.
  void Sort(std::ptrdiff_t low, std::ptrdiff_t high, int depth) {
    while (high - low > kSmall) {
      // NumPy sorts by heap here; which order equal elements have then is not reproduced.
      if (depth-- < 0) {
        std::stable_sort(order_ + low, order_ + high + 1,
                         [&](std::int32_t a, std::int32_t b) { return Less(At(a), At(b)); });
        return;
      }
      const std::ptrdiff_t middle = Partition(low, high);
      // The smaller part is sorted first, which bounds the depth of the calls and changes no order.
      if (middle - low < high - middle) {
        Sort(low, middle - 1, depth);
        low = middle + 1;
      } else {
        Sort(middle + 1, high, depth);
        high = middle - 1;
      }
    }
    Insert(low, high);
  }

 private:
  static bool Less(float a, float b) { return a < b || (std::isnan(b) && !std::isnan(a)); }
  float At(std::int32_t index) const { return values_[static_cast<std::size_t>(index)]; }
  float Value(std::ptrdiff_t place) const { return At(order_[place]); }
  void OrderPair(std::ptrdiff_t first, std::ptrdiff_t second) {
    if (Less(Value(second), Value(first))) std::swap(order_[first], order_[second]);
  }

  // Around the median of the first, the middle and the last; returns its place.
  std::ptrdiff_t Partition(std::ptrdiff_t low, std::ptrdiff_t high) {
    const std::ptrdiff_t middle = low + (high - low) / 2;
    OrderPair(low, middle);
    OrderPair(middle, high);
    OrderPair(low, middle);
    const float pivot = Value(middle);
    std::swap(order_[middle], order_[high - 1]);
    std::ptrdiff_t up = low, down = high - 1;
    while (true) {
      do ++up;
      while (Less(Value(up), pivot));
      do --down;
      while (Less(pivot, Value(down)));
      if (up >= down) break;
      std::swap(order_[up], order_[down]);
    }
    std::swap(order_[up], order_[high - 1]);
    return up;
  }

  void Insert(std::ptrdiff_t low, std::ptrdiff_t high) {
    for (std::ptrdiff_t i = low + 1; i <= high; ++i) {
      const std::int32_t index = order_[i];
      std::ptrdiff_t place = i;
      for (; place > low && Less(At(index), Value(place - 1)); --place)
        order_[place] = order_[place - 1];
      order_[place] = index;
    }
  }

  std::span<const float> values_;
  std::int32_t* order_;
};

}  // namespace

std::vector<std::int32_t> NumpyFallingOrder(std::span<const float> scores) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  // Twice the binary logarithm of the count, rounded down, as there.
  const int depth = 2 * (std::bit_width(scores.size()) - 1);
  IndexSort(scores, order.data()).Sort(0, static_cast<std::ptrdiff_t>(order.size()) - 1, depth);
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace ada::vision

// What ops of several processes tell each other in the middle of a pass, where each has a part of
// the batch: sums over all of it. Every process makes the same calls in the same order. Results are
// taken in the order of processes, so that all come to the same bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/host_device.h"
#include "core/stats.h"

namespace ada::backend {

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int ranks() const = 0;  // 1: there is nobody to talk to now
  // all: what each process gave as `mine`, `bytes` each, in the order of processes.
  virtual void AllGather(const void* mine, std::size_t bytes, void* all) = 0;
};

// By what they are for; null: what a process has itself is all there is.
struct Exchanges {
  Exchange* rules = nullptr;  // what the rules of layers look at, and scales of branches
  Exchange* norms = nullptr;  // mean and variance of batch norms
};

inline bool IsShared(const Exchange* exchange) {
  return exchange != nullptr && exchange->ranks() > 1;
}

// What each process has as `mine`.
template <class T>
std::vector<T> GatherAll(Exchange& exchange, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(exchange.ranks()));
  exchange.AllGather(&mine, sizeof mine, all.data());
  return all;
}
// The same of as many values; those of process r begin at r * mine.size().
template <class T>
std::vector<T> GatherAll(Exchange& exchange, std::vector<T> mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (!IsShared(&exchange)) return mine;
  std::vector<T> all(static_cast<std::size_t>(exchange.ranks()) * mine.size());
  exchange.AllGather(mine.data(), mine.size() * sizeof(T), all.data());
  return all;
}

// The larger of two; NaN where one is.
ADA_HOST_DEVICE inline double LargerOf(double largest, double one) {
  return largest != largest || one <= largest ? largest : one;
}
inline double LargestOfAll(Exchange& exchange, double mine) {
  double largest = 0;
  for (const double one : GatherAll(exchange, mine)) largest = LargerOf(largest, one);
  return largest;
}
// The same of as many magnitudes in every process, each for itself.
inline void LargestOfAll(Exchange& exchange, std::vector<float>& mine) {
  const std::vector<float> all = GatherAll(exchange, mine);
  for (std::size_t i = 0; i < all.size(); ++i) {
    float& largest = mine[i % mine.size()];
    largest =
        static_cast<float>(LargerOf(static_cast<double>(largest), static_cast<double>(all[i])));
  }
}

// Moments of `values` values.
struct MomentsPart {
  TensorMoments moments;
  double values = 0;
};
// Joins the moments of the values of all parts; part(i) is that of process i.
template <class PartOf>
ADA_HOST_DEVICE TensorMoments JoinedMoments(int parts, PartOf&& part) {
  TensorMoments total;
  double count = 0;
  for (int i = 0; i < parts; ++i) {
    const MomentsPart& of = part(i);
    if (of.values == 0) continue;
    const TensorMoments& m = of.moments;
    total.min = count == 0 || m.min < total.min ? m.min : total.min;
    total.max = count == 0 || total.max < m.max ? m.max : total.max;
    if (m.min_abs > 0 && (total.min_abs == 0 || m.min_abs < total.min_abs))
      total.min_abs = m.min_abs;
    total.mean += of.values * m.mean;
    total.mean_square += of.values * m.mean_square;
    count += of.values;
  }
  if (count > 0) total.mean /= count, total.mean_square /= count;
  return total;
}
// Joins the moments of the values of all processes, of which this one has `values`.
inline TensorMoments JoinMoments(Exchange& exchange, const TensorMoments& mine, double values) {
  const std::vector<MomentsPart> all = GatherAll(exchange, MomentsPart{mine, values});
  struct Parts {
    const MomentsPart* parts;
    ADA_HOST_DEVICE const MomentsPart& operator()(int i) const { return parts[i]; }
  };
  return JoinedMoments(exchange.ranks(), Parts{all.data()});
}

}  // namespace ada::backend

// Communication between ops of several processes in the middle of a pass, where each has a part of
// the batch: sums over all of it. Every process makes the same calls in the same order. Results are
// computed in the order of processes, so that all get the same bytes.
#pragma once
#include <cstddef>
#include <vector>

#include "number/host_device.h"
#include "number/stats.h"
#include "parallel/communicator.h"

namespace ada::backend {

// The communicators that the ops of a backend use; null: a process uses only its own values.
// Communicators outlive the backend. One whose ranks() is currently 1 has the same effect as
// null.
struct Communicators {
  parallel::Communicator* rules = nullptr;  // for the inputs of layers' rules, and branches' scales
  parallel::Communicator* norms = nullptr;  // for mean and variance of batch norms
  // Where each process has a device: tensors are sent from device to device (cuda/link.h), and this
  // connects the devices and waits for them. A backend on the CPU does not use it.
  parallel::Communicator* hosts = nullptr;
};

// The larger of two; NaN where one is.
ADA_HOST_DEVICE inline double LargerOf(double largest, double one) {
  return largest != largest || one <= largest ? largest : one;
}
inline double LargestOfAll(parallel::Communicator& communicator, double mine) {
  double largest = 0;
  for (const double one : parallel::GatherAll(communicator, mine)) largest = LargerOf(largest, one);
  return largest;
}
// The same for a list of magnitudes in every process, element by element.
inline void LargestOfAll(parallel::Communicator& communicator, std::vector<float>& mine) {
  const std::vector<float> all = parallel::GatherAll(communicator, mine);
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
// Joins the moments of the values of all processes; this one contributes `values` values.
inline TensorMoments JoinMoments(parallel::Communicator& communicator, const TensorMoments& mine,
                                 double values) {
  const std::vector<MomentsPart> all = parallel::GatherAll(communicator, MomentsPart{mine, values});
  struct Parts {
    const MomentsPart* parts;
    ADA_HOST_DEVICE const MomentsPart& operator()(int i) const { return parts[i]; }
  };
  return JoinedMoments(communicator.ranks(), Parts{all.data()});
}

}  // namespace ada::backend

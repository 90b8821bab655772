// Communication between ops of several processes in the middle of a pass, where each has a part of
// the batch: sums over all of it. Every process makes the same calls in the same order. Results are
// computed in the order of processes, so that all get the same bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "number/host_device.h"
#include "number/number_format.h"
#include "number/stats.h"
#include "number/tensor.h"
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

struct GradientSumsSpec {
  std::vector<Tensor> gradients;  // fp32, in the order in which a backward pass completes them
  // fp32: replaced by means over processes, each weighted by its Pass::share.
  std::vector<Tensor> averages;
  std::int64_t bucket_bytes = 0;  // at most; or a quarter of all gradients if that is less
  // fp32; or fp16 or bf16: each part is then multiplied by Pass::loss_scale, and each part and each
  // sum is rounded once before it is sent, and the received sum divided by that scale.
  NumberFormat transport = kFp32;
};

// Sums are added in the order of processes: equal numbers of processes give equal bytes.
class GradientSums {
 public:
  virtual ~GradientSums() = default;
  // Within a pass: gradient `index` of this process is complete. To be called once for each, in
  // order; the gradient must not change before Finish.
  virtual void Take(int index) = 0;
  // Within the same pass: later work finds the sums and averages in the tensors.
  virtual void Finish() = 0;
  // What rounding for transport lost of each gradient in the last pass, in this process: of its own
  // part, and of the slices of the sum that it computed. Values carry S. All 0 in fp32. Waits.
  virtual std::vector<TensorStats> Lost() = 0;
  virtual std::int64_t bytes() const = 0;  // of the gradients as they travel
  virtual std::int64_t buckets() const = 0;
};

}  // namespace ada::backend

// Sums over processes in the middle of a pass, for backends with a communication of their own
// (Backend::MakeGradientSums).
#pragma once
#include <cstdint>
#include <vector>

#include "number/number_format.h"
#include "number/stats.h"
#include "number/tensor.h"

namespace ada::backend {

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

// Sums over processes in the middle of a pass, where a backend has messages of its own for them
// (Backend::MakeGradientSums).
#pragma once
#include <cstdint>
#include <vector>

#include "core/number_format.h"
#include "core/stats.h"
#include "core/tensor.h"

namespace ada::backend {

struct GradientSumsSpec {
  std::vector<Tensor> gradients;  // fp32, in the order in which a backward pass completes them
  // fp32: become means over processes, each of which counts with Pass::share.
  std::vector<Tensor> averages;
  std::int64_t bucket_bytes = 0;  // at most; a quarter of all gradients where that is less
  // fp32; or fp16 or bf16: then each part, times Pass::loss_scale, and each sum of gradients is
  // rounded once before it travels, and the sum divided by that scale.
  NumberFormat transport = kFp32;
};

// Sums are taken in the order of processes: equal numbers of processes give equal bytes.
class GradientSums {
 public:
  virtual ~GradientSums() = default;
  // Within a pass: gradient `index` is complete, of one process. Once each, in their order; nobody
  // changes it before Finish.
  virtual void Take(int index) = 0;
  // Within the same pass: what follows finds sums and averages in the tensors.
  virtual void Finish() = 0;
  // What transport lost of each gradient in the last pass, on this process: of its own part, and of
  // the slices of the sum that it made. Values carry the loss's scale. All 0 in fp32. Waits.
  virtual std::vector<TensorStats> Lost() = 0;
  virtual std::int64_t bytes() const = 0;  // of the gradients as they travel
  virtual std::int64_t buckets() const = 0;
};

}  // namespace ada::backend

// Turns the sums of a weight gradient into dw and db: in PyTorch's order, unscaled, rounded if they
// have a format of their own.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {

// Its context is the side stream's, where all its launches go.
class WeightGradient {
 public:
  // Without spec.dy nothing may be called.
  WeightGradient(const Context& context, const MatmulSpec& spec);
  // dw = round(sums / S); of several micro-batches each sum is rounded. sums: packed, fp32, with
  // this many input channels after those of w. Neither rounded nor counted where pass.part.
  void Store(const Pass& pass, const float* sums, std::int64_t added_channels) const;
  // db = sum(dy) / S in fp32; the authors' program rounds it where dw is. `scratch`: scratch_bytes.
  void StoreBias(const Pass& pass, std::byte* scratch) const;
  std::size_t scratch_bytes() const;
  // dw and db are the sums of all processes: what Store and StoreBias leave out of parts of them.
  void Finish(const Pass& pass) const;

 private:
  Context context_;
  MatmulSpec spec_;
  RoundingStats stats_;
  std::int64_t run_ = 0;  // rows of dy that one thread adds up; depends only on the shape
};

}  // namespace ada::backend::cuda

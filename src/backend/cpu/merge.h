// Partial results of blocks to those of a tensor, always in block order.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

namespace ada::backend::cpu {

// The notes of one rounding: a BlockStats for each block and where their merged values go. Made
// once with the op, used in every call.
class Notes {
 public:
  Notes() = default;
  // stats, moments: null where nobody asks.
  Notes(TensorStats* stats, TensorMoments* moments, std::int64_t blocks)
      : stats_(stats), moments_(moments), blocks_(static_cast<std::size_t>(blocks)) {}
  explicit Notes(const Gradient& gradient, std::int64_t blocks)
      : Notes(gradient.stats, gradient.moments, blocks) {}

  // How block `block` of this call is to be rounded.
  Rounding For(const NumberFormat& format, const Pass& pass, std::int64_t block);
  bool wanted() const { return stats_ != nullptr || moments_ != nullptr; }
  // Merges the blocks of this call.
  void Finish(const Pass& pass, std::int64_t blocks);
  float max_abs() const { return max_abs_; }  // of the last Finish

 private:
  TensorStats* stats_ = nullptr;
  TensorMoments* moments_ = nullptr;
  std::vector<BlockStats> blocks_;
  float max_abs_ = 0;
};

TensorStats MergeStats(const BlockStats* blocks, std::int64_t count, bool full);
TensorMoments MergeMoments(const BlockStats* blocks, std::int64_t count);

}  // namespace ada::backend::cpu

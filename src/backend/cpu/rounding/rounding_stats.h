// A rounding point of an op: how each of its blocks is rounded, and how what the blocks measured
// becomes what the tensor's is, always in block order.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

namespace ada::backend::cpu {

// Made once with the op, used in every call. A default one rounds nothing and measures nothing.
class RoundingStats {
 public:
  RoundingStats() = default;
  // The rounding of `tensor`, in blocks of `images` images (0: BlockImages of its shape). stats,
  // moments: null if not needed.
  RoundingStats(const Tensor& tensor, const RoundingStyle& style, TensorStats* stats,
                TensorMoments* moments = nullptr, int images = 0);
  // Rounds a gradient; without stats its values are exact and kept as they are. images: as above.
  explicit RoundingStats(const Gradient& gradient, int images = 0);
  // The rounding of a parameter of `numel` values to `format`, in segments (blocks.h).
  static RoundingStats OfParameter(const NumberFormat& format, std::int64_t numel,
                                   const RoundingStyle& style, TensorStats* stats,
                                   TensorMoments* moments = nullptr);

  // How block `block` of this call is to be rounded. A gradient's scale must be set already.
  Rounding For(const Pass& pass, std::int64_t block);
  // Rounds the `n` fp32 values of a block in place, or measures them if they stay as they are.
  void RoundInPlace(const Kernels& kernels, const Pass& pass, std::int64_t block, float* values,
                    std::int64_t n);
  // Merges the blocks of this call.
  void Finish(const Pass& pass);
  bool wanted() const { return stats_ != nullptr || moments_ != nullptr; }
  // Whether anything is stored otherwise than it is: format or scale.
  bool rounds() const { return !(format_ == kFp32) || style_.per_tensor_scale != nullptr; }
  float max_abs() const { return max_abs_; }  // of the last Finish

 private:
  void MakeBlocks(std::int64_t count);
  // What values carry before any scale of the tensor's own.
  float carried() const { return scale_ != nullptr ? *scale_ : 1; }

  NumberFormat format_ = kFp32;
  RoundingStyle style_;
  TensorStats* stats_ = nullptr;
  TensorMoments* moments_ = nullptr;
  bool size_only_ = false;
  int images_ = 0;  // of a block; 0: a parameter
  std::int64_t block_values_ = 0;
  const float* scale_ = nullptr;  // of a gradient
  std::vector<BlockStats> blocks_;
  std::vector<BlockBins> bins_;  // empty if not needed
  float max_abs_ = 0;
};

// Rounding to `format` in between, where nothing is measured: to nearest, unscaled.
Rounding RoundOnly(const NumberFormat& format);

TensorStats MergeStats(const BlockStats* blocks, std::int64_t count, bool full);
// size_only: mean_square and the largest magnitude, as max and -min.
TensorMoments MergeMoments(const BlockStats* blocks, std::int64_t count, bool size_only = false);
// Merges the bins of values that carry `scale`, whose mantissa the blocks knew.
ExponentBins MergeBins(const BlockBins* blocks, std::int64_t count, float scale);

}  // namespace ada::backend::cpu

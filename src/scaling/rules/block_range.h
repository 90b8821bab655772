// exact_range for the fp32 scale that a tensor of blocks has beside its blocks' scales (nvfp4): by
// which power of two the scale that follows from the largest magnitude is multiplied, so that
// blocks far below the largest keep scales of their own. Ours; no other program has it. Functions
// of the values alone: nothing is remembered from step to step.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "number/blocks/operand_blocks.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::scaling {

// What a tensor loses under each power 2^k, k = 0 .. kPowers - 1. Plain counts, which processes
// add.
struct BlockRange {
  static constexpr int kPowers = 101;
  // Values that are lost to their block's scale under the power before this one, and not from it
  // on. The last count is of values that no power keeps.
  std::array<std::int64_t, kPowers + 1> kept_from = {};
  // Values whose magnitude times this power is beyond the largest, and times the one before is not.
  std::array<std::int64_t, kPowers + 1> saturated_from = {};
  std::int64_t nonzero = 0;
  void Add(const BlockRange& other);
};

// Observes the blocks of one tensor and chooses a power.
class BlockRangeScale {
 public:
  // amax: the tensor's largest magnitude. format: with a scale of the tensor.
  BlockRangeScale(const BlockFormat& format, bool bf16, float amax);

  // Whether there is a choice: amax is finite and not 0, and its scale is not at fp32's end.
  // Otherwise the scale of amax is kept, and nothing else may be called.
  bool adapts() const { return !tensors_.empty(); }
  // Adds the values of one block. A value counts as lost by a power if it decodes to zero, rounded
  // to nearest, and does not under the power that makes its block's scale a normal number.
  void Observe(std::span<const float> block, BlockRange& range) const;
  // Returns k: the smallest power by which at most underflow_target of the values are lost, but at
  // most the largest by which no more than saturation_limit saturate and the scale is finite.
  int Choose(const BlockRangeRule& rule, const BlockRange& range) const;
  // The largest magnitude from which a scale 2^k times as large follows.
  float AmaxOf(int k) const;

 private:
  int FirstNormal(float block_amax) const;

  BlockGrid grid_;
  float amax_;
  std::vector<TensorFactor> tensors_;  // by power, those that are finite
};

// The same for an operand whose values are all here.
BlockRange RangeOfOperand(const BlockFormat& format, const OperandPlace& place,
                          const std::vector<float>& values, const BlockRangeScale& scale);

}  // namespace ada::scaling

// The copy of a layer's rounded weights that one product multiplies where it rounds them once more.
#pragma once
#include <cstdint>
#include <optional>

#include "backend/cuda/context.h"
#include "backend/cuda/matmul/block_operand.h"
#include "backend/cuda/matmul/operand_places.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {

// Its launches come after the one that all layers share, since it reads the rounded weights.
class WeightOperand {
 public:
  // which: an operand of `spec` that rounds.
  WeightOperand(const Context& context, const OperandPlaces& places, const MatmulSpec& spec,
                Operand which);
  // Launches what makes the copy of `weights`, fp32 in PyTorch's order.
  void Round(const Pass& pass, const float* weights) const;
  // They lie in the same order, in backend memory.
  const float* values() const { return values_; }

 private:
  Context context_;
  OperandRounding operand_;
  std::int64_t numel_, rows_;
  RoundingStats stats_;  // of the format, or of what blocks are made of
  std::optional<BlockOperand> blocks_;
  std::uint32_t* amax_ = nullptr;
  float* values_;
};

}  // namespace ada::backend::cuda

// Rounding of an operand to a block-scaled format: the launches, and the memory that they take.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/block_rounding.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/operand_rows.h"

namespace ada::backend::cuda {

// Used for operands of the batch and of weights. Tiles are fixed by the layer but for the number of
// rows, which follows the pass.
class BlockOperand {
 public:
  // most: rows at the most. bf16: values are given as bf16. before: measures the values before
  // their rounding, as those of a tensor in fp32.
  BlockOperand(const Context& context, const OperandRounding& operand, const OperandRows& rows,
               std::int64_t most, bool bf16, const RoundingStats& before);
  // Rows hold pixels of so many channels, which are numbered in PyTorch's order.
  void TakeAsPyTorch(std::int64_t channels);

  // Bytes of memory that is free again after the launches.
  std::size_t work_bytes() const;
  bool asks_amax() const { return format_.tensor_scale && !format_.row_scaled; }
  // out = the decoded values of `rows` rows. first: the number of the first value, for random
  // words. amax: bits of the largest magnitude, where the format asks; null: of these values.
  void Round(const Pass& pass, const TensorSpan& in, std::int64_t rows, std::int64_t first,
             const std::uint32_t* amax, const TensorSpan& out, std::byte* work) const;

 private:
  // Parts of the memory, in bytes.
  struct Work {
    std::size_t largest, rows, errors, parts;
  };
  BlockTiles TilesOf(std::int64_t rows) const;
  Work WorkOf(const BlockTiles& tiles) const;
  std::int64_t RangesOf(const BlockTiles& tiles) const;
  void FindLargest(const BlockRounding& how, std::uint32_t* amax) const;
  void ChooseScales(const BlockRounding& how, float* errors) const;
  void Count(const BlockRounding& how, std::byte* parts) const;

  Stream& stream_;
  const PassValues* pass_;
  OperandRounding operand_;
  BlockFormat format_;
  OperandRows rows_;
  BlockTiles tiles_;  // but for the number of rows
  std::int64_t most_;
  BlockGrid grid_;
  RoundingStats before_;
};

}  // namespace ada::backend::cuda

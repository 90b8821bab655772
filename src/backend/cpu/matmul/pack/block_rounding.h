// Rounding of an operand to a block-scaled format: the passes over its blocks (operand_rows.h).
//
// A tensor's scale has all bits of fp32. Where its rule lets it, it is left out of the values,
// which bf16 then holds, and becomes a factor of the sums that they are in; values carry a power of
// two near it, so that such a sum is as large as it was and the factors of two operands are
// about 1.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "backend/communicators.h"
#include "backend/cpu/block_kernels.h"
#include "backend/cpu/context.h"
#include "backend/operand_rows.h"
#include "number/blocks/block_quantizer.h"
#include "scaling/rules/block_range.h"

namespace ada::backend::cpu {

// Some rows that share no block with others.
struct RowRange {
  std::int64_t first, rows;
};

// A tensor's scale as a product: the factor that values carry (0: the whole scale, whatever it is),
// and the factor that is left for their sums.
struct SplitScale {
  float of_values, of_sums;
};
SplitScale SplitTensorScale(const BlockGrid& grid, float amax);

// Rounds the blocks of `args`, whose tensors it fills in: of the whole tensor's largest magnitude,
// or of those of lines. Where the vectorized kernel lacks the rule, from and to are the same fp32.
void RoundBlocks(const BlockKernels& kernels, const BlockGrid& grid,
                 const std::vector<float>& amaxes, BlockArgs args);
// Adds up what the blocks of a range lost, in their order, and returns how many values became
// subnormal elements. Slow: by the scalar rules.
std::int64_t CountBlocks(const BlockGrid& grid, const BlockFormat& format,
                         const BlockLayout& layout, const std::vector<float>& amaxes,
                         const float* before, const float* after, BlockCounts& counts);

// One for each operand with a block-scaled format. Run spreads ranges of rows over the pool. Where
// nothing is counted or transformed and the vectorized kernel has the rule, values go from memory
// to memory in one pass; else each range is widened to fp32 in scratch memory first.
class BlockRounding {
 public:
  // bf16: values are given as bf16.
  BlockRounding(const Context& context, const OperandRounding& operand, const OperandRows& rows,
                bool bf16);

  // Rounds `rows` rows at `from`, of any storage, to `to`, fp32 or (FitsBf16) bf16, in parts; both
  // may be the same memory of one storage. Where
  // values lie in another order than blocks do, `turn` brings those of a part to it and back; it
  // may be called from all workers. amax: of the whole tensor, where the format asks (asks_amax).
  // shared: who else has parts of rows that blocks run down; null: nobody. first: the number of the
  // first value, for random words. Fills the operand's BlockCounts where the pass counts, and
  // returns how many values became subnormal elements.
  using Turn = std::function<void(const RowRange&, float* values, bool back)>;
  std::int64_t Run(const Pass& pass, std::int64_t rows, float amax, parallel::Communicator* shared,
                   std::uint64_t first, TensorSpan from, TensorSpan to, const Turn& turn = nullptr);
  // Each Run fills `to`, of as many values as it rounds, with the scale by which a value's element
  // was multiplied when it was decoded.
  void KeepScales(float* to) { scales_ = to; }
  // Whether sums of rounded values are to be multiplied by factor(), which Run sets.
  static bool LeavesFactor(const BlockFormat& format);
  float factor() const { return factor_; }
  bool asks_amax() const { return format_.tensor_scale && !format_.row_scaled; }

 private:
  struct RangeCounts {
    BlockCounts counts;
    std::int64_t subnormal = 0;
  };
  std::vector<RowRange> RangesOf(std::int64_t rows) const;
  BlockLayout LayoutOf(std::int64_t rows) const;
  // A range's values in fp32: as they are rounded, and as they were before.
  enum class Buffer : std::uint8_t { kRounded, kBefore, kScales };
  float* BufferOf(int worker, Buffer which) const;
  // Takes the largest magnitude of each column of each group, over all ranges.
  std::vector<float> ColumnAmaxes(const std::vector<RowRange>& ranges, std::int64_t rows,
                                  TensorSpan from) const;
  std::vector<float> AmaxesOf(const RowRange& range, const float* values,
                              const std::vector<float>& columns) const;
  std::size_t RangeBytes() const;
  float AdaptedAmax(const std::vector<RowRange>& ranges, float amax, parallel::Communicator* shared,
                    TensorSpan from, const Turn& turn) const;
  void RoundInFp32(const RowRange& range, const std::vector<float>& given, const BlockArgs& args,
                   int worker, const Turn& turn, RangeCounts* part) const;
  void Round(const RowRange& range, const std::vector<float>& amaxes, BlockArgs args) const {
    args.layout = LayoutOf(range.rows);
    RoundBlocks(kernels_, grid_, amaxes, args);
  }
  void Scales(const RowRange& range, const std::vector<float>& amaxes, const float* before,
              float* scales) const;

  Context context_;
  const BlockKernels& kernels_;
  OperandRounding operand_;
  BlockFormat format_;
  OperandRows rows_;
  bool bf16_;
  BlockGrid grid_;
  std::int64_t most_;  // rows of a range
  float factor_ = 1;
  float* scales_ = nullptr;
};

}  // namespace ada::backend::cpu

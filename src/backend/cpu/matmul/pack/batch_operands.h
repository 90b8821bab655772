// The operands of a layer's matmuls where they are not what is stored: copies of x and dy, each
// rounded once more, in fp32 or in the narrowest storage that holds all values that the matmuls of
// a layer meet. Those of the weights are weight_copies.h's.
#pragma once
#include <optional>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/matmul_geometry.h"
#include "backend/cpu/matmul/pack/block_rounding.h"
#include "backend/cpu/matmul/pack/operand_steps.h"
#include "backend/cpu/rounding/rounding_stats.h"

namespace ada::backend::cpu {

// The layer as its matmuls see it: x, dy and w have the formats and storage types of their
// operands. Data pointers still refer to the stored tensors.
MatmulSpec AsOperands(const MatmulSpec& spec);

// Whether a pass counts an operand in a block-scaled format when it inspects the values.
bool CountsBlocks(const Pass& pass, const OperandRounding& operand);
// After its rounding: what the blocks counted, as the counts of a rounding. `counts`: CountsBlocks.
void TakeBlockCounts(const OperandRounding& operand, bool counts, std::int64_t subnormal);

// One operand made of a tensor of the batch.
// The copy lives in scratch memory from Make to the end of the op's call. Without rounding and with
// storage that fits there is no copy: tensor() is what is stored.
class BatchOperand {
 public:
  // scale: the S that it carries; null: none. `as`: the tensor of AsOperands.
  BatchOperand(const Context& context, const MatmulGeometry& geometry, const Tensor& stored,
               float* scale, Operand which, const OperandRounding& operand, const Tensor& as,
               bool keeps_scales);
  std::size_t bytes() const;  // of the copy; 0: there is none
  // With every refresh of the weights, before Make.
  void Refresh(const Pass& pass);
  // Makes the copy at `memory`; then tensor() is it.
  void Make(const Pass& pass, std::byte* memory);
  const Tensor& tensor() const { return tensor_; }
  // The factor by which sums of its values must be multiplied.
  float factor() const { return blocks_ ? blocks_->factor() : 1; }
  // The scale of each value, where they are kept (KeepsScales); else null.
  const float* scales() const { return scales_; }

 private:
  // The processes that share the tensor; null: none.
  parallel::Communicator* Sharing(const Pass& pass) const;
  // The largest magnitude, of all processes that share the tensor.
  float Largest(const Tensor& of, const Pass& pass) const;
  Tensor Transformed(const Pass& pass) const;
  void TransformChannels(const Pass& pass, const Tensor& transformed) const;
  void TransformRows(const Pass& pass, const Tensor& transformed) const;
  void RoundValues(const Pass& pass, const Tensor& from);
  void RoundInBlocks(const Pass& pass, const Tensor& from);
  // Between the order of an image in memory and PyTorch's, of so many images.
  void Permute(float* values, std::int64_t images, bool back) const;

  Context context_;
  Tensor stored_, tensor_;
  OperandRounding operand_;
  bool copies_;
  bool keeps_scales_ = false;
  float* scales_ = nullptr;
  bool permutes_ = false;  // blocks run over channels and pixels, in PyTorch's order
  std::int64_t row_values_ = 1;
  std::int64_t transform_values_ = 1;          // of a row, of which a transform takes some
  std::optional<OperandRows> transform_rows_;  // where it runs along channels instead
  bool takes_as_pytorch_ = false;              // of these
  std::vector<float> signs_;                   // of the last refresh
  RoundingStats stats_;
  std::optional<BlockRounding> blocks_;
  std::optional<RowScales> row_scales_;
};

// The four operands of x and dy; those of one direction are made one after the other, before the
// chunks.
class BatchOperands {
 public:
  BatchOperands(const Context& context, const MatmulGeometry& geometry, const MatmulSpec& spec,
                const MatmulSpec& operand_spec);
  // With every refresh of the weights.
  void Refresh(const Pass& pass);
  void Forward(const Pass& pass);
  void Backward(const Pass& pass);
  // What the matmuls read, of the whole batch; valid within Forward or Backward of the op.
  const Tensor& Of(Operand operand) const { return operands_[Slot(operand)].tensor(); }
  const float* ScalesOf(Operand operand) const { return operands_[Slot(operand)].scales(); }
  float FactorOf(Operand operand) const { return operands_[Slot(operand)].factor(); }

 private:
  static constexpr std::size_t Slot(Operand operand) {
    switch (operand) {
      case Operand::kForwardX:
        return 0;
      case Operand::kDxDy:
        return 1;
      case Operand::kDwX:
        return 2;
      default:
        return 3;
    }
  }
  void Make(const Pass& pass, std::size_t first, std::size_t last);

  Context context_;
  bool has_dx_;
  std::vector<BatchOperand> operands_;  // by Slot; without a backward pass the first alone
};

}  // namespace ada::backend::cpu

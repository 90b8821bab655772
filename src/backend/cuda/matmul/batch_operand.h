// Operands of a layer's matmuls that are made from the batch but differ from what is stored: copies
// of x and dy, each rounded once more, in scratch memory.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "backend/cuda/context.h"
#include "backend/cuda/matmul/block_operand.h"
#include "backend/cuda/matmul/operand_places.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {

// One operand that rounds.
// Belongs to the product that takes it, and to its stream: the copies of a weight gradient are made
// on the side stream. It only launches; nothing is computed on the host.
class BatchOperand {
 public:
  // context: with the stream of the matmul. scale: the S that `stored` carries; null: none.
  BatchOperand(const Context& context, const OperandPlaces& places, Operand which,
               const Tensor& stored, const float* scale, const OperandRounding& operand,
               Storage carrier);
  std::size_t carrier_bytes() const { return Aligned(carrier_.bytes()); }
  // Bytes of memory that is free again after Make.
  std::size_t work_bytes() const;
  // Launches what makes the copy, in memory of carrier_bytes().
  TensorSpan Make(const Pass& pass, std::byte* memory, std::byte* work) const;

  // Where processes share the batch and the largest magnitude is asked for, it is of all of them:
  // asks for it with the context whose stream the link is of, before Make in a stream that waits
  // for that. work: of work_bytes().
  void JoinAmax(const Context& main, const Pass& pass, std::byte* work) const;

 private:
  bool asks_amax() const;
  bool joins_amax(const Pass& pass) const { return amax_of_all_ != nullptr && pass.whole_rows > 0; }
  std::size_t transformed_bytes() const;
  std::int64_t ValuesOf(const Pass& pass) const { return pass.rows * stored_.shape.per_image(); }
  // The values to round: the stored ones, or their transform at `work`.
  TensorSpan Input(Stream& stream, const Pass& pass, std::byte* work) const;
  void RoundValues(const Pass& pass, const TensorSpan& in, const TensorSpan& out) const;

  Context context_;
  Tensor stored_, carrier_;
  OperandRounding operand_;
  std::int64_t row_values_ = 1;        // of blocks
  std::int64_t transform_values_ = 1;  // of a row, of which a transform takes 16
  RoundingStats stats_;                // of the format, or of what blocks are made of
  std::optional<BlockOperand> blocks_;
  // In backend memory: of this process, and where several join it of all.
  std::uint32_t *amax_ = nullptr, *amax_of_all_ = nullptr, *amaxes_ = nullptr;
};

// The copies for one matmul: the first operand of an output or data gradient, both of a weight
// gradient. They are stored one after another at the start of the matmul's scratch memory; memory
// for making one follows them, and is free for the plan when all are made.
class BatchOperands {
 public:
  BatchOperands(const Context& context, const OperandPlaces& places, const MatmulSpec& spec,
                MatmulKind kind);
  // Bytes of scratch memory: for the copies; for the part after them that is free after Make.
  std::size_t carrier_bytes() const;
  std::size_t work_bytes() const;
  // What the product reads: by operand, as spec.x or spec.dy lies or as the copy does.
  using Spans = std::array<TensorSpan, 2>;
  Spans Make(const Pass& pass, std::byte* scratch) const;
  void JoinAmax(const Context& main, const Pass& pass) const;

 private:
  std::array<TensorSpan, 2> stored_;
  std::array<std::optional<BatchOperand>, 2> operands_;  // empty: what is stored
};

}  // namespace ada::backend::cuda

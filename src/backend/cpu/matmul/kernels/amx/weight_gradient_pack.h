// Packs for the weight gradient, in small steps that hide behind the matrix unit's work. Layout:
// amx_weight_gradient.h.
#pragma once
#include "backend/cpu/matmul/kernels/amx/bf16_split.h"
#include "backend/cpu/matmul/kernels/amx/weight_gradient_pairs.h"
#include "backend/cpu/matmul/kernels/amx_gradient_args.h"

namespace ada::backend::cpu::ADA_ISA {

// One for a call of the kernel. Begin hands it a strip; the kernel calls Step while the matrix unit
// works, and again until left() is 0 before it reads the strip.
class GradientPacking {
 public:
  // Clears what stays zero in the scratch memory.
  explicit GradientPacking(const WeightGradientArgs& args);

  // From now on steps pack the strip of rows first .. end of dy, and the rows of x that it reads
  // and no strip before it.
  void Begin(int first, int end);
  // Steps left, of about 100 instructions.
  int left() const { return left_; }
  void Step();

  // The strip that was begun last.
  const std::byte* strip() const { return dy_strip_; }
  // Row `row` of dy and row `kernel_row` of the kernel: the row of x, or null outside the image.
  const std::byte* RowOfX(int row, int kernel_row) const;

 private:
  static constexpr int kPixels = 8, kParts = 4;  // packed pixels of a step, steps of a block

  void ClearPadding();
  void SetOffsets(GradientOffsets* table, int images);
  GradientOffsets* Table(int which) const;
  bool Reads(int number) const;
  const std::byte* ImageRow(int image) const;
  void NextRow();
  void BeginRow();
  void BeginPlane();
  void StepX();
  void BeginBlock();
  void StepDy();

  const WeightGradientArgs& args_;
  const WeightGradientShape& shape_;
  const WeightGradientPlan& plan_;
  const int rows_of_set_, outs_;
  int row_steps_ = 0;  // of a row of x
  int left_ = 0;

  int x_row_ = 0, x_end_ = 0, x_plane_ = 0, x_left_ = 0;  // x_left_: packed pixels of the plane
  const std::byte *x_first_[16] = {}, *x_second_[16] = {};
  PairRun run_;
  void (*pack_whole_)(const PairRun&) = nullptr;
  void (*pack_lanes_)(const PairRun&) = nullptr;

  int dy_row_ = 0, dy_block_ = 0, dy_out_ = 0, dy_part_ = 0;
  std::byte* dy_strip_ = nullptr;
  PairBlock block_;
  void (*pack_block_)(PairBlock&, int part) = nullptr;
};

}  // namespace ada::backend::cpu::ADA_ISA

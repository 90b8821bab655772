// The low-precision copies of one weight tensor: rounded once, then kept in every layout that the
// matmuls of its layer want. Read by all workers, changed only by Refresh and Add. Their memory is
// not touched before the first Refresh.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/matmul_geometry.h"
#include "backend/cpu/matmul/pack/block_rounding.h"
#include "backend/cpu/matmul/pack/operand_steps.h"
#include "backend/cpu/rounding/rounding_stats.h"

namespace ada::backend::cpu {

// Which matmul the weights are multiplied in.
enum class WeightUse : std::uint8_t { kForward, kData };

// Owned by a MatmulOp. Up to three roundings: the copy of the layer, and what each of the two
// matmuls makes of it; then layouts of these for oneDNN. Kernels of our own pack from plain(use).
class WeightCopies {
 public:
  // Keeps copies of spec.w in spec.w_format. moments: those of the rounded copy are computed
  // at every Refresh. If weight operands are rounded, the matmuls use that copy rounded once
  // more.
  WeightCopies(const Context& context, const MatmulGeometry& geometry, const MatmulSpec& spec,
               bool moments);
  ~WeightCopies();
  WeightCopies(const WeightCopies&) = delete;
  // The copy of what `use` multiplies in `layout`, made if it is new; without values before the
  // first Refresh. Not while workers read.
  const float* Add(WeightUse use, const std::shared_ptr<const WeightLayout>& layout);
  void Refresh(const Pass& pass);
  const TensorMoments& moments() const { return moments_; }
  // The rounded weights in PyTorch's order; and what `use` multiplies.
  const float* plain() const;
  const float* plain(WeightUse use) const;
  // The scale of each of the latter's values, where they are kept (KeepsScales); else null.
  const float* scales(WeightUse use) const;
  // The factor by which sums of the latter must be multiplied.
  float factor(WeightUse use) const;

 private:
  using Floats = std::vector<float, PageAllocator<float, PageKind::kHuge>>;
  struct Copy {
    WeightUse use;
    std::shared_ptr<const WeightLayout> layout;
    Floats values;
  };
  struct OperandCopy {
    OperandRounding operand;
    RoundingStats stats;
    Floats values;  // PyTorch's order; empty where nothing is rounded
    Floats scales;  // the same; empty where they are not kept
    std::optional<BlockRounding> blocks;
    std::optional<RowScales> row_scales;
    std::optional<OperandRows> transform;  // the lines of a Hadamard transform before all this
  };
  void RoundStored(const Pass& pass);
  void RoundOperand(OperandCopy& copy, const Pass& pass);
  // What is rounded: the rounded weights, or their transform in the place of the result.
  const float* Transformed(OperandCopy& copy, const Pass& pass) const;
  void RoundValues(OperandCopy& copy, const float* from, const Pass& pass);
  void RoundInBlocks(OperandCopy& copy, const float* from, const Pass& pass);
  float Largest(const float* of) const;  // magnitude of all weights
  // The same values are multiplied in both matmuls.
  bool Same(WeightUse one, WeightUse other) const { return plain(one) == plain(other); }

  Context context_;
  MatmulGeometry geometry_;
  Tensor master_;
  bool bf16_;  // the layer's copy is in bf16
  TensorMoments moments_;
  RoundingStats stats_;
  Floats rounded_;                             // PyTorch's order; empty where nothing is rounded
  std::array<OperandCopy, 2> operand_copies_;  // by WeightUse
  std::vector<Copy> copies_;
  bool refreshed_ = false;
  std::ptrdiff_t bytes_ = 0;
};

}  // namespace ada::backend::cpu

// The plans of one layer's products, by number of images: made when a pass first asks for them,
// which is never while that pass is recorded (recordings.h).
#pragma once
#include <array>
#include <cstddef>
#include <map>
#include <tuple>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/matmul/batch_operand.h"
#include "backend/cuda/matmul/planned_matmul.h"
#include "backend/cuda/matmul/weight_copies.h"

namespace ada::backend::cuda {

// By product: the operands that are made of the batch.
struct OperandCopies {
  BatchOperands forward, data, weights;
  const BatchOperands& Of(MatmulKind kind) const {
    return kind == MatmulKind::kForward ? forward : kind == MatmulKind::kData ? data : weights;
  }
};

// Belongs to a MatmulOp. Plans for a smaller last batch are made when it first comes.
class MatmulPlans {
 public:
  // Plans the matmuls for passes over the largest batch. alpha_first: dy is multiplied by alpha,
  // not dx. transposed: `geometry` is that of the convolution that the layer transposes. `weights`
  // packs its copy in the storage types that plans read. operands: those that are copied; the
  // copies are in scratch memory before the plan's part.
  MatmulPlans(const Context& context, const MatmulSpec& spec, const MatmulGeometry& geometry,
              bool transposed, WeightCopies& weights, const OperandCopies& operands,
              bool alpha_first);

  // rounded: of the output no more than the largest magnitude is measured in this call, so that a
  // plan may round it.
  const PlannedMatmul& For(MatmulKind kind, int rows, bool rounded = false);
  // Bytes of alpha * dy, which lies before the scratch memory of the data gradient's plan.
  std::size_t scaled_bytes() const;

 private:
  struct Pair {
    PlannedMatmul plain;  // for calls that measure the least
    PlannedMatmul sums;   // for the others, where `plain` rounds; else empty
  };
  // Which product of `geometry_` the layer's is.
  MatmulKind AskedFor(MatmulKind kind) const;
  PlanOutput OutputOf(MatmulKind kind, Storage operands) const;
  PlannedMatmul Make(MatmulKind kind, int rows, bool sums) const;
  // An operand that a device may read as codes of 8 bits: it is fp8, and whether it has a
  // per-tensor scale is known.
  struct Coded {
    Fp8 format = Fp8::kNone;
    bool known = true;
    const scaling::TensorScaler* per_tensor_scale = nullptr;
  };
  static Coded CodedOf(const Tensor& tensor, const scaling::TensorScaler* per_tensor_scale);
  // An operand as its matmul reads it; stored: as it is stored.
  Coded CodedOperand(Operand operand, const Coded& stored) const;
  Coded CodedDy(MatmulKind kind) const;
  // None unless options.fp8_hardware; where an operand is not known, with a diagnostic.
  std::array<Coded, 2> CodedOperands(MatmulKind kind) const;
  const Context& ContextOf(MatmulKind kind) const;
  // Also for the sums of calls that measure more.
  void ReserveScratch(MatmulKind kind, const PlannedMatmul& matmul) const;

  Context context_;
  MatmulSpec spec_;
  MatmulGeometry geometry_;
  bool transposed_;
  WeightCopies& weights_;
  const OperandCopies& operands_;
  bool alpha_first_;
  std::map<std::tuple<MatmulKind, int>, Pair> plans_;
};

}  // namespace ada::backend::cuda

// A matmul with the plan that the library chose for it, and the plans of one layer's products, by
// number of images: made when a pass first asks for them, which is never while that pass is
// recorded (ops/pass_ops.h).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/matmul/operands.h"
#include "backend/cuda/matmul/weight_copies.h"
#include "backend/cuda/matmuls.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {

// Operands of a layer's matmuls that are made from the batch but differ from what is stored: copies
// of x and dy, each rounded once more, in scratch memory.
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

// Pointers to operands' per-tensor scales, for operands that may be packed; null: 1.
struct PerTensorScales {
  const float *first = nullptr, *second = nullptr;
};

// Belongs to an op's MatmulPlans; the plan itself is shared. Run only launches.
class PlannedMatmul {
 public:
  PlannedMatmul() = default;
  // The first of `requests` that the library supports. Diagnostics say, once for a layer, what
  // differs from the first request. DeviceError if none is supported.
  PlannedMatmul(const Context& context, const std::string& layer,
                const std::vector<MatmulRequest>& requests, const PerTensorScales& scales = {});

  explicit operator bool() const { return matmul_ != nullptr; }
  const MatmulRequest& request() const { return request_; }
  // Whether `out` is rounded by the plan: Run writes it and there are no sums.
  bool rounded() const { return request_.out != Storage::kF32; }

  // Input channels of the plan beyond those that the tensors have.
  std::int64_t added_channels() const { return request_.geometry.x.c - channels_; }

  // Bytes of scratch memory that Run needs, for the storage types of its operands. apart: including
  // fp32 sums, which are stored there if `out` is not fp32 or does not exist.
  std::size_t scratch_bytes(Storage first, Storage second, bool apart) const;
  // Returns a pointer to the fp32 sums (without per-tensor scales): out.data if that is fp32,
  // otherwise in `scratch`; null if the plan rounds. scale: with request().scale.
  float* Run(const Context& context, const TensorSpan& first, const TensorSpan& second,
             const TensorSpan& out, const float* scale, std::byte* scratch) const;

 private:
  std::size_t WidenedBytes(Storage from, std::int64_t values) const;
  const void* Operand(const Context& context, const TensorSpan& in, std::int64_t values,
                      std::byte** scratch) const;
  const void* Padded(const Context& context, const TensorSpan& in, std::byte** scratch) const;
  const void* Codes(const Context& context, int operand, const TensorSpan& in,
                    std::byte** scratch) const;
  const float* Factor(const Context& context, std::byte** scratch) const;

  MatmulRequest request_;
  std::int64_t channels_ = 0;  // of the tensor x
  PerTensorScales scales_;
  std::shared_ptr<Matmul> matmul_;
};

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

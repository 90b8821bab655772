// A matmul as an op uses it: the best plan that the library has, and the preparation of its
// operands: widened to fp32, or packed into codes, if the plan needs that.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/matmuls.h"

namespace ada::backend::cuda {

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

}  // namespace ada::backend::cuda

// Linear layers, convolutions of 1x1 with stride 1 and attention as matrix products of cuBLAS:
// exact products of 16-bit or fp32 operands, fp32 sums, which are multiplied by a number on the
// device and rounded once where the output has 16 bits.
#pragma once
#include <memory>

#include "backend/cuda/matmuls.h"

namespace ada::backend::cuda {

// Its matmuls point to its state and must not outlive it.
class CublasMatmuls final : public Matmuls {
 public:
  // one, zero: in backend memory.
  CublasMatmuls(Stream& stream, const float* one, const float* zero);
  ~CublasMatmuls() override;
  CublasMatmuls(const CublasMatmuls&) = delete;
  // Makes the matmul of a request that IsMatrix. Null where fp32 operands are to be rounded.
  std::unique_ptr<Matmul> Make(const MatmulRequest& request) override;
  std::unique_ptr<BatchedMatmul> MakeBatched(const BatchedRequest& request) override;
  std::size_t workspace_bytes() const override;

 private:
  struct State;
  void MakeHandle();
  std::unique_ptr<State> state_;
};

}  // namespace ada::backend::cuda

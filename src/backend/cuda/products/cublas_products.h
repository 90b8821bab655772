// Linear layers, and convolutions of 1x1 with stride 1, as matrix products of cuBLAS: exact
// products of 16-bit or fp32 operands, fp32 sums, which are multiplied by a number on the device
// and rounded once where the output has 16 bits.
#pragma once
#include <memory>

#include "backend/cuda/products/products.h"

namespace ada::backend::cuda {

class CublasProducts final : public Products {
 public:
  // one, zero: in backend memory.
  CublasProducts(Stream& stream, const float* one, const float* zero);
  ~CublasProducts() override;
  CublasProducts(const CublasProducts&) = delete;
  // Of a request that IsMatrix. Null where fp32 operands are to be rounded.
  std::unique_ptr<Product> Make(const ProductRequest& request) override;
  std::size_t workspace_bytes() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ada::backend::cuda

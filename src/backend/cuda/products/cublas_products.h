// Linear layers as matrix products of cuBLAS: exact products of 16-bit or fp32 operands, fp32 sums.
#pragma once
#include <memory>

#include "backend/cuda/products/products.h"

namespace ada::backend::cuda {

class CublasProducts final : public Products {
 public:
  explicit CublasProducts(Stream& stream);
  ~CublasProducts() override;
  CublasProducts(const CublasProducts&) = delete;
  // Null unless the output is fp32.
  std::unique_ptr<Product> Make(const ProductRequest& request) override;
  std::size_t workspace_bytes() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ada::backend::cuda

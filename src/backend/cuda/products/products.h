// Products of convolutions and linear layers, planned by a library: cuDNN and cuBLAS on a device
// (cudnn_products.cpp), naive loops on the host executor (host_products.cpp).
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/products/product_request.h"

namespace ada::backend {
struct DeviceOptions;
}

namespace ada::backend::cuda {

struct PlanStats;
class Stream;

// Backend memory; product_request.h says what lies where. scale: with ProductRequest::scale (null:
// 1); stats: with ProductRequest::largest.
struct ProductArguments {
  const void *first = nullptr, *second = nullptr;
  void* out = nullptr;
  const float* scale = nullptr;
  PlanStats* stats = nullptr;
};

// One request, planned.
class Product {
 public:
  virtual ~Product() = default;
  // In the stream's order; only launches.
  virtual void Run(const ProductArguments& arguments) = 0;
};

class Products {
 public:
  virtual ~Products() = default;
  // Null where the library has no way to do it. Slow; not while recording.
  virtual std::unique_ptr<Product> Make(const ProductRequest& request) = 0;
  // Memory that all products share.
  virtual std::size_t workspace_bytes() const { return 0; }
  // What there was to say since the last call, one line each.
  virtual std::vector<std::string> TakeDiagnostics() { return {}; }
};

std::unique_ptr<Products> MakeProducts(Stream& stream, const DeviceOptions& options);

}  // namespace ada::backend::cuda

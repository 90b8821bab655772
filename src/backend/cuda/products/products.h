// Products of convolutions and linear layers, planned by a library: cuDNN and cuBLAS on a device
// (cudnn_products.cpp), naive loops on the host executor (host_products.cpp).
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/products/product_request.h"

namespace ada::backend {
struct DeviceOptions;
}

namespace ada::backend::cuda {

class Stream;

// Backend memory; product_request.h says what lies where. scale: with ProductRequest::scale (null:
// 1).
struct ProductArguments {
  const void *first = nullptr, *second = nullptr;
  void* out = nullptr;
  const float* scale = nullptr;
};

// One request, planned; of no layer: all that ask for the same share it.
class Product {
 public:
  virtual ~Product() = default;
  // In the stream's order; only launches.
  virtual void Run(const ProductArguments& arguments) = 0;
};

class Products {
 public:
  virtual ~Products() = default;
  // Made when it is first asked for, and kept; null where the library has no way to do it. Slow the
  // first time; not while recording.
  std::shared_ptr<Product> Get(const ProductRequest& request) {
    const auto [found, is_new] = kept_.try_emplace(KeyOf(request));
    if (!is_new) return found->second;
    try {
      found->second = Make(request);
    } catch (...) {
      kept_.erase(found);
      throw;
    }
    return found->second;
  }
  // The same anew.
  virtual std::unique_ptr<Product> Make(const ProductRequest& request) = 0;
  // Memory that all products share.
  virtual std::size_t workspace_bytes() const { return 0; }
  // What there was to say since the last call, one line each.
  virtual std::vector<std::string> TakeDiagnostics() { return {}; }

 private:
  std::map<std::string, std::shared_ptr<Product>> kept_;  // by KeyOf
};

std::unique_ptr<Products> MakeProducts(Stream& stream, const DeviceOptions& options);

}  // namespace ada::backend::cuda

// A Context on the host executor, for tests of what lies below a backend.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/beside.h"
#include "backend/cuda/context.h"
#include "backend/cuda/host/host_stream.h"
#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/products/products.h"
#include "backend/cuda/products/weight_refresh.h"

namespace ada::backend::test {

// Products of somebody else.
class Borrowed final : public cuda::Products {
 public:
  explicit Borrowed(cuda::Products& products) : products_(products) {}
  std::unique_ptr<cuda::Product> Make(const cuda::ProductRequest& request) override {
    return products_.Make(request);
  }
  std::vector<std::string> TakeDiagnostics() override { return products_.TakeDiagnostics(); }

 private:
  cuda::Products& products_;
};

struct HostContext {
  explicit HostContext(cuda::Products& products)
      : context{stream,   scratch, shared, &values,        options,
                products, remarks, memory, weight_refresh, beside},
        beside(context,
               [&products](cuda::Stream&) { return std::make_unique<Borrowed>(products); }) {}
  HostContext(const HostContext&) = delete;

  cuda::HostStream stream;
  cuda::Memory memory{stream};
  cuda::Scratch scratch{stream};
  cuda::SharedBlocks shared{stream, memory};
  cuda::PassValues values;
  DeviceOptions options;
  cuda::Remarks remarks;
  cuda::WeightRefresh weight_refresh{stream, memory};
  cuda::Context context;
  cuda::Beside beside;
};

}  // namespace ada::backend::test

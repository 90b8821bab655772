// A Context on the host executor, for tests of what lies below a backend.
#pragma once
#include "backend/cuda/context.h"
#include "backend/cuda/host/host_stream.h"
#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/products/products.h"
#include "backend/cuda/products/weight_refresh.h"

namespace ada::backend::test {

struct HostContext {
  explicit HostContext(cuda::Products& products)
      : context{stream,   scratch, shared, &values,       options,
                products, remarks, memory, weight_refresh} {}
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
};

}  // namespace ada::backend::test

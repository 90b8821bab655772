// A Context on the host executor, for tests of code below the backend.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/matmul/weight_copies.h"
#include "backend/cuda/matmuls.h"
#include "backend/cuda/rounding/next_decisions.h"
#include "backend/cuda/rounding/row_chain.h"
#include "backend/cuda/side_stream.h"
#include "cuda/host/host_stream.h"

namespace ada::backend::test {

// Products of somebody else.
class Borrowed final : public cuda::Matmuls {
 public:
  explicit Borrowed(cuda::Matmuls& matmuls) : matmuls_(matmuls) {}
  std::unique_ptr<cuda::Matmul> Make(const cuda::MatmulRequest& request) override {
    return matmuls_.Make(request);
  }
  std::vector<std::string> TakeDiagnostics() override { return matmuls_.TakeDiagnostics(); }

 private:
  cuda::Matmuls& matmuls_;
};

struct HostContext {
  explicit HostContext(cuda::Matmuls& matmuls)
      : context{stream,           scratch, shared,         &values,     options,        matmuls,
                diagnostic_lines, memory,  weight_refresh, side_stream, next_decisions, row_chain},
        side_stream(context,
                    [&matmuls](cuda::Stream&) { return std::make_unique<Borrowed>(matmuls); }) {}
  HostContext(const HostContext&) = delete;

  cuda::HostStream stream;
  cuda::Memory memory{stream};
  cuda::Scratch scratch{stream};
  cuda::SharedBlocks shared{stream, memory};
  cuda::PassValues values;
  DeviceOptions options;
  cuda::DiagnosticLines diagnostic_lines;
  cuda::WeightRefresh weight_refresh{stream, memory};
  cuda::NextDecisions next_decisions;
  cuda::RowChain row_chain{stream};
  cuda::Context context;
  cuda::SideStream side_stream;
};

}  // namespace ada::backend::test

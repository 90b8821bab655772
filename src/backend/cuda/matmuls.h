// Products of convolutions and linear layers, planned by a library: cuDNN and cuBLAS on a device
// (cudnn_matmuls.cpp), naive loops on the host executor (host_matmuls.cpp).
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/matmul_request.h"

namespace ada::backend {
struct DeviceOptions;
}

namespace ada::backend::cuda {

class Stream;

// Backend memory, with the layouts of matmul_request.h. scale: with MatmulRequest::scale (null:
// 1).
struct MatmulArguments {
  const void *first = nullptr, *second = nullptr;
  void* out = nullptr;
  const float* scale = nullptr;
};

// One request, planned; of no layer: all that ask for the same share it.
class Matmul {
 public:
  virtual ~Matmul() = default;
  // In the stream's order; only launches.
  virtual void Run(const MatmulArguments& arguments) = 0;
};

// The same for many matrices (BatchedRequest).
class BatchedMatmul {
 public:
  virtual ~BatchedMatmul() = default;
  // At most kMostBatches. In the stream's order; only launches.
  virtual void Run(const void* first, const void* second, float* out, int batches) = 0;
};
inline constexpr int kMostBatches = 65535;  // what a grid's third side has

// Equal requests of all layers share one plan, which may take a library seconds to make.
class Matmuls {
 public:
  virtual ~Matmuls() = default;
  // Made when it is first asked for, and kept; null where the library has no way to do it. Slow the
  // first time; not while recording.
  std::shared_ptr<Matmul> Get(const MatmulRequest& request) {
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
  virtual std::unique_ptr<Matmul> Make(const MatmulRequest& request) = 0;
  // Null if the library has no such matmuls. Not to be called while recording.
  virtual std::unique_ptr<BatchedMatmul> MakeBatched(const BatchedRequest& /*request*/) {
    return nullptr;
  }
  // Memory that all products share; and Scratch::Grow of it.
  virtual void GrowWorkspace() {}
  virtual std::size_t workspace_bytes() const { return 0; }
  // New messages since the last call, one line each.
  virtual std::vector<std::string> TakeDiagnostics() { return {}; }

 private:
  std::map<std::string, std::shared_ptr<Matmul>> kept_;  // by KeyOf
};

std::unique_ptr<Matmuls> MakeMatmuls(Stream& stream, const DeviceOptions& options);

}  // namespace ada::backend::cuda

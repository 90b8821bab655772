// What all plans of cuDNN of a backend share, and how their graphs number tensors.
#pragma once
#include <cudnn.h>

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/matmul/plan_cache.h"

namespace ada::backend::cuda {

// References are to members of the Matmuls that owns it and outlives all plans.
struct CudnnContext {
  cudnnHandle_t handle;
  Stream& stream;
  Scratch& workspace;
  PlanCache& cache;
  const float *one, *two;  // numbers in backend memory
  bool autotune, deterministic;
  int skip;  // of the engines that come first
  std::vector<std::string>& diagnostics;
};

// The tensors of a graph, as MatmulArguments has them; kScale with HasEpilogue.
enum TensorId : std::int64_t { kFirst = 1, kSecond, kOut, kScale };

}  // namespace ada::backend::cuda

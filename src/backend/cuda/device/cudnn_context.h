// What all plans of cuDNN of a backend share.
#pragma once
#include <cudnn.h>

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

}  // namespace ada::backend::cuda

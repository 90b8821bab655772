// Convolutions, and linear layers of 8-bit codes, as cuDNN graphs: one graph for each request, its
// plan from the disk's cache, from cuDNN's heuristics or from measurements.
#pragma once
#include <cudnn.h>
#include <cudnn_frontend.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/device/cudnn_context.h"
#include "backend/cuda/matmuls.h"

namespace ada::backend::cuda {

// Null where cuDNN has no plan.
std::unique_ptr<Matmul> MakeConvolution(const CudnnContext& context, const MatmulRequest& request);

// Sums and all that becomes of them before they are stored are fp32.
std::shared_ptr<cudnn_frontend::graph::Graph> GraphOf(const MatmulRequest& request);

}  // namespace ada::backend::cuda

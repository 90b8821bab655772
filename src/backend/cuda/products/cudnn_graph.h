// Products as cuDNN graphs: what is computed, in which types, under which numbers its tensors are
// bound. Here and in the .cpp that runs them alone cudnn-frontend is included.
#pragma once
#include <cudnn_frontend.h>

#include <cstdint>
#include <memory>

#include "backend/cuda/products/product_request.h"

namespace ada::backend::cuda {

// The tensors of a graph, as ProductArguments has them; kScale with HasEpilogue, kLargest and kNans
// with ProductRequest::largest.
enum TensorId : std::int64_t { kFirst = 1, kSecond, kOut, kScale, kLargest, kNans };

// Sums and all that becomes of them before they are stored are fp32.
std::shared_ptr<cudnn_frontend::graph::Graph> GraphOf(const ProductRequest& request);

}  // namespace ada::backend::cuda

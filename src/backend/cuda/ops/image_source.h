// A data set in device memory (ImageSource): bytes go there once, an order once an
// epoch, and one kernel makes each batch.
#pragma once
#include <cstddef>
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/context.h"

namespace ada::backend::cuda {

// Bytes of device memory that the data set of `spec` would take; 0: more than half of what is free,
// and the rest is for what a step needs.
std::size_t ResidentBytes(const Context& context, const ImageSourceSpec& spec);

// Null where ResidentBytes is 0.
std::unique_ptr<ImageSource> MakeImageSourceOp(const Context& context, const ImageSourceSpec& spec);

}  // namespace ada::backend::cuda

// The CPU backend: oneDNN for matmuls in fp32, own kernels for everything that rounds and counts.
// Formats are emulated: a tensor's values lie exactly on its format's grid.
#pragma once
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/communicators.h"
#include "number/number_format.h"
#include "number/stats.h"

namespace ada::backend::cpu {

// threads: at least 1, the caller included. shared: with other processes; outlives the backend.
std::unique_ptr<Backend> MakeCpuBackend(int threads, const Communicators& shared = {});
// "oneDNN 2.6.3", for --version.
std::string LibraryVersion();

// The full statistics of rounding the `n` values x[i] * factor to `format`: the kernels and the
// order of additions are those of a run. `moments`, unless null: of the rounded values.
TensorStats CountRounding(const float* x, std::int64_t n, float factor, const NumberFormat& format,
                          TensorMoments* moments = nullptr);

}  // namespace ada::backend::cpu

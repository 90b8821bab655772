// The CPU backend: oneDNN for matmuls in fp32, own kernels for everything that rounds and counts.
// Formats are emulated: a tensor's values lie exactly on its format's grid.
#pragma once
#include <memory>

#include "backend/backend.h"
#include "backend/communicators.h"

namespace ada::backend::cpu {

// threads: at least 1, the caller included. shared: with other processes; outlives the backend.
std::unique_ptr<Backend> MakeCpuBackend(int threads, const Communicators& shared = {});
// "oneDNN 2.6.3", for --version.
std::string LibraryVersion();

}  // namespace ada::backend::cpu

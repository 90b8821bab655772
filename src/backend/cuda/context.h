// What every op of this backend works with: the stream, memory, the pass's values. An op's
// constructor allocates and reserves; its calls only launch.
#pragma once
#include <cstddef>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/diagnostics.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

struct PassValues;
class SideStream;
class Link;
class Matmuls;
class WeightRefresh;

struct Context {
  Stream& stream;
  Scratch& scratch;
  SharedBlocks& shared;
  // In backend memory: of the pass in which the work runs.
  const PassValues* pass;
  const DeviceOptions& options;
  Matmuls& matmuls;
  DiagnosticLines& diagnostic_lines;
  Memory& memory;
  WeightRefresh& weight_refresh;
  SideStream& side_stream;
  Link* link = nullptr;  // null: this process is alone

  // Allocates backend memory that lives as long as the backend; only for constructors. It is not
  // initialized, so it is for values that are written before they are read.
  template <class T>
  T* Allocate(std::int64_t count) const {
    return reinterpret_cast<T*>(memory.Allocate(static_cast<std::size_t>(count) * sizeof(T)));
  }
  // Zeroed in the stream's order: for counters and sums, which kernels leave as they found them.
  template <class T>
  T* AllocateZeroed(std::int64_t count) const {
    return reinterpret_cast<T*>(memory.AllocateZeroed(static_cast<std::size_t>(count) * sizeof(T)));
  }
  // A copy of host memory in memory of that kind; null if there is nothing to copy.
  template <class T>
  const T* Keep(const T* host, std::int64_t count) const {
    if (count == 0) return nullptr;
    T* kept = Allocate<T>(count);
    stream.CopyToDevice(reinterpret_cast<std::byte*>(kept), host,
                        static_cast<std::size_t>(count) * sizeof(T));
    return kept;
  }
  template <class T>
  const T* Keep(const std::vector<T>& host) const {
    return Keep(host.data(), static_cast<std::int64_t>(host.size()));
  }
  // The host's copy of what a pointer of a spec points to: rules, as they were when they were set.
  template <class T>
  T* Host(T* backend) const {
    return shared.Host(backend);
  }
};

// Bytes rounded up so that what follows is aligned for everything.
inline std::size_t Aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace ada::backend::cuda

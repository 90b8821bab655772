// What every op of this backend works with: the stream, memory, the pass's values; and who makes
// the op of a spec, and the backend itself, wherever its stream runs. An op's constructor allocates
// and reserves; its calls only launch.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/link.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/messages.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

struct PassValues;
class SideStream;
class Link;
class Matmuls;
class NextDecisions;
class RowChain;
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
  NextDecisions& next_decisions;
  RowChain& row_chain;
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

// --- Makers of ops ---

// Makes the op of a layer; null: its fusion is declined, as any with `recomputed` is. Batch norms
// compute the moments of x themselves (x_moments is not read); poolings throw ConfigError if a
// window has more positions than 16 bits can represent. Each other spec of OpSpec has a
// specialization, next to its op: a missing one is a linker error.
template <class Spec>
std::unique_ptr<Op> MakeOp(const Context& context, const Spec& spec);
// The op of a spec that has LayerValues (backend/values/layer_values.h).
std::unique_ptr<Op> MakeValueOp(const Context& context, const OpSpec& spec);

std::unique_ptr<InputOp> MakeInputOp(const Context&, const InputSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const ClassLossSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const PixelLossSpec&);
std::unique_ptr<LossOp> MakeLossOp(const Context&, const MultiboxLossSpec&);
std::unique_ptr<UpdateOp> MakeUpdateOp(const Context&, const UpdateRule&,
                                       const std::vector<UpdateSlot>&,
                                       const std::vector<WatchedRounding>&);
std::unique_ptr<AverageOp> MakeAverageOp(const Context&, const std::vector<AverageSlot>&);
// Works in a context that has a link.
std::unique_ptr<GradientSums> MakeGradientSumsOp(const Context&, const GradientSumsSpec&);

// A data set in device memory: bytes go there once, an order once an epoch, and one kernel makes
// each batch. Null where ResidentBytes is 0.
std::unique_ptr<ImageSource> MakeImageSourceOp(const Context&, const ImageSourceSpec&);
// Bytes of device memory that the data set would need; 0: that is more than half of the free
// memory, of which the rest is for the training step.
std::size_t ResidentBytes(const Context&, const ImageSourceSpec&);

// What the backend reports about itself; see Backend.
struct BackendWords {
  std::string describe, instruction_set;
};
// link: between this stream's device and those of other processes; null: there are none.
std::unique_ptr<Backend> MakeBackendOn(std::unique_ptr<Stream> stream, const BackendWords& words,
                                       const DeviceOptions& options,
                                       std::unique_ptr<Link> link = nullptr);

}  // namespace ada::backend::cuda

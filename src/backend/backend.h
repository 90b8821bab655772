// The contract between the graph and a backend. A backend allocates tensors and turns specs into
// ops: plans that are slow to make, cheap to call and bound to their tensors. Rounding points,
// formulas and counts are fixed by the specs (and src/README.md), the same in every backend.
//
// A backend works in the order in which it is called, but need not have worked when a call returns:
// the host reads what ops wrote after Fetch and Synchronize. Ops use only backend memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend/communicators.h"
#include "backend/op.h"
#include "backend/specs.h"
#include "backend/update.h"
#include "number/tensor.h"

namespace ada::backend {

// Memory that ops write and the host reads, or the reverse: counts, scales, decisions. On a CPU it
// is one block; elsewhere it is two, and Fetch and Send copy one to the other. A part of it (both
// pointers advanced by the same offset) is a valid SharedMemory too.
struct SharedMemory {
  std::byte* backend = nullptr;  // what specs point to
  std::byte* host = nullptr;     // what the host reads and writes
  std::size_t bytes = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string Describe() const = 0;  // "cpu (oneDNN 2.6.3, avx512, 2 threads)"
  virtual std::string InstructionSet() const = 0;
  // Lists what does not run in the fastest possible way among the ops made so far, one line each
  // with the reason: "layer conv1: on oneDNN in fp32: its channels are in groups".
  virtual std::vector<std::string> Diagnostics() const { return {}; }
  // The same for what runs so much slower that the user has to know: one line for each cause, which
  // names the layers.
  virtual std::vector<std::string> Warnings() const { return {}; }

  // Allocates `bytes` zeroed, 64-byte aligned bytes, which the backend owns until it is destroyed.
  virtual std::byte* Allocate(std::size_t bytes) = 0;
  virtual std::size_t allocated_bytes() const = 0;
  virtual void Upload(std::byte* to, const void* from, std::size_t bytes) = 0;
  virtual void Download(void* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void Synchronize() = 0;  // waits until all work asked for is done

  // Allocates memory of the backend and, where the host cannot access that, memory of the host as
  // well; both are zeroed, 64-byte aligned and owned by the backend.
  virtual SharedMemory AllocateShared(std::size_t bytes) {
    std::byte* memory = Allocate(bytes);
    return {memory, memory, bytes};
  }
  // Copies backend to host after the work asked for so far; readable after the next Synchronize.
  virtual void Fetch(const SharedMemory& /*memory*/) {}
  // Copies host to backend before any work asked for from now on. The host may overwrite its bytes
  // as soon as this returns.
  virtual void Send(const SharedMemory& /*memory*/) {}

  // Calls RefreshWeights of all these ops, which belong to this backend.
  virtual void RefreshWeights(const std::vector<Op*>& ops, const Pass& pass) {
    for (Op* op : ops) op->RefreshWeights(pass);
  }

  // Runs `body`, which may call Forward, Backward, FinishGradients and RefreshWeights (of ops or of
  // the backend) with `pass`, a GradientSums, and CheckWatched and Update of an UpdateOp, and has
  // no other effect that matters. For one `variant` and equal rows, first_row, whole_rows,
  // training, count, accumulate, bins and part of `pass` it must make the same calls in the same
  // order (an Update with plans of one kind): a backend may record what `body` launches and replay
  // that instead of calling `body`. `body` may call Run itself, with a `pass` of the same values:
  // the inner call becomes part of the recording, or is recorded separately where the whole cannot
  // be.
  virtual void Run(std::uint64_t /*variant*/, const Pass& /*pass*/,
                   const std::function<void()>& body) {
    body();
  }

  // Copies the first `rows` images of a tensor to `out` [rows * per_image] as fp32, in its own
  // layout (NHWC; weights as PyTorch's), without removing any scale that the values carry.
  virtual void Read(const Tensor& tensor, std::int64_t rows, float* out) = 0;

  // Returns the bytes of backend memory that MakeImageSource would need for such a source (whose
  // pointers may be null here), or 0 if it would decline.
  virtual std::size_t ImageSourceBytes(const ImageSourceSpec&) const { return 0; }
  // Returns null if it declines (not worth it, or too large): images then come from the host.
  virtual std::unique_ptr<ImageSource> MakeImageSource(const ImageSourceSpec&) { return nullptr; }

  // Whether the host should send images as bytes, not fp32: input ops then have a byte_feed.
  virtual bool takes_bytes() const { return false; }

  // The most values of one tensor that ops can number.
  virtual std::int64_t most_values() const { return std::numeric_limits<std::int64_t>::max(); }

  // Whether ops round to formats with a table (NumberFormat::table).
  virtual bool rounds_by_tables() const { return true; }

  // Returns the number of images in one reduction block; it depends on the shape only.
  virtual int BlockImages(const Shape& shape) const = 0;

  // Returns null to decline a fusion (`recomputed` is set, or a batch norm has an addend or a
  // relu): the graph then asks for a smaller one (first without `recomputed`) or for the parts.
  virtual std::unique_ptr<Op> Make(const OpSpec&) = 0;
  virtual std::unique_ptr<InputOp> MakeInput(const InputSpec&) = 0;
  virtual std::unique_ptr<LossOp> MakeLoss(const LossSpec&) = 0;
  virtual std::unique_ptr<UpdateOp> MakeUpdate(const UpdateRule&, std::vector<UpdateSlot>,
                                               std::vector<WatchedRounding>) = 0;
  virtual std::unique_ptr<AverageOp> MakeAverage(std::vector<AverageSlot>) = 0;
  // Returns null if gradients are to be summed over processes on the host, between passes.
  virtual std::unique_ptr<GradientSums> MakeGradientSums(const GradientSumsSpec&) {
    return nullptr;
  }
};

}  // namespace ada::backend

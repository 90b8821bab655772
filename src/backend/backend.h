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
#include <memory>
#include <string>
#include <vector>

#include "backend/gradient_sums.h"
#include "backend/op.h"
#include "backend/specs.h"
#include "backend/update.h"
#include "core/tensor.h"

namespace ada::backend {

// What ops write and the host reads, or the other way round: counts, scales, decisions. One memory
// on a CPU; elsewhere two, of which Fetch and Send copy one over the other. A part of such memory
// (both pointers moved alike) is SharedMemory too.
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
  // What of the ops made so far runs otherwise than it best might, one line each, and why:
  // "layer conv1: on oneDNN in fp32: its channels are in groups".
  virtual std::vector<std::string> Diagnostics() const { return {}; }
  // The same where it runs so much slower that a user has to know: one line for one cause, which
  // names the layers.
  virtual std::vector<std::string> Warnings() const { return {}; }

  // Memory of `bytes` bytes, zeroed, 64-byte aligned, owned by the backend until it dies.
  virtual std::byte* Allocate(std::size_t bytes) = 0;
  virtual std::size_t allocated_bytes() const = 0;
  virtual void Upload(std::byte* to, const void* from, std::size_t bytes) = 0;
  virtual void Download(void* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void Synchronize() = 0;  // waits for all that was asked for

  // Memory of the backend and, where the host cannot see that, of the host; both zeroed, 64-byte
  // aligned and owned by the backend.
  virtual SharedMemory AllocateShared(std::size_t bytes) {
    std::byte* memory = Allocate(bytes);
    return {memory, memory, bytes};
  }
  // Backend to host, after the work asked for so far; to be read after the next Synchronize.
  virtual void Fetch(const SharedMemory& /*memory*/) {}
  // Host to backend, before the work asked for from now on. The host's bytes may change at once
  // when it returns.
  virtual void Send(const SharedMemory& /*memory*/) {}

  // RefreshWeights of all these ops, which are this backend's.
  virtual void RefreshWeights(const std::vector<Op*>& ops, const Pass& pass) {
    for (Op* op : ops) op->RefreshWeights(pass);
  }

  // Runs `body`, which calls Forward, Backward, FinishGradients and RefreshWeights of ops (or the
  // backend's) with `pass`, a GradientSums, and Look and Update of an UpdateOp, and does nothing
  // else that matters. For one `variant` and equal rows, first_row, whole_rows, training, count,
  // accumulate, bins and part of `pass` it calls the same ops in the same order (an Update with
  // plans of one kind): a backend may keep what it launched and launch that again instead of
  // calling `body`. `body` may call Run as well, with a `pass` of the same values: that is part of
  // what is kept, or is kept by itself where the whole cannot be.
  virtual void Run(std::uint64_t /*variant*/, const Pass& /*pass*/,
                   const std::function<void()>& body) {
    body();
  }

  // The first `rows` images of a tensor of the backend's, as fp32 in its own order (NHWC; the bytes
  // of weights lie as PyTorch's), with whatever scale it carries. `out`: rows * per_image values.
  virtual void Read(const Tensor& tensor, std::int64_t rows, float* out) = 0;

  // Backend memory that MakeImageSource would take for such a source (of which pointers may be
  // null); 0: it declines.
  virtual std::size_t ImageSourceBytes(const ImageSourceSpec&) const { return 0; }
  // Null: declined (this is not worth it, or does not fit); images come from the host.
  virtual std::unique_ptr<ImageSource> MakeImageSource(const ImageSourceSpec&) { return nullptr; }

  // Whether images from the host are better brought as bytes: input ops have a byte_feed.
  virtual bool takes_bytes() const { return false; }

  // Images in one reduction block of tensors of this shape: fixed by the shape alone.
  virtual int BlockImages(const Shape& shape) const = 0;

  // Null where `recomputed` is set, or a batch norm has an addend or a relu: this fusion is
  // declined; the graph then asks for less of it (first without `recomputed`) or for the parts.
  virtual std::unique_ptr<Op> Make(const OpSpec&) = 0;
  virtual std::unique_ptr<InputOp> MakeInput(const InputSpec&) = 0;
  virtual std::unique_ptr<LossOp> MakeLoss(const LossSpec&) = 0;
  virtual std::unique_ptr<UpdateOp> MakeUpdate(const UpdateRule&, std::vector<UpdateSlot>,
                                               std::vector<WatchedRounding>) = 0;
  virtual std::unique_ptr<AverageOp> MakeAverage(std::vector<AverageSlot>) = 0;
  // Null: gradients are summed over processes on the host, between passes.
  virtual std::unique_ptr<GradientSums> MakeGradientSums(const GradientSumsSpec&) {
    return nullptr;
  }
};

}  // namespace ada::backend

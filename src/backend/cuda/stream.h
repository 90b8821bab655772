// The queue in which a backend's work lies: kernels, copies and fills run in the order in which
// they were asked for. DeviceStream makes it of CUDA's runtime, HostStream of plain loops.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "backend/cuda/switches.h"

struct CUstream_st;  // cudaStream_t is a pointer to it
struct CUevent_st;   // cudaEvent_t likewise

namespace ada::backend::cuda {

class Trace;

// Work that was asked for once and is kept to be run again.
class Recording {
 public:
  virtual ~Recording() = default;
  // The same kernels and copies with the same arguments, in the stream's order.
  virtual void Replay() = 0;
};

// A place in the order of a stream or copy stream. Marked while its stream records, it is one of
// the recording: to be waited for by a stream, in the same recording.
class Event {
 public:
  virtual ~Event() = default;
  // The place is here: after all work that was asked for.
  virtual void Mark() = 0;
  // Waits for the work before the place that was marked last; never marked: returns at once.
  // Throws DeviceError where some of it failed.
  virtual void Wait() = 0;
  // CUDA's handle; null on the host executor.
  virtual CUevent_st* handle() const = 0;
};

// Copies to the device in an order of their own, at the same time as a stream's work.
class CopyStream {
 public:
  virtual ~CopyStream() = default;
  // `from` is of AllocateOnHost and is read when its turn has come.
  virtual void CopyToDevice(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // Copies asked for from now on come after the place that `event`, of the stream, marked last.
  virtual void WaitFor(Event& event) = 0;
  virtual std::unique_ptr<Event> MakeEvent() = 0;
};

class Stream {
 public:
  explicit Stream(const CudaSwitches& switches) : switches_(switches) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  // What whoever asks for work here does without; sides have the same.
  const CudaSwitches& switches() const { return switches_; }
  // Where launches note when they ran (trace.h), and as which stream's; null: nowhere.
  Trace* trace() const { return trace_; }
  int traced_as() const { return traced_as_; }
  void set_trace(Trace* trace, int as) { trace_ = trace, traced_as_ = as; }

  // `from` is copied before this returns, for which the device may have to be waited for; memory of
  // AllocateOnHost is copied later, in the stream's order, without anybody's waiting (memory.h).
  virtual void CopyToDevice(std::byte* to, const void* from, std::size_t bytes) = 0;
  // `to` holds the bytes after Synchronize. Does not wait where `to` is of AllocateOnHost.
  virtual void CopyToHost(void* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void Copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void Zero(std::byte* to, std::size_t bytes) = 0;
  // Waits for all work. Throws DeviceError where some of it failed.
  virtual void Synchronize() = 0;

  // Memory is 256-byte aligned and freed only by Free and FreeOnHost. Throws DeviceError if there
  // is not enough. It is not initialized; with switches().poison it is filled with NaN.
  virtual std::byte* Allocate(std::size_t bytes) = 0;
  // Zeroed in the stream's order.
  virtual std::byte* AllocateZeroed(std::size_t bytes) = 0;
  virtual void Free(std::byte* block) noexcept = 0;
  // Host memory that the device reads and writes without the host's help; zeroed.
  virtual std::byte* AllocateOnHost(std::size_t bytes) = 0;
  virtual void FreeOnHost(std::byte* block) noexcept = 0;
  // How much Allocate has left, as far as is known.
  virtual std::size_t FreeBytes() const = 0;

  virtual std::unique_ptr<Event> MakeEvent() = 0;
  virtual std::unique_ptr<CopyStream> MakeCopyStream() = 0;
  // Another queue of the same device and memory, which ends before this does. Its work runs at the
  // same time as this one's. It records with this one: while this records, its work has to come
  // after a place that this has marked meanwhile, and this has to wait for what comes of it before
  // it ends.
  virtual std::unique_ptr<Stream> MakeSide() = 0;
  // Work asked for from now on comes after the place that `event`, of a copy stream or another
  // stream, marked last. The event is not a copy stream's while this stream records.
  virtual void WaitFor(Event& event) = 0;

  // Keeps what `body` asks for instead of doing it. `body` may launch, Copy, Zero and
  // CopyToHost to memory of AllocateOnHost.
  virtual std::unique_ptr<Recording> Record(const std::function<void()>& body) = 0;

  // CUDA's handle; null on the host executor.
  virtual CUstream_st* handle() const = 0;
  // The host executor's way to launch: `work(reverse)` is run now, or at each replay where this
  // records. `reverse`: threads and blocks are to take their turns backwards.
  virtual void Run(std::string_view kernel, std::function<void(bool reverse)> work) = 0;

 private:
  const CudaSwitches switches_;
  Trace* trace_ = nullptr;
  int traced_as_ = 0;
};

// What poisoned memory is full of: NaN in fp16, bf16, fp32 and double, and numbers that are no
// index.
inline constexpr int kPoison = 0xff;

}  // namespace ada::backend::cuda

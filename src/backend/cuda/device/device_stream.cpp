// See device_stream.h.
#include "backend/cuda/device/device_stream.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "backend/cuda/launch.h"
#include "backend/cuda/messages.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// Whether the work is done, from the result of cuda...Query. "Not ready" stays the last error,
// which the next launch would report, so it is cleared.
bool IsDone(cudaError_t status, const char* doing) {
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  CheckCuda(status, doing);
  return true;
}

// Without timing, which makes marking and waiting cheaper.
cudaEvent_t MakePlace() {
  cudaEvent_t event = nullptr;
  CheckCuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  return event;
}

// patience: DeviceStream's, at the time of waiting. The event may be recorded repeatedly; waiting
// refers to the last time.
class DeviceEvent final : public Event {
 public:
  DeviceEvent(cudaStream_t stream, const DeviceStream::Patience& patience)
      : stream_(stream), patience_(patience), event_(MakePlace()) {}
  ~DeviceEvent() override { cudaEventDestroy(event_); }
  DeviceEvent(const DeviceEvent&) = delete;
  void Mark() override { CheckCuda(cudaEventRecord(event_, stream_), "marking an event"); }
  void Wait() override {
    if (patience_ == nullptr)
      return CheckCuda(cudaEventSynchronize(event_), "waiting for an event");
    patience_([this] { return IsDone(cudaEventQuery(event_), "waiting for an event"); });
  }
  CUevent_st* handle() const override { return event_; }

 private:
  cudaStream_t stream_;
  const DeviceStream::Patience& patience_;
  cudaEvent_t event_;
};

// It does not wait for CUDA's default stream, nor that one for it.
cudaStream_t MakeStream() {
  cudaStream_t stream = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  return stream;
}
void WaitOn(cudaStream_t stream, const Event& event) {
  CheckCuda(cudaStreamWaitEvent(stream, event.handle(), 0), "letting a stream wait");
}
// Enqueued, not executed: the caller must keep `from` alive until the copy has been made.
void CopyOn(cudaStream_t stream, std::byte* to, const void* from, std::size_t bytes) {
  CheckCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream),
            "copying to the device");
}
// Whether a device can copy from there by itself, at any time. Memory that CUDA does not know is
// pageable.
bool IsPinned(const void* from) {
  cudaPointerAttributes attributes{};
  CheckCuda(cudaPointerGetAttributes(&attributes, from), "asking where memory lies");
  return attributes.type != cudaMemoryTypeUnregistered;
}

// A separate stream, so that copies overlap with kernels; only events define an order between the
// two.
class DeviceCopyStream final : public CopyStream {
 public:
  explicit DeviceCopyStream(const DeviceStream::Patience& patience)
      : stream_(MakeStream()), patience_(patience) {}
  ~DeviceCopyStream() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  DeviceCopyStream(const DeviceCopyStream&) = delete;
  void CopyToDevice(std::byte* to, const std::byte* from, std::size_t bytes) override {
    CopyOn(stream_, to, from, bytes);
  }
  void WaitFor(Event& event) override { WaitOn(stream_, event); }
  std::unique_ptr<Event> MakeEvent() override {
    return std::make_unique<DeviceEvent>(stream_, patience_);
  }

 private:
  cudaStream_t stream_;
  const DeviceStream::Patience& patience_;
};

// The message gives the requested bytes, those of this stream, and those of the device.
[[noreturn]] void ThrowOutOfMemory(std::size_t wanted, std::size_t allocated) {
  std::size_t free = 0, total = 0;
  int index = 0;
  cudaGetLastError();
  cudaGetDevice(&index);
  cudaMemGetInfo(&free, &total);
  throw DeviceError(OutOfMemoryText(index, {wanted, allocated, free, total}));
}

}  // namespace

// Names the operation, because CUDA's own message seldom does.
void CheckCuda(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that does not last is told once
  throw DeviceError("CUDA, " + std::string(doing) + ": " + cudaGetErrorString(status));
}

// A thread has one current device, the one that was chosen last.
// A CUDA graph, made executable once; a replay is one launch for a whole pass. The stream outlives
// it.
class DeviceStream::Graph final : public Recording {
 public:
  // Throws DeviceError. What a launch needs is on the device then: a device that has no memory for
  // it says so here and not at the first replay, where it would end the run.
  Graph(DeviceStream& stream, cudaGraph_t graph) : stream_(stream) {
    cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    CheckCuda(status, "preparing a recorded step");
    status = cudaGraphUpload(executable_, stream_.stream_);
    if (status != cudaSuccess) Destroy();
    CheckCuda(status, "putting a recorded step on the device");
    stream_.graphs_.push_back(this);
  }
  ~Graph() override {
    Destroy();
    std::erase(stream_.graphs_, this);
  }
  Graph(const Graph&) = delete;
  void Replay() override {
    if (executable_ == nullptr) throw DeviceError("a recorded step was destroyed after an error");
    CheckCuda(cudaGraphLaunch(executable_, stream_.stream_), "launching a recorded step");
  }
  // One that runs at present is not waited for: CUDA frees it at its end.
  void Destroy() noexcept {
    if (executable_ != nullptr) cudaGraphExecDestroy(std::exchange(executable_, nullptr));
  }

 private:
  DeviceStream& stream_;
  cudaGraphExec_t executable_ = nullptr;
};

void DeviceStream::DestroyGraphs() noexcept {
  for (Graph* graph : graphs_) graph->Destroy();
}

DeviceStream::DeviceStream(int index, const CudaSwitches& switches)
    : Stream(switches), index_(index) {
  CheckCuda(cudaSetDevice(index), "choosing the device");
  stream_ = MakeStream();
}

// Work that is still queued may use the memory that is freed next.
DeviceStream::~DeviceStream() {
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

// CUDA may still be reading pageable memory when the call returns; its owner need not live so long.
void DeviceStream::CopyToDevice(std::byte* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  CopyOn(stream_, to, from, bytes);
  if (!IsPinned(from)) Synchronize();
}

// Into pageable memory the call itself may wait.
void DeviceStream::CopyToHost(void* to, const std::byte* from, std::size_t bytes) {
  CheckCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_),
            "copying from the device");
}

void DeviceStream::Copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  CheckCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_),
            "copying on the device");
}

void DeviceStream::Fill(std::byte* to, int byte, std::size_t bytes) {
  CheckCuda(cudaMemsetAsync(to, byte, bytes, stream_), "filling memory");
}

void DeviceStream::Zero(std::byte* to, std::size_t bytes) { Fill(to, 0, bytes); }

// With patience the host polls, so that it can notice that another process is gone.
void DeviceStream::Synchronize() {
  constexpr char kDoing[] = "waiting for the work of a step";
  if (patience_ == nullptr) return CheckCuda(cudaStreamSynchronize(stream_), kDoing);
  patience_([&] { return IsDone(cudaStreamQuery(stream_), kDoing); });
}

// Freeing waits for all work of the device, without anybody's patience.
void DeviceStream::WaitToFree() noexcept {
  try {
    if (patience_ != nullptr) Synchronize();
  } catch (const DeviceError&) {  // reported to the next caller that waits for the stream
  }
}

// No bytes have an address all the same.
std::byte* DeviceStream::AllocateAsItIs(std::size_t bytes) {
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, std::max<std::size_t>(bytes, 1));
  if (status == cudaErrorMemoryAllocation) ThrowOutOfMemory(bytes, allocated_);
  CheckCuda(status, "allocating memory");
  allocated_ += bytes;
  return static_cast<std::byte*>(block);
}

// Poison is filled in on the device, in the stream's order: who reads memory before writing it gets
// NaN.
std::byte* DeviceStream::Allocate(std::size_t bytes) {
  std::byte* const block = AllocateAsItIs(bytes);
  if (switches().poison) Fill(block, kPoison, bytes);
  return block;
}

std::byte* DeviceStream::AllocateZeroed(std::size_t bytes) {
  std::byte* const block = AllocateAsItIs(bytes);
  Zero(block, bytes);
  return block;
}

void DeviceStream::Free(std::byte* block) noexcept {
  WaitToFree();
  cudaFree(block);
}

// Pinned memory: the device reads and writes it by itself.
std::byte* DeviceStream::AllocateOnHost(std::size_t bytes) {
  void* block = nullptr;
  CheckCuda(cudaMallocHost(&block, std::max<std::size_t>(bytes, 1)),
            "allocating memory of the host that the device can reach");
  std::memset(block, 0, bytes);
  return static_cast<std::byte*>(block);
}

void DeviceStream::FreeOnHost(std::byte* block) noexcept {
  WaitToFree();
  cudaFreeHost(block);
}

std::size_t DeviceStream::FreeBytes() const {
  std::size_t free = 0, total = 0;
  CheckCuda(cudaMemGetInfo(&free, &total), "asking for free memory");
  return free;
}

std::unique_ptr<Event> DeviceStream::MakeEvent() {
  return std::make_unique<DeviceEvent>(stream_, patience_);
}

std::unique_ptr<CopyStream> DeviceStream::MakeCopyStream() {
  return std::make_unique<DeviceCopyStream>(patience_);
}

// It has no patience: its work is waited for through this stream.
std::unique_ptr<Stream> DeviceStream::MakeSide() {
  return std::make_unique<DeviceStream>(index_, switches());
}

void DeviceStream::WaitFor(Event& event) { WaitOn(stream_, event); }

// Captures the work of `body`, including that of a side stream that waits for this one. If it
// throws, the capture is ended first; otherwise the stream could not be used again.
std::unique_ptr<Recording> DeviceStream::Record(const std::function<void()>& body) {
  cudaGraph_t graph = nullptr;
  CheckCuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording a step");
  try {
    body();
  } catch (...) {
    if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  CheckCuda(cudaStreamEndCapture(stream_, &graph), "recording a step");
  return std::make_unique<Graph>(*this, graph);
}

// Only HostStream has this way to launch: such work is a plain loop over host memory.
void DeviceStream::Run(std::string_view kernel, std::function<void(bool)> /*work*/) {
  throw InternalError("the host executor's " + std::string(kernel) + " on a device");
}

// Code made from PTX of an older architecture does not wait. Drivers before 12.3 do not record such
// launches.
// Asked once for each kernel, at its first launch.
bool WaitsByItself(const void* entry) {
  cudaFuncAttributes code{};
  int driver = 0;
  const bool known = cudaFuncGetAttributes(&code, entry) == cudaSuccess &&
                     cudaDriverGetVersion(&driver) == cudaSuccess;
  if (!known) cudaGetLastError();  // the launch says so
  return known && code.ptxVersion >= 90 && driver >= 12030;
}

// A launch returns no status: its error is the runtime's last one.
void CheckLaunch(std::string_view kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaErrorNoKernelImageForDevice)
    throw DeviceError(
        "this program has no kernels for this GPU; build it with tools/build.sh --cuda "
        "--cuda-arch and the GPU's number (90 for sm_90)");
  CheckCuda(status, ("launching " + std::string(kernel)).c_str());
}

}  // namespace ada::backend::cuda

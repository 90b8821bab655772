// The stream on a GPU: CUDA's runtime, whose errors are this program's own.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

// Throws DeviceError "CUDA, <doing>: <CUDA's words>" unless all is well.
void CheckCuda(cudaError_t status, const char* doing);

// Used by one thread at a time. An error of work that was launched before may surface in any later
// call, which throws it.
class DeviceStream final : public Stream {
 public:
  // On device `index`, which becomes the calling thread's. Throws DeviceError.
  explicit DeviceStream(int index, const CudaSwitches& switches = {});
  ~DeviceStream() override;
  void CopyToDevice(std::byte* to, const void* from, std::size_t bytes) override;
  void CopyToHost(void* to, const std::byte* from, std::size_t bytes) override;
  void Copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void Zero(std::byte* to, std::size_t bytes) override;
  void Synchronize() override;
  std::byte* Allocate(std::size_t bytes) override;
  std::byte* AllocateZeroed(std::size_t bytes) override;
  void Free(std::byte* block) noexcept override;
  std::byte* AllocateOnHost(std::size_t bytes) override;
  void FreeOnHost(std::byte* block) noexcept override;
  std::size_t FreeBytes() const override;
  std::unique_ptr<Event> MakeEvent() override;
  std::unique_ptr<CopyStream> MakeCopyStream() override;
  std::unique_ptr<Stream> MakeSide() override;
  void WaitFor(Event& event) override;
  std::unique_ptr<Recording> Record(const std::function<void()>& body) override;
  CUstream_st* handle() const override { return stream_; }
  void Run(std::string_view kernel, std::function<void(bool reverse)> work) override;

  // How the host waits until the device has done something: patience(done) returns when done() is
  // true, and may throw. Null: CUDA waits.
  using Patience = std::function<void(const std::function<bool()>& done)>;
  void SetPatience(Patience patience) { patience_ = std::move(patience); }

  // Destroys all that was recorded and is still there: to replay it throws from then on. For NCCL,
  // which does not abort a communicator as long as there is a graph that holds its messages.
  void DestroyGraphs() noexcept;

 private:
  class Graph;
  void WaitToFree() noexcept;
  std::byte* AllocateAsItIs(std::size_t bytes);
  void Fill(std::byte* to, int byte, std::size_t bytes);

  int index_;
  CUstream_st* stream_ = nullptr;
  Patience patience_;
  std::size_t allocated_ = 0;
  std::vector<Graph*> graphs_;  // that were recorded and are still there
};

}  // namespace ada::backend::cuda

// The host executor's stream: backend memory is host memory, kernels run when they are launched.
// As strict as a device: what is copied to the host is there after Synchronize only, memory of
// AllocateOnHost is read when the next work needs it, what a lane copies arrives when somebody
// waits for it, what is done aside is done when it is joined, and what cannot be recorded throws.
#pragma once
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

class HostStream final : public Stream {
 public:
  ~HostStream() override;
  void CopyToDevice(std::byte* to, const void* from, std::size_t bytes) override;
  void CopyToHost(void* to, const std::byte* from, std::size_t bytes) override;
  void Copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void Zero(std::byte* to, std::size_t bytes) override;
  void Synchronize() override;
  std::byte* Allocate(std::size_t bytes) override;
  void Free(std::byte* block) noexcept override;
  std::byte* AllocateOnHost(std::size_t bytes) override;
  void FreeOnHost(std::byte* block) noexcept override;
  std::size_t FreeBytes() const override;
  std::unique_ptr<Event> MakeEvent() override;
  std::unique_ptr<Lane> MakeLane() override;
  void WaitFor(Event& event) override;
  void Aside(const std::function<void()>& body) override;
  void JoinAside() override;
  std::unique_ptr<Recording> Record(const std::function<void()>& body) override;
  CUstream_st* handle() const override { return nullptr; }
  void Run(std::string_view kernel, std::function<void(bool reverse)> work) override;

  // Whether nothing was written behind the end of any block so far.
  bool guards_intact() const;
  // Threads and blocks run backwards from now on: a kernel whose results change has a race.
  void set_reverse(bool reverse) { reverse_ = reverse; }
  // From now on the names of all work are kept, replays included: kernels, "copy", "zero",
  // "to device", "to host", "replay"; "lane: to device", "lane: waits", "waits for a lane";
  // "joins", before the names of what was aside.
  void KeepNames() { keeps_names_ = true; }
  std::vector<std::string> TakeNames();

 private:
  struct Work {
    std::string name;
    std::function<void(bool reverse)> run;
    bool aside = false;
  };
  class Kept;
  class Place;
  class HostLane;
  struct Leaving {  // on its way from memory of AllocateOnHost, not yet read
    std::byte* to;
    const void* from;
    std::size_t bytes;
  };
  struct Arriving {  // on its way to the host
    void* to;
    std::vector<std::byte> bytes;
  };

  void KeepName(std::string_view name);
  bool IsOnHost(const void* at) const;
  void Leave();        // reads all that is leaving
  void Do(Work work);  // or keeps it, where this records
  void DoNow(const Work& work);

  bool reverse_ = false, keeps_names_ = false;
  bool aside_ = false;           // work that is asked for is done aside
  bool joined_ = true;           // nothing was asked for aside since the last JoinAside
  std::vector<Work> set_aside_;  // and not joined yet
  std::vector<std::string> names_;
  std::vector<Work>* recorded_ = nullptr;  // where this records
  std::vector<Leaving> leaving_;
  std::vector<Arriving> arriving_;
  std::map<std::byte*, std::size_t> blocks_;  // and their bytes
  std::set<std::byte*> on_host_;              // those of AllocateOnHost
};

}  // namespace ada::backend::cuda

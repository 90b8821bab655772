// The stream of the host executor: backend memory is host memory, and kernels run when they are
// launched. It is as strict as a device: copies to the host arrive only at Synchronize, memory of
// AllocateOnHost is read when the next work needs it, work of copy streams and side streams is done
// only when it is waited for, and what cannot be recorded throws.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

class HostStream final : public Stream {
 public:
  // By default memory that is not promised to be zero is filled with NaN.
  HostStream() : HostStream(Poisoning()) {}
  explicit HostStream(const CudaSwitches& switches) : Stream(switches) {}
  ~HostStream() override;
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
  CUstream_st* handle() const override { return nullptr; }
  void Run(std::string_view kernel, std::function<void(bool reverse)> work) override;

  // Whether nothing was written after the end of any block so far.
  bool guards_intact() const;
  // Threads and blocks run backwards from now on: a kernel whose results change has a race.
  void set_reverse(bool reverse) { reverse_ = reverse; }
  // Late: work is done when it is waited for; otherwise when it is launched. If two streams
  // fail to wait for each other, the late one shows the error. Initially only side streams are
  // late.
  void set_late(bool main, bool sides) {
    late_ = main, sides_late_ = sides;
    for (HostStream* side : sides_) side->late_ = sides;
  }
  // From now on the names of all work are kept, replays included: kernels, "copy", "zero",
  // "to device", "to host", "replay"; "lane: to device", "lane: waits", "waits"; a side's among
  // them.
  void KeepNames() { keeps_names_ = true; }
  // Calls told("recording") and told("side") when one of these ends: a device's recording must not
  // outlive the streams whose work it contains.
  using TellsEnd = std::function<void(std::string_view what)>;
  void TellEnds(TellsEnd told) { tells_end_ = std::move(told); }
  std::vector<std::string> TakeNames();

 private:
  struct Work {
    std::string name;
    std::function<void(bool reverse)> run;
  };
  class Kept;
  class HostEvent;
  class Place;
  class HostCopyStream;
  struct Arriving {  // on its way to the host
    void* to;
    std::vector<std::byte> bytes;
  };
  // What was asked for while a main stream records, of it and of its sides, to be asked for again.
  struct Recorded {
    std::vector<std::function<void()>> asked;
    bool frees = false;  // memory was freed meanwhile
  };

  explicit HostStream(HostStream& main)
      : Stream(main.switches()), main_(&main), late_(main.sides_late_) {}
  static CudaSwitches Poisoning() {
    CudaSwitches switches;
    switches.poison = true;
    return switches;
  }
  std::byte* AllocateFull(std::size_t bytes, int byte);
  HostStream& root() { return main_ != nullptr ? *main_ : *this; }
  Recorded* recorded() { return root().recorded_; }
  void KeepName(std::string_view name);
  void TellEnd(std::string_view what);
  bool IsOnHost(const void* at);
  void Ask(Work work);              // or keeps it, where this records
  void Push(Work work);             // done now, unless this is late
  void DoUpTo(std::int64_t place);  // so much of what was asked for
  void EndAll() noexcept;           // of this and of its sides; nothing more where that fails
  void Drop();                      // what was not done

  HostStream* main_ = nullptr;  // of a side
  bool reverse_ = false, keeps_names_ = false, late_ = false, sides_late_ = true;
  TellsEnd tells_end_;
  std::vector<std::string> names_;
  Recorded* recorded_ = nullptr;  // where this records
  std::deque<Work> waiting_;      // asked for and not done
  std::int64_t asked_ = 0, done_ = 0;
  bool doing_ = false;
  // In a recording: this side's work comes after a place of it; and what of it was asked for and
  // waited for.
  bool forked_ = false;
  std::int64_t recorded_work_ = 0, joined_work_ = 0;
  std::vector<HostStream*> sides_;
  std::vector<Arriving> arriving_;
  std::map<std::byte*, std::size_t> blocks_;  // and their bytes
  std::set<std::byte*> on_host_;              // those of AllocateOnHost
};

}  // namespace ada::backend::cuda

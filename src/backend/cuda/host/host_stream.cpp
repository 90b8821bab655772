// The host executor's stream; see host_stream.h.
#include "backend/cuda/host/host_stream.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <utility>

#include "backend/cuda/backend_on_stream.h"
#include "backend/cuda/host/host_link.h"
#include "core/error.h"

namespace ada::backend::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
// Bytes of every value behind a block, where the next might begin on a device.
constexpr std::byte kGuard{0xa5};

// `bytes` and at least as many guards as an alignment has.
std::size_t WholeBytes(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
}

std::byte* Zeroed(std::size_t bytes) {
  void* block = std::aligned_alloc(kAlignment, WholeBytes(bytes));
  if (block == nullptr) throw DeviceError("the host executor's memory is used up");
  auto* memory = static_cast<std::byte*>(block);
  std::memset(memory, 0, bytes);
  std::fill(memory + bytes, memory + WholeBytes(bytes), kGuard);
  return memory;
}

}  // namespace

class HostStream::Kept final : public Recording {
 public:
  Kept(HostStream& stream, std::vector<Work> work) : stream_(stream), work_(std::move(work)) {}
  void Replay() override {
    stream_.KeepName("replay");
    for (const Work& work : work_) stream_.DoNow(work);
  }

 private:
  HostStream& stream_;
  std::vector<Work> work_;
};

// Work is done when it is asked for, but for what is leaving.
class HostStream::Place final : public Event {
 public:
  explicit Place(HostStream& stream) : stream_(stream) {}
  void Mark() override { ADA_CHECK(stream_.recorded_ == nullptr); }
  void Wait() override { stream_.Leave(); }
  CUevent_st* handle() const override { return nullptr; }

 private:
  HostStream& stream_;
};

// Copies are as late as they may be. That none comes too early cannot be seen here, where the
// stream's work is always done: names tell what was waited for.
class HostStream::HostLane final : public Lane {
 public:
  explicit HostLane(HostStream& stream) : stream_(stream) {}
  void CopyToDevice(std::byte* to, const std::byte* from, std::size_t bytes) override {
    ADA_CHECK(stream_.recorded_ == nullptr && stream_.IsOnHost(from));
    stream_.KeepName("lane: to device");
    waiting_.push_back({to, from, bytes});
    ++asked_;
  }
  void WaitFor(Event&) override {
    ADA_CHECK(stream_.recorded_ == nullptr);
    stream_.KeepName("lane: waits");
  }
  std::unique_ptr<Event> MakeEvent() override { return std::make_unique<End>(*this); }

 private:
  class End final : public Event {
   public:
    explicit End(HostLane& lane) : lane_(lane) {}
    void Mark() override { marked_ = lane_.asked_; }
    void Wait() override { lane_.CopyUpTo(marked_); }
    CUevent_st* handle() const override { return nullptr; }

   private:
    HostLane& lane_;
    std::int64_t marked_ = 0;
  };

  void CopyUpTo(std::int64_t marked) {
    for (; copied_ < marked; ++copied_, waiting_.pop_front())
      std::memcpy(waiting_.front().to, waiting_.front().from, waiting_.front().bytes);
  }

  HostStream& stream_;
  std::deque<Leaving> waiting_;
  std::int64_t asked_ = 0, copied_ = 0;
};

HostStream::~HostStream() {
  for (const auto& [block, bytes] : blocks_) std::free(block);
}

void HostStream::CopyToDevice(std::byte* to, const void* from, std::size_t bytes) {
  ADA_CHECK(recorded_ == nullptr);
  KeepName("to device");
  leaving_.push_back({to, from, bytes});
  if (!IsOnHost(from)) Leave();
}

bool HostStream::IsOnHost(const void* at) const {
  const auto* byte = static_cast<const std::byte*>(at);
  return std::any_of(on_host_.begin(), on_host_.end(), [&](std::byte* block) {
    return byte >= block && byte < block + blocks_.at(block);
  });
}

void HostStream::Leave() {
  for (const Leaving& leaving : leaving_)
    if (leaving.bytes > 0) std::memcpy(leaving.to, leaving.from, leaving.bytes);
  leaving_.clear();
}

void HostStream::CopyToHost(void* to, const std::byte* from, std::size_t bytes) {
  Do({"to host", [this, to, from, bytes](bool) {
        arriving_.push_back({to, std::vector<std::byte>(from, from + bytes)});
      }});
}

void HostStream::Copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  Do({"copy", [to, from, bytes](bool) {
        if (bytes > 0) std::memmove(to, from, bytes);
      }});
}

void HostStream::Zero(std::byte* to, std::size_t bytes) {
  Do({"zero", [to, bytes](bool) {
        if (bytes > 0) std::memset(to, 0, bytes);
      }});
}

void HostStream::Synchronize() {
  ADA_CHECK(recorded_ == nullptr);
  Leave();
  for (const Arriving& arriving : arriving_)
    if (!arriving.bytes.empty())
      std::memcpy(arriving.to, arriving.bytes.data(), arriving.bytes.size());
  arriving_.clear();
}

std::byte* HostStream::Allocate(std::size_t bytes) {
  ADA_CHECK(recorded_ == nullptr);
  return blocks_.emplace(Zeroed(bytes), bytes).first->first;
}

void HostStream::Free(std::byte* block) noexcept {
  Leave();
  if (blocks_.erase(block) > 0) std::free(block);
}

std::byte* HostStream::AllocateOnHost(std::size_t bytes) {
  return *on_host_.insert(Allocate(bytes)).first;
}
void HostStream::FreeOnHost(std::byte* block) noexcept {
  Free(block);
  on_host_.erase(block);
}

std::size_t HostStream::FreeBytes() const { return std::numeric_limits<std::size_t>::max() / 2; }

std::unique_ptr<Event> HostStream::MakeEvent() { return std::make_unique<Place>(*this); }

std::unique_ptr<Lane> HostStream::MakeLane() { return std::make_unique<HostLane>(*this); }

void HostStream::WaitFor(Event& event) {
  ADA_CHECK(recorded_ == nullptr);
  KeepName("waits for a lane");
  event.Wait();
}

void HostStream::Aside(const std::function<void()>& body) {
  ADA_CHECK(!aside_);
  aside_ = true, joined_ = false;
  try {
    body();
  } catch (...) {
    aside_ = false;
    throw;
  }
  aside_ = false;
}

void HostStream::JoinAside() {
  Do({"joins", [this](bool reverse) {
        for (const Work& work : std::exchange(set_aside_, {})) {
          KeepName(work.name);
          work.run(reverse);
        }
      }});
  joined_ = true;
}

std::unique_ptr<Recording> HostStream::Record(const std::function<void()>& body) {
  ADA_CHECK(recorded_ == nullptr);
  std::vector<Work> work;
  recorded_ = &work;
  try {
    body();
  } catch (...) {
    recorded_ = nullptr;
    joined_ = true;
    throw;
  }
  recorded_ = nullptr;
  ADA_CHECK(joined_);
  return std::make_unique<Kept>(*this, std::move(work));
}

void HostStream::Run(std::string_view kernel, std::function<void(bool reverse)> work) {
  Do({std::string(kernel), std::move(work)});
}

bool HostStream::guards_intact() const {
  return std::all_of(blocks_.begin(), blocks_.end(), [](const auto& block) {
    const auto [memory, bytes] = block;
    return std::all_of(memory + bytes, memory + WholeBytes(bytes),
                       [](std::byte b) { return b == kGuard; });
  });
}

std::vector<std::string> HostStream::TakeNames() { return std::exchange(names_, {}); }

void HostStream::KeepName(std::string_view name) {
  if (keeps_names_) names_.emplace_back(name);
}

void HostStream::Do(Work work) {
  work.aside = aside_;
  if (recorded_ != nullptr)
    recorded_->push_back(std::move(work));
  else
    DoNow(work);
}

void HostStream::DoNow(const Work& work) {
  if (work.aside) {
    set_aside_.push_back(work);
    return;
  }
  KeepName(work.name);
  Leave();
  work.run(reverse_);
}

}  // namespace ada::backend::cuda

namespace ada::backend {

std::unique_ptr<Backend> MakeHostExecutedBackend(const DeviceOptions& options, Peers* peers) {
  auto stream = std::make_unique<cuda::HostStream>();
  std::unique_ptr<cuda::Link> link;
  if (peers != nullptr) link = std::make_unique<cuda::HostLink>(*stream, *peers);
  return cuda::MakeBackendOn(std::move(stream), {"cuda kernels on the host's processor", "host"},
                             options, std::move(link));
}

}  // namespace ada::backend

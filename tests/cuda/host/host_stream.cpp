// The host executor's stream; see host_stream.h.
#include "cuda/host/host_stream.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <limits>
#include <utility>

#include "backend/cuda/context.h"
#include "backend/cuda/launch.h"
#include "cuda/host/host_link.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
// Bytes of every value after a block, where the next might begin on a device.
constexpr std::byte kGuard{0xa5};

// `bytes` and at least as many guards as an alignment has.
std::size_t WholeBytes(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
}

std::byte* FullOf(int byte, std::size_t bytes) {
  void* block = std::aligned_alloc(kAlignment, WholeBytes(bytes));
  if (block == nullptr) throw DeviceError("the host executor's memory is used up");
  auto* memory = static_cast<std::byte*>(block);
  std::memset(memory, byte, bytes);
  std::fill(memory + bytes, memory + WholeBytes(bytes), kGuard);
  return memory;
}

}  // namespace

bool NoteKernel(const std::type_info& kernel) {
  if (const char* path = std::getenv("ADA_KERNEL_TRACE"))
    std::ofstream(path, std::ios::app) << kernel.name() << '\n';
  return true;
}

class HostStream::Kept final : public Recording {
 public:
  Kept(HostStream& stream, Recorded recorded) : stream_(stream), recorded_(std::move(recorded)) {}
  ~Kept() override { stream_.TellEnd("recording"); }
  Kept(const Kept&) = delete;
  void Replay() override {
    stream_.KeepName("replay");
    for (const auto& ask : recorded_.asked) ask();
  }

 private:
  HostStream& stream_;
  Recorded recorded_;
};

class HostStream::HostEvent : public Event {
 public:
  CUevent_st* handle() const override { return nullptr; }
  // Does what comes before the place that is marked now.
  virtual std::function<void()> Reach() const = 0;
  // A stream waits for it in a recording.
  virtual void WaitedForBy(HostStream&) {}
};

// A place of a stream.
class HostStream::Place final : public HostEvent {
 public:
  explicit Place(HostStream& stream) : stream_(stream) {}
  void Mark() override {
    if (Recorded* recorded = stream_.recorded()) {
      recorded->asked.push_back([this] { Mark(); });
      recording_ = recorded, recorded_work_ = stream_.recorded_work_;
      return;
    }
    place_ = stream_.asked_;
  }
  void Wait() override { stream_.DoUpTo(place_); }
  std::function<void()> Reach() const override {
    return [&stream = stream_, place = place_] { stream.DoUpTo(place); };
  }
  void WaitedForBy(HostStream& other) override {
    ADA_CHECK(recording_ == other.recorded());  // marked in the same recording
    if (stream_.main_ == nullptr) other.forked_ = true;
    stream_.joined_work_ = std::max(stream_.joined_work_, recorded_work_);
  }

 private:
  HostStream& stream_;
  std::int64_t place_ = 0;
  const Recorded* recording_ = nullptr;  // in which it was marked last
  std::int64_t recorded_work_ = 0;
};

// Copies are as late as they may be. That none comes too early shows where the stream is late.
class HostStream::HostCopyStream final : public CopyStream {
 public:
  explicit HostCopyStream(HostStream& stream) : stream_(stream) {}
  void CopyToDevice(std::byte* to, const std::byte* from, std::size_t bytes) override {
    ADA_CHECK(stream_.recorded() == nullptr && stream_.IsOnHost(from));
    stream_.KeepName("lane: to device");
    waiting_.push_back([=] { std::memcpy(to, from, bytes); });
    ++asked_;
  }
  void WaitFor(Event& event) override {
    ADA_CHECK(stream_.recorded() == nullptr);
    stream_.KeepName("lane: waits");
    waiting_.push_back(static_cast<HostEvent&>(event).Reach());
    ++asked_;
  }
  std::unique_ptr<Event> MakeEvent() override { return std::make_unique<End>(*this); }

 private:
  class End final : public HostEvent {
   public:
    explicit End(HostCopyStream& copy_stream) : copy_stream_(copy_stream) {}
    void Mark() override { marked_ = copy_stream_.asked_; }
    void Wait() override { copy_stream_.DoUpTo(marked_); }
    std::function<void()> Reach() const override {
      return [&copy_stream = copy_stream_, marked = marked_] { copy_stream.DoUpTo(marked); };
    }
    void WaitedForBy(HostStream&) override { throw InternalError("a recording waits for a lane"); }

   private:
    HostCopyStream& copy_stream_;
    std::int64_t marked_ = 0;
  };

  void DoUpTo(std::int64_t marked) {
    for (; done_ < marked; ++done_, waiting_.pop_front()) waiting_.front()();
  }

  HostStream& stream_;
  std::deque<std::function<void()>> waiting_;
  std::int64_t asked_ = 0, done_ = 0;
};

HostStream::~HostStream() {
  if (main_ == nullptr) {
    for (const auto& [block, bytes] : blocks_) std::free(block);
    return;
  }
  std::erase(main_->sides_, this);  // what nobody waited for is dropped
  main_->TellEnd("side");
}

// What lies in the host's own memory is read at once.
void HostStream::CopyToDevice(std::byte* to, const void* from, std::size_t bytes) {
  ADA_CHECK(recorded() == nullptr);
  KeepName("to device");
  const auto* first = static_cast<const std::byte*>(from);
  if (!IsOnHost(from)) {
    Push({"", [to, copy = std::vector<std::byte>(first, first + bytes)](bool) {
            std::copy(copy.begin(), copy.end(), to);
          }});
    return;
  }
  waiting_.push_back({"", [to, from, bytes](bool) { std::memcpy(to, from, bytes); }});
  ++asked_;
}

bool HostStream::IsOnHost(const void* at) {
  const auto* byte = static_cast<const std::byte*>(at);
  const HostStream& all = root();
  return std::any_of(all.on_host_.begin(), all.on_host_.end(), [&](std::byte* block) {
    return byte >= block && byte < block + all.blocks_.at(block);
  });
}

void HostStream::CopyToHost(void* to, const std::byte* from, std::size_t bytes) {
  // A device does not record copies to pageable memory.
  ADA_CHECK(recorded() == nullptr || IsOnHost(to));
  Ask({"to host", [this, to, from, bytes](bool) {
         arriving_.push_back({to, std::vector<std::byte>(from, from + bytes)});
       }});
}

void HostStream::Copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  Ask({"copy", [to, from, bytes](bool) {
         if (bytes > 0) std::memmove(to, from, bytes);
       }});
}

void HostStream::Zero(std::byte* to, std::size_t bytes) {
  Ask({"zero", [to, bytes](bool) {
         if (bytes > 0) std::memset(to, 0, bytes);
       }});
}

void HostStream::Synchronize() {
  ADA_CHECK(recorded() == nullptr);
  DoUpTo(asked_);
  for (const Arriving& arriving : arriving_)
    if (!arriving.bytes.empty())
      std::memcpy(arriving.to, arriving.bytes.data(), arriving.bytes.size());
  arriving_.clear();
}

std::byte* HostStream::AllocateFull(std::size_t bytes, int byte) {
  ADA_CHECK(recorded() == nullptr);
  return root().blocks_.emplace(FullOf(byte, bytes), bytes).first->first;
}
std::byte* HostStream::Allocate(std::size_t bytes) {
  return AllocateFull(bytes, switches().poison ? kPoison : 0);
}
std::byte* HostStream::AllocateZeroed(std::size_t bytes) { return AllocateFull(bytes, 0); }

void HostStream::Free(std::byte* block) noexcept {
  if (recorded() != nullptr) recorded()->frees = true;
  root().EndAll();
  if (root().blocks_.erase(block) > 0) std::free(block);
}

std::byte* HostStream::AllocateOnHost(std::size_t bytes) {
  return *root().on_host_.insert(AllocateZeroed(bytes)).first;
}
void HostStream::FreeOnHost(std::byte* block) noexcept {
  Free(block);
  root().on_host_.erase(block);
}

std::size_t HostStream::FreeBytes() const { return std::numeric_limits<std::size_t>::max() / 2; }

std::unique_ptr<Event> HostStream::MakeEvent() { return std::make_unique<Place>(*this); }

std::unique_ptr<CopyStream> HostStream::MakeCopyStream() {
  return std::make_unique<HostCopyStream>(*this);
}

std::unique_ptr<Stream> HostStream::MakeSide() {
  ADA_CHECK(main_ == nullptr);
  std::unique_ptr<HostStream> side(new HostStream(*this));
  sides_.push_back(side.get());
  return side;
}

void HostStream::WaitFor(Event& event) {
  auto& of = static_cast<HostEvent&>(event);
  if (Recorded* recorded = this->recorded()) {
    of.WaitedForBy(*this);
    recorded->asked.push_back([this, &event] { WaitFor(event); });
    return;
  }
  KeepName("waits");
  Push({"", [reach = of.Reach()](bool) { reach(); }});
}

std::unique_ptr<Recording> HostStream::Record(const std::function<void()>& body) {
  ADA_CHECK(main_ == nullptr && recorded_ == nullptr);
  Recorded recorded;
  recorded_ = &recorded;
  for (HostStream* side : sides_) {
    side->forked_ = false;
    side->recorded_work_ = side->joined_work_ = 0;
  }
  try {
    body();
    // A device refuses a recording whose sides go on after its end.
    for (const HostStream* side : sides_) ADA_CHECK(side->joined_work_ == side->recorded_work_);
    // Nor one in which memory is freed, which waits for the device.
    ADA_CHECK(!recorded.frees);
  } catch (...) {
    recorded_ = nullptr;
    throw;
  }
  recorded_ = nullptr;
  return std::make_unique<Kept>(*this, std::move(recorded));
}

void HostStream::Run(std::string_view kernel, std::function<void(bool reverse)> work) {
  Ask({std::string(kernel), std::move(work)});
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
  if (root().keeps_names_) root().names_.emplace_back(name);
}

void HostStream::TellEnd(std::string_view what) {
  if (tells_end_) tells_end_(what);
}

void HostStream::Ask(Work work) {
  if (Recorded* recorded = this->recorded()) {
    ADA_CHECK(main_ == nullptr || forked_);  // else a device would do it now
    ++recorded_work_;
    recorded->asked.push_back([this, work = std::move(work)] { Ask(work); });
    return;
  }
  KeepName(work.name);
  Push(std::move(work));
}

void HostStream::Push(Work work) {
  waiting_.push_back(std::move(work));
  ++asked_;
  if (!late_) DoUpTo(asked_);
}

void HostStream::DoUpTo(std::int64_t place) {
  if (done_ >= place) return;
  ADA_CHECK(!doing_);  // else two streams wait for each other
  doing_ = true;
  try {
    for (; done_ < place; ++done_) {
      const Work work = std::move(waiting_.front());
      waiting_.pop_front();
      work.run(root().reverse_);
    }
  } catch (...) {
    doing_ = false, ++done_;
    throw;
  }
  doing_ = false;
}

void HostStream::EndAll() noexcept {
  try {
    DoUpTo(asked_);
    for (HostStream* side : sides_) side->DoUpTo(side->asked_);
  } catch (...) {
    Drop();
    for (HostStream* side : sides_) side->Drop();
  }
}
void HostStream::Drop() {
  waiting_.clear();
  done_ = asked_;
}

}  // namespace ada::backend::cuda

namespace ada::backend {

std::unique_ptr<Backend> MakeHostExecutedBackend(const DeviceOptions& options,
                                                 const Communicators& communicators) {
  auto stream = std::make_unique<cuda::HostStream>(options.switches);
  std::unique_ptr<cuda::Link> link;
  if (communicators.hosts != nullptr)
    link = std::make_unique<cuda::HostLink>(*stream, communicators);
  const std::string words =
      "cuda kernels on the host's processor" + cuda::SwitchesText(options.switches);
  return cuda::MakeBackendOn(std::move(stream), {words, "host"}, options, std::move(link));
}

}  // namespace ada::backend

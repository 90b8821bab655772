// Training takes all its memory in the first steps: nothing is allocated, recorded or left behind
// from then on, however many steps follow.
#include <doctest/doctest.h>

#include "backend/cuda/context.h"
#include "compare/network_steps.h"
#include "cuda/matmul_lab.h"
#include "cuda/stream_lab.h"

namespace ada::backend::test {
namespace {

// Another stream, with a count of what was asked of it that stays.
class CountedStream final : public cuda::Stream {
 public:
  explicit CountedStream(std::unique_ptr<cuda::Stream> stream)
      : Stream(stream->switches()), stream_(std::move(stream)) {}
  void CopyToDevice(std::byte* to, const void* from, std::size_t bytes) override {
    stream_->CopyToDevice(to, from, bytes);
  }
  void CopyToHost(void* to, const std::byte* from, std::size_t bytes) override {
    stream_->CopyToHost(to, from, bytes);
  }
  void Copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    stream_->Copy(to, from, bytes);
  }
  void Zero(std::byte* to, std::size_t bytes) override { stream_->Zero(to, bytes); }
  void Synchronize() override { stream_->Synchronize(); }
  std::byte* Allocate(std::size_t bytes) override {
    ++allocations;
    CHECK_FALSE(records_);
    return stream_->Allocate(bytes);
  }
  std::byte* AllocateZeroed(std::size_t bytes) override {
    ++allocations;
    return stream_->AllocateZeroed(bytes);
  }
  void Free(std::byte* block) noexcept override {
    ++frees;
    stream_->Free(block);
  }
  std::byte* AllocateOnHost(std::size_t bytes) override {
    ++allocations;
    return stream_->AllocateOnHost(bytes);
  }
  void FreeOnHost(std::byte* block) noexcept override {
    ++frees;
    stream_->FreeOnHost(block);
  }
  std::size_t FreeBytes() const override { return stream_->FreeBytes(); }
  std::unique_ptr<cuda::Event> MakeEvent() override { return stream_->MakeEvent(); }
  std::unique_ptr<cuda::CopyStream> MakeCopyStream() override { return stream_->MakeCopyStream(); }
  std::unique_ptr<cuda::Stream> MakeSide() override { return stream_->MakeSide(); }
  void WaitFor(cuda::Event& event) override { stream_->WaitFor(event); }
  std::unique_ptr<cuda::Recording> Record(const std::function<void()>& body) override {
    ++recordings;
    records_ = true;
    auto recording = stream_->Record(body);
    records_ = false;
    return recording;
  }
  CUstream_st* handle() const override { return stream_->handle(); }
  void Run(std::string_view kernel, std::function<void(bool reverse)> work) override {
    stream_->Run(kernel, std::move(work));
  }

  int allocations = 0, frees = 0, recordings = 0;

 private:
  std::unique_ptr<cuda::Stream> stream_;
  bool records_ = false;
};

constexpr int kSteps = 1000;

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("memory: steps leave nothing behind") {
    auto owned = std::make_unique<CountedStream>(NewStream());
    CountedStream& stream = *owned;
    const std::unique_ptr<Backend> backend =
        cuda::MakeBackendOn(std::move(owned), {"test", "test"}, {});
    const graph::test::TestNetwork network{"awkward", graph::test::Awkward(), {5, 10, 9, 3}};
    NetworkSteps steps(network, AllTrainings()[2], *backend);
    for (int i = 0; i < 10; ++i) steps.Step();
    backend->Synchronize();
    const int allocations = stream.allocations, frees = stream.frees,
              recordings = stream.recordings;
    const std::size_t bytes = backend->allocated_bytes();
    CHECK(allocations > 0);
    CHECK(recordings > 0);
    for (int i = 10; i < kSteps; ++i) steps.Step();
    backend->Synchronize();
    CHECK(stream.allocations == allocations);
    CHECK(stream.frees == frees);
    CHECK(stream.recordings == recordings);
    CHECK(backend->allocated_bytes() == bytes);
  }

  TEST_CASE(
      "memory: what a plan reserves after a step's first run is there before it is recorded") {
    auto owned = std::make_unique<CountedStream>(NewStream());
    CountedStream& stream = *owned;
    Lab lab(cuda::MakeBackendOn(std::move(owned), {"test", "test"}, {}));
    const MatmulCase small{.name = "small", .x = {2, 1, 1, 8}, .out = 8};
    const MatmulCase large{.name = "large", .x = {64, 1, 1, 512}, .out = 512};
    const Layer layer(lab, small, {});
    const Pass pass = PassOf(2);
    const auto run = [&] { lab->Run(1, pass, [&] { layer.Call(pass); }); };
    run();
    const Layer other(lab, large, {});
    run();
    run();
    lab->Synchronize();
    CHECK(stream.recordings == 1);
    CHECK(lab->Warnings().empty());
  }
}

}  // namespace
}  // namespace ada::backend::test

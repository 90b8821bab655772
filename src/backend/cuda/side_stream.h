// Work on a second stream, concurrent with the main stream until an op overwrites its inputs or
// needs its results: weight gradients. Only the ops that give work to it know of it: before any
// other op runs, the side stream is told which gradients that op writes.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/matmuls.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

class GradientGroup;

// A run of bytes.
struct Range {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
  bool Overlaps(const Range& other) const {
    return begin < other.begin + other.bytes && other.begin < begin + bytes;
  }
};
inline Range RangeOf(const Tensor& tensor) { return {tensor.data, tensor.bytes()}; }

class SideStream {
 public:
  // Makes a side stream of `main`, with matmuls for the stream that it makes.
  using MakesMatmuls = std::function<std::unique_ptr<Matmuls>(Stream&)>;
  SideStream(const Context& main, const MakesMatmuls& matmuls);
  ~SideStream();

  // The context in which work on the side stream is made and launched: it has its own stream,
  // scratch memory and matmuls.
  const Context& context() const { return context_; }

  // Launches `work`, with context(), after what the main stream was asked for so far. `reads`:
  // memory that others may write later in this pass; they do not touch whatever else it reads or
  // writes until Join. leaves: it reads nothing that works before it have left (Leave).
  void Run(const std::vector<Range>& reads, const std::function<void()>& work, bool leaves = false);
  // What works leave to one launch of them all. That comes before any other work, before somebody
  // writes what it reads, and before a Join.
  GradientGroup& group() { return *group_; }
  // Called by work that has added to group(): `reads` is one more run of bytes that it reads.
  void Leave(const Range& reads) { left_.push_back(reads); }
  // The main stream waits for the work on the side stream that reads some of it.
  void BeforeWrite(const Range& written);
  // The main stream waits for all work on the side stream.
  void Join();
  // So does another stream, which waits for the main stream as well.
  void JoinTo(Stream& other);

  // While it lives Run does not wait; else it joins at once. Ends with a Join, unless the work in
  // between has failed. Scopes may lie within each other.
  class Scope {
   public:
    explicit Scope(SideStream& side_stream)
        : side_stream_(side_stream), was_open_(std::exchange(side_stream.open_, true)) {}
    ~Scope() { side_stream_.Close(was_open_); }
    Scope(const Scope&) = delete;
    void End() { side_stream_.Join(); }

   private:
    SideStream& side_stream_;
    const bool was_open_;
  };

  std::size_t bytes() const { return scratch_.bytes() + matmuls_->workspace_bytes(); }
  // Scratch::Grow of all that work on the side stream shares.
  void Grow() {
    scratch_.Grow();
    matmuls_->GrowWorkspace();
  }

 private:
  struct Work {
    std::vector<Range> reads;
    std::unique_ptr<Event> begin, end;  // of the stream; of this work
  };
  void WaitFor(std::size_t work);
  void LaunchLeft();
  void Close(bool was_open);

  Stream& main_;
  std::unique_ptr<Stream> own_;  // null: all is the main stream's, in its order
  Stream& stream_;
  Scratch scratch_{stream_};
  std::unique_ptr<Matmuls> matmuls_;
  Context context_;
  std::vector<Work> works_;  // those that run, in their order; after them, of earlier passes
  std::size_t running_ = 0, done_ = 0;  // of them: the first were waited for
  std::unique_ptr<GradientGroup> group_;
  std::vector<Range> left_;  // what its launch reads
  bool open_ = false;
};

}  // namespace ada::backend::cuda

// Work that runs beside a stream's, on one of its own, until somebody writes what it reads or needs
// what it makes: weight gradients. Nobody but the ops that hand it over has to know of it: before
// an op runs it is told which gradients that op writes.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/products/products.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

// A run of bytes.
struct Range {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
  bool Overlaps(const Range& other) const {
    return begin < other.begin + other.bytes && other.begin < begin + bytes;
  }
};
inline Range RangeOf(const Tensor& tensor) { return {tensor.data, tensor.bytes()}; }

class Beside {
 public:
  // Of `main`, with products for the stream that it makes.
  using MakesProducts = std::function<std::unique_ptr<Products>(Stream&)>;
  Beside(const Context& main, const MakesProducts& products);

  // What work beside is made from and launched with: stream, scratch memory and products are of its
  // own.
  const Context& context() const { return context_; }

  // Launches `work`, with context(), behind what the stream was asked for so far. `reads`: memory
  // that others may write later in this pass; whatever else it reads or writes they leave alone
  // until Join.
  void Run(const std::vector<Range>& reads, const std::function<void()>& work);
  // The stream waits for the work beside that reads some of it.
  void BeforeWrite(const Range& written);
  // The stream waits for all work beside.
  void Join();

  // While it lives Run does not wait; else it joins at once. Ends with a Join, unless the work in
  // between has failed.
  class Scope {
   public:
    explicit Scope(Beside& beside) : beside_(beside) { beside_.open_ = true; }
    ~Scope() { beside_.open_ = false, beside_.running_ = beside_.done_ = 0; }
    Scope(const Scope&) = delete;
    void End() { beside_.Join(); }

   private:
    Beside& beside_;
  };

  std::size_t bytes() const { return scratch_.bytes() + products_->workspace_bytes(); }

 private:
  struct Work {
    std::vector<Range> reads;
    std::unique_ptr<Event> begin, end;  // of the stream; of this work
  };
  void WaitFor(std::size_t work);

  Stream& main_;
  std::unique_ptr<Stream> own_;  // null: all is the main stream's, in its order
  Stream& stream_;
  Scratch scratch_{stream_};
  std::unique_ptr<Products> products_;
  Context context_;
  std::vector<Work> works_;  // those that run, in their order; behind them, of earlier passes
  std::size_t running_ = 0, done_ = 0;  // of them: the first were waited for
  bool open_ = false;
};

}  // namespace ada::backend::cuda

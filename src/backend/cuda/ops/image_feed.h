// Images that come from the host as bytes: through two blocks of pinned memory, on a lane of their
// own, into two blocks of the device, where they become an input op's values.
#pragma once
#include <memory>

#include "backend/cuda/context.h"
#include "backend/op.h"

namespace ada::backend::cuda {

// Belongs to an input op. Send works on the host's side and returns when the bytes are in pinned
// memory; Take launches what widens them by the table, in the order of the stream. Events keep
// either side from writing a block that the other one still reads.
class ImageFeed final : public ByteFeed {
 public:
  // x: fp32 of `shape`, in backend memory, which Take fills.
  ImageFeed(const Context& context, const Shape& shape, float* x);
  ~ImageFeed() override;
  ImageFeed(const ImageFeed&) = delete;

  std::int64_t Send(const ByteImages& images) override;
  void Take(std::int64_t number) override;

 private:
  // The table and then the bytes, in both memories.
  struct Block {
    std::byte* pinned = nullptr;  // made when it is first needed
    std::byte* device = nullptr;
    int rows = 0;
    std::unique_ptr<Event> arrived;   // of the lane: `pinned` may be written again
    std::unique_ptr<Event> was_read;  // of the stream: `device` may be
  };
  Block& BlockOf(std::int64_t number) { return blocks_[number % kBlocks]; }
  std::size_t BytesOfTable() const {
    return static_cast<std::size_t>(shape_.c) * 256 * sizeof(float);
  }

  static constexpr int kBlocks = 2;
  Stream& stream_;
  Shape shape_;
  float* x_;
  std::unique_ptr<CopyStream> copy_stream_;  // lives longer than its events
  Block blocks_[kBlocks];
  std::int64_t sent_ = 0;  // so many, numbered from 0
};

}  // namespace ada::backend::cuda

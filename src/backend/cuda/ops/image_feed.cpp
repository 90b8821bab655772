// See image_feed.h.
#include "backend/cuda/ops/image_feed.h"

#include <cstring>

#include "backend/cuda/kernels/images.h"
#include "error.h"

namespace ada::backend::cuda {

ImageFeed::ImageFeed(const Context& context, const Shape& shape, float* x)
    : stream_(context.stream), shape_(shape), x_(x), copy_stream_(context.stream.MakeCopyStream()) {
  const auto bytes = static_cast<std::int64_t>(BytesOfTable()) + shape.numel();
  for (Block& block : blocks_) {
    block.device = context.Allocate<std::byte>(bytes);
    block.arrived = copy_stream_->MakeEvent();
    block.was_read = stream_.MakeEvent();
    block.was_read->Mark();  // after what the stream may have written there so far
  }
}

ImageFeed::~ImageFeed() {
  for (const Block& block : blocks_) {
    if (block.pinned == nullptr) continue;
    try {
      block.arrived->Wait();
    } catch (const DeviceError&) {  // a device that is lost reads no more
    }
    stream_.FreeOnHost(block.pinned);
  }
}

std::int64_t ImageFeed::Send(const ByteImages& images) {
  ADA_CHECK(images.rows >= 1 && images.rows <= shape_.n);
  const std::int64_t number = sent_;
  Block& block = BlockOf(number);
  const auto bytes = static_cast<std::size_t>(images.rows * shape_.per_image());
  if (block.pinned == nullptr)
    block.pinned =
        stream_.AllocateOnHost(BytesOfTable() + static_cast<std::size_t>(shape_.numel()));
  // The copy of the block's last batch has to be over before its pinned memory is written again.
  block.arrived->Wait();
  std::memcpy(block.pinned, images.table, BytesOfTable());
  std::memcpy(block.pinned + BytesOfTable(), images.bytes, bytes);
  // And the kernel that read the block on the device has to be over before it is copied over.
  copy_stream_->WaitFor(*block.was_read);
  copy_stream_->CopyToDevice(block.device, block.pinned, BytesOfTable() + bytes);
  block.arrived->Mark();
  block.rows = images.rows;
  ++sent_;
  return number;
}

void ImageFeed::Take(std::int64_t number) {
  // Earlier batches are gone: two blocks hold the last two.
  ADA_CHECK(number >= 0 && number < sent_ && number >= sent_ - kBlocks);
  Block& block = BlockOf(number);
  stream_.WaitFor(*block.arrived);
  const std::int64_t values = block.rows * shape_.per_image();
  const auto* table = reinterpret_cast<const float*>(block.device);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(block.device + BytesOfTable());
  // Four values a thread: four bytes in, 16 out.
  ForEach(stream_, (values + 3) / 4,
          ValuesOfBytes{bytes, table, x_, values, static_cast<std::uint32_t>(shape_.c)});
  block.was_read->Mark();
}

}  // namespace ada::backend::cuda

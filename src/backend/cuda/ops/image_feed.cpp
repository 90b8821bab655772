// Batches of images are made on the device: of bytes that each step sends, or of a data set that
// stays in device memory, by one kernel for each.
#include "backend/cuda/ops/image_feed.h"

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/memory.h"
#include "error.h"
#include "vision/image_placement.h"

namespace ada::backend::cuda {

// --- Values of bytes ---

// The fp32 values of images stored as bytes, channel by channel.
// Four values a thread: one load of four bytes, one store of 16. `bytes` and `out` are aligned for
// that.
// Body of ForEach over a quarter of the values, rounded up. The table has the mean and deviation of
// data.normalize in it, so that values have the bits of the host's.
struct ValuesOfBytes {
  ADA_HOST_DEVICE void operator()(std::int64_t four) const {
    const std::int64_t i = 4 * four;
    auto c = static_cast<std::uint32_t>(static_cast<std::uint64_t>(i) % channels);
    if (i + 4 > values) {
      for (std::int64_t k = i; k < values; ++k) out[k] = Next(bytes[k], c);
      return;
    }
    const std::uint32_t codes = reinterpret_cast<const std::uint32_t*>(bytes)[four];
    Vec4 x;
    for (int k = 0; k < 4; ++k) x.of[k] = Next(codes >> 8 * k & 0xffu, c);
    reinterpret_cast<Vec4*>(out)[four] = x;
  }
  // The value of a byte of channel c; advances c to the channel of the next byte.
  ADA_HOST_DEVICE float Next(std::uint32_t byte, std::uint32_t& c) const {
    const float value = table[c * 256 + byte];
    if (++c == channels) c = 0;
    return value;
  }

  const std::uint8_t* bytes;
  const float* table;  // [channels][256]
  float* out;
  std::int64_t values;
  std::uint32_t channels;
};

// --- Batches of a resident data set ---

// One batch from a data set that lies in device memory: which image, where it lies after its crop
// and flip, and the value of each of its bytes. The random numbers and the arithmetic are those of
// data/augment.h.
// What stays in device memory for a whole run.
// Whole data sets of bytes; `order` is uploaded once an epoch.
struct ResidentImages {
  const std::uint8_t* pixels = nullptr;   // [images, height, width, channels]
  const std::uint16_t* labels = nullptr;  // [images]
  const float* table = nullptr;           // [channels][256]: the value of a byte
  const std::uint32_t* order = nullptr;   // [images], of the present epoch
  int height = 0, width = 0, channels = 0;
};

// Position `i` (row, column) of the result takes its values from this pixel of the stored image;
// -1: from none, it is black.
ADA_HOST_DEVICE inline std::int64_t StoredPixel(const Placement& place, int height, int width,
                                                std::int64_t i) {
  const std::int64_t column = i % width;
  const std::int64_t y = i / width + place.dy;
  const std::int64_t x = (place.flip ? width - 1 - column : column) + place.dx;
  return y < 0 || y >= height || x < 0 || x >= width ? -1 : y * width + x;
}

// A row of the batch is `parts` blocks of kPixels pixels; the first of them writes its label.
// Phase 0 finds the image and its placement once for the block; phase 1 writes its pixels.
struct FillBatch {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 2;
  static constexpr int kPixels = 4096;
  struct Shared {  // of the block's image
    std::int64_t image, dy, dx;
    bool flip;
  };
  struct Own {};

  // Blocks for one image of `pixels` pixels.
  static std::int64_t Parts(std::int64_t pixels) { return (pixels + kPixels - 1) / kPixels; }

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t row = at.block / parts;
    const std::int64_t part = at.block % parts;
    if constexpr (kPhase == 0) {
      if (at.thread == 0) Choose(shared, row, part);
    } else {
      Write(shared, row, part, at.thread);
    }
  }

  ADA_HOST_DEVICE void Choose(Shared& shared, std::int64_t row, std::int64_t part) const {
    shared.image = data.order[first + row];
    const Placement place = PlaceImage(augment, seed, epoch, shared.image);
    shared.dy = place.dy, shared.dx = place.dx, shared.flip = place.flip;
    if (part == 0) out_labels[row] = data.labels[shared.image];
  }

  ADA_HOST_DEVICE void Write(const Shared& shared, std::int64_t row, std::int64_t part,
                             int thread) const {
    const std::int64_t pixels = std::int64_t{data.height} * data.width;
    const std::uint8_t* stored = data.pixels + shared.image * pixels * data.channels;
    float* out = out_images + row * pixels * data.channels;
    const Placement place{shared.dy, shared.dx, shared.flip};
    const std::int64_t end = (part + 1) * kPixels < pixels ? (part + 1) * kPixels : pixels;
    for (std::int64_t i = part * kPixels + thread; i < end; i += kThreads) {
      const std::int64_t from = StoredPixel(place, data.height, data.width, i);
      for (int c = 0; c < data.channels; ++c) {
        const int byte = from < 0 ? 0 : stored[from * data.channels + c];
        out[i * data.channels + c] = data.table[c * 256 + byte];
      }
    }
  }

  ResidentImages data;
  AugmentSpec augment;
  std::uint64_t seed = 0;
  std::int64_t epoch = 0, first = 0;  // of the order: the batch's first image
  std::int64_t parts = 1;             // blocks of a row
  float* out_images = nullptr;
  std::int32_t* out_labels = nullptr;
};

// --- Batches that are sent ---

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

// --- A resident data set ---

namespace {

// A data set that lies in device memory as bytes. The order of an epoch is sent once; Fill launches
// one kernel that looks up, augments and widens the images of a batch, so that no batch crosses
// from the host.
class ResidentSource final : public ImageSource {
 public:
  ResidentSource(const Context& context, const ImageSourceSpec& spec);

  void SetOrder(const std::uint32_t* order) override;
  void Fill(std::int64_t epoch, std::int64_t first, int rows, float* images,
            std::int32_t* labels) override;

 private:
  Context context_;
  std::int64_t images_;
  std::uint32_t* order_;
  Staging staging_;
  FillBatch kernel_;
};

// Pixels, labels and the table are copied to the device here; the spec's memory may go afterwards.
ResidentSource::ResidentSource(const Context& context, const ImageSourceSpec& spec)
    : context_(context),
      images_(spec.images),
      order_(context.Allocate<std::uint32_t>(spec.images)),
      staging_(context.stream, 1) {
  ResidentImages& data = kernel_.data;
  data.height = static_cast<int>(spec.image.h);
  data.width = static_cast<int>(spec.image.w);
  data.channels = static_cast<int>(spec.image.c);
  data.pixels = context.Keep(spec.pixels, images_ * spec.image.per_image());
  data.labels = context.Keep(spec.labels, images_);
  data.table = context.Keep(spec.table, std::int64_t{data.channels} * 256);
  data.order = order_;
  kernel_.augment = {spec.pad, spec.random_crop, spec.horizontal_flip};
  // Random numbers depend on seed, epoch and the image's index, as in the host's loader.
  kernel_.seed = spec.seed;
  // Blocks of threads for one image of a batch.
  kernel_.parts = FillBatch::Parts(std::int64_t{data.height} * data.width);
  SetOrder(nullptr);
}

void ResidentSource::SetOrder(const std::uint32_t* order) {
  // Staging copies before it returns, so that the vector may end here.
  std::vector<std::uint32_t> as_stored;
  if (order == nullptr) {
    as_stored.resize(static_cast<std::size_t>(images_));
    std::iota(as_stored.begin(), as_stored.end(), 0u);
    order = as_stored.data();
  }
  staging_.Send(reinterpret_cast<std::byte*>(order_), order,
                static_cast<std::size_t>(images_) * sizeof(std::uint32_t));
}

void ResidentSource::Fill(std::int64_t epoch, std::int64_t first, int rows, float* images,
                          std::int32_t* labels) {
  ADA_CHECK(rows >= 1 && first >= 0 && first + rows <= images_);
  FillBatch kernel = kernel_;
  kernel.epoch = epoch;
  kernel.first = first;
  kernel.out_images = images;
  kernel.out_labels = labels;
  Launch(context_.stream, kernel, static_cast<int>(rows * kernel.parts));
}

}  // namespace

// Pixels, label and place in the order of each image, and the table.
std::size_t ResidentBytes(const Context& context, const ImageSourceSpec& spec) {
  const auto images = static_cast<std::size_t>(spec.images);
  const std::size_t each = static_cast<std::size_t>(spec.image.per_image()) + sizeof *spec.labels +
                           sizeof(std::uint32_t);
  const std::size_t all =
      images * each + static_cast<std::size_t>(spec.image.c) * 256 * sizeof(float);
  return all > context.stream.FreeBytes() / 2 ? 0 : all;
}

std::unique_ptr<ImageSource> MakeImageSourceOp(const Context& context,
                                               const ImageSourceSpec& spec) {
  if (ResidentBytes(context, spec) == 0) return nullptr;
  return std::make_unique<ResidentSource>(context, spec);
}

}  // namespace ada::backend::cuda

// Keeps a data set in device memory and makes its batches there, by one kernel for each.
#include <cstdint>
#include <numeric>
#include <vector>

#include "backend/cuda/kernels/images.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/staging.h"
#include "error.h"

namespace ada::backend::cuda {
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

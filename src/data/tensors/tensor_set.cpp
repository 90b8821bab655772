// Opens images where they are in a mapped file, and reads labels at once, because the largest one
// determines the number of classes.
#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "data/readers.h"
#include "data/tensors/arrays.h"
#include "data/tensors/tensor_file.h"
#include "error.h"
#include "io/text.h"

namespace ada::data {
namespace {

constexpr std::int64_t kLargestSide = 65'536, kMostChannels = 1024;

// The images of one tensor.
class TensorStore final : public ImageStore {
 public:
  TensorStore(std::shared_ptr<const MappedFile> file, TensorInFile tensor, ArrayLayout layout)
      : file_(std::move(file)),
        tensor_(std::move(tensor)),
        axes_(AxesOf(tensor_.shape, layout)),
        channels_first_(tensor_.shape.size() == 4 && layout == ArrayLayout::kChw) {}

  std::int64_t images() const override { return tensor_.shape[0]; }
  std::string NameOf(std::int64_t image) const override {
    return tensor_.place + ": image " + std::to_string(image);
  }
  Picture Read(std::int64_t image, const ChoosePart& part) const override {
    const PictureSize size{static_cast<int>(axes_.height), static_cast<int>(axes_.width)};
    ADA_CHECK(Bytes() != nullptr);
    return CutOut(Bytes() + image * axes_.height * axes_.width * axes_.channels, size,
                  static_cast<int>(axes_.channels), part(size));
  }
  const std::uint8_t* Bytes() const override {
    return tensor_.dtype == DType::kU8 ? reinterpret_cast<const std::uint8_t*>(Data()) : nullptr;
  }
  const std::byte* Floats() const override {
    return tensor_.dtype == DType::kF32 ? Data() : nullptr;
  }
  bool is_float() const override { return tensor_.dtype == DType::kF32; }
  std::uint64_t memory() const override {
    return tensor_.is_packed() || channels_first_ ? tensor_.size() : 0;
  }
  void CheckUnchanged() const override { file_->CheckUnchanged(); }

 private:
  // Looks at the whole data of an .npz file once, when images are first asked for. An acquire load
  // serves all later calls; the lock is for those that come before the data is ready.
  const std::byte* Data() const {
    if (const std::byte* data = data_.load(std::memory_order_acquire)) return data;
    const std::lock_guard lock(mutex_);
    if (data_ == nullptr) {
      file_->CheckUnchanged();
      const std::span<const std::byte> elements = CheckedElements(tensor_, &unpacked_);
      if (channels_first_) MoveChannels(elements);
      data_ = channels_first_ ? unpacked_.data() : elements.data();
    }
    return data_;
  }

  // Leaves the images in `unpacked_`, where they may be already.
  void MoveChannels(std::span<const std::byte> elements) const {
    if (!tensor_.is_packed()) unpacked_ = ByteBlock(elements.size());
    PutChannelsLast(elements, axes_, BytesOf(tensor_.dtype), unpacked_);
  }

  std::shared_ptr<const MappedFile> file_;
  TensorInFile tensor_;
  ImageAxes axes_;
  bool channels_first_;
  mutable std::mutex mutex_;    // of whoever makes what follows
  mutable ByteBlock unpacked_;  // or with other axes than in the file
  mutable std::atomic<const std::byte*> data_ = nullptr;
};

// What is returned is a part of `file`; a name by value tells the compiler so.
const TensorInFile& Require(const TensorFile& file, std::string_view name) {
  return file.Require(std::string(name), "train.images, train.labels, test.images, test.labels");
}

// What a tensor of images must be whatever its axes are.
void CheckImages(const TensorInFile& images) {
  const auto fail = [&](const std::string& problem) {
    throw DataError(images.place + ": " + problem);
  };
  const std::vector<std::int64_t>& s = images.shape;
  if (images.dtype != DType::kU8 && images.dtype != DType::kF32)
    fail("elements are " + std::string(ToString(images.dtype)) +
         "; expected U8 (0 to 255) or F32 (taken as they are)");
  if (s.size() != 3 && s.size() != 4)
    fail("has the shape " + DimsText(s) +
         "; expected [images, height, width, channels] or [images, channels, height, width], or "
         "[images, height, width] of grey ones");
  if (s[0] < 1) fail("has the shape " + DimsText(s) + ": no images");
  if (s[0] > std::numeric_limits<std::uint32_t>::max()) fail("more than 2^32 - 1 images");
}

void CheckAxes(const TensorInFile& images, const ImageAxes& axes) {
  const auto within = [](std::int64_t size, std::int64_t most) {
    return size >= 1 && size <= most;
  };
  if (within(axes.height, kLargestSide) && within(axes.width, kLargestSide) &&
      within(axes.channels, kMostChannels))
    return;
  throw DataError(images.place + ": has the shape " + DimsText(images.shape) +
                  "; expected images of 1 to " + std::to_string(kLargestSide) +
                  " rows and columns and 1 to " + std::to_string(kMostChannels) + " channels");
}

// Bytes are divided by 255 and fp32 values are taken as they are: a network that learned from the
// ones would see others in the other split.
void RequireOneType(const TensorInFile& train, const TensorInFile& test) {
  if (train.dtype == test.dtype) return;
  throw DataError(test.place + ": elements are " + std::string(ToString(test.dtype)) +
                  "; expected " + std::string(ToString(train.dtype)) +
                  ", as in train.images (U8 is divided by 255, F32 taken as it is)");
}

std::vector<Label> ReadLabels(const TensorInFile& labels, const TensorInFile& images) {
  if (!IsInteger(labels.dtype))
    throw DataError(labels.place + ": elements are " + std::string(ToString(labels.dtype)) +
                    "; expected whole numbers (I64, U8, ...)");
  if (labels.shape.size() != 1 || labels.shape[0] != images.shape[0])
    throw DataError(labels.place + ": has the shape " + DimsText(labels.shape) + "; expected " +
                    DimsText({images.shape[0]}) + ", one label an image of " + images.name);
  ByteBlock unpacked;
  const std::byte* data = CheckedElements(labels, &unpacked).data();
  std::vector<Label> values(static_cast<std::size_t>(labels.shape[0]));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::byte* at = data + i * BytesOf(labels.dtype);
    const std::optional<std::int64_t> value = IntegerBelow(at, labels.dtype, kMostClasses);
    if (!value)
      throw DataError(labels.place + ": image " + std::to_string(i) + " has label " +
                      IntegerText(at, labels.dtype) + "; expected 0 to " +
                      std::to_string(kMostClasses - 1));
    values[i] = static_cast<Label>(*value);
  }
  return values;
}

void CheckLabels(const TensorInFile& labels, const std::vector<Label>& values, int classes,
                 const std::string& why) {
  const auto wrong = std::find_if(values.begin(), values.end(),
                                  [&](Label label) { return int{label} >= classes; });
  if (wrong == values.end()) return;
  throw DataError(labels.place + ": image " + std::to_string(wrong - values.begin()) +
                  " has label " + std::to_string(*wrong) + "; expected 0 to " +
                  std::to_string(classes - 1) + ", since " + why);
}

Dataset ReadTensorSplit(const TensorFile& file, const std::string& split, ArrayLayout layout) {
  const TensorInFile& images = Require(file, split + ".images");
  const TensorInFile& labels = Require(file, split + ".labels");
  CheckImages(images);
  const ImageAxes axes = AxesOf(images.shape, layout);
  CheckAxes(images, axes);
  Dataset dataset;
  dataset.name = "tensors";
  dataset.labels = ReadLabels(labels, images);
  dataset.height = static_cast<int>(axes.height);
  dataset.width = static_cast<int>(axes.width);
  dataset.channels = static_cast<int>(axes.channels);
  dataset.store = std::make_shared<TensorStore>(file.file(), images, layout);
  return dataset;
}

}  // namespace

Splits OpenTensors(const std::string& path, ArrayLayout layout) {
  const TensorFile file(path);
  Splits splits;
  if (layout == ArrayLayout::kAuto) {
    const TensorInFile& images = Require(file, "train.images");
    CheckImages(images);
    layout = LayoutOf(images);
    if (images.shape.size() == 4) splits.note = LayoutText(images, layout);
  }
  splits.train = ReadTensorSplit(file, "train", layout);
  splits.test = ReadTensorSplit(file, "test", layout);
  if (splits.train.channels != splits.test.channels) {
    const TensorInFile& images = Require(file, "test.images");
    throw DataError(images.place + ": has the shape " + DimsText(images.shape) + ", images of " +
                    std::to_string(splits.test.channels) + " channels; expected " +
                    std::to_string(splits.train.channels) + ", as in train.images");
  }
  RequireOneType(Require(file, "train.images"), Require(file, "test.images"));
  splits.class_names = ClassesOfMetadata(file.metadata(), path);
  const Label largest = *std::max_element(splits.train.labels.begin(), splits.train.labels.end());
  const bool named = !splits.class_names.empty();
  const int classes = named ? static_cast<int>(splits.class_names.size()) : largest + 1;
  const std::string why = named ? "the metadata name " + std::to_string(classes) + " classes"
                                : "that is the largest label of train.labels";
  CheckLabels(Require(file, "train.labels"), splits.train.labels, classes, why);
  CheckLabels(Require(file, "test.labels"), splits.test.labels, classes, why);
  splits.train.classes = splits.test.classes = classes;
  return splits;
}

}  // namespace ada::data

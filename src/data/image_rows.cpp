// Rows of batches that are images: an image and its labels, changed together.
#include <algorithm>
#include <array>

#include "data/augment.h"
#include "data/image_writer.h"
#include "data/row_writer.h"
#include "data/segmentation/label_files.h"
#include "error.h"
#include "vision/coder.h"

namespace ada::data {
namespace {

constexpr std::uint64_t kSsdStream = StreamId("augment.ssd");
constexpr int kValuesOfBox = 4;

// Boxes can follow only changes that ShowBoxes or SSD's changes know, and their default boxes are
// made for one size of the input.
void CheckDetection(const LoaderSpec& spec, const ImageShape& shape) {
  const ImageChanges& changes = spec.changes;
  if (changes.resize.to.height == 0)
    throw ConfigError(
        "data.resize: images with boxes are resized to the size that the network "
        "takes; set data.resize: [height, width]");
  if (changes.random_resized_crop || changes.crops() || changes.random_scale || spec.random_crop ||
      changes.random_erasing)
    throw ConfigError(
        "data.augment: of images with boxes only colours are changed and columns "
        "mirrored; for the rest use data.augment.ssd");
  const int input = spec.coder->spec().input;
  if (shape.height != input || shape.width != input)
    throw ConfigError("data.resize: gives " + SizeText({shape.height, shape.width}) +
                      "; the network's default boxes are for " + SizeText({input, input}));
}

// Checks that the changes go with the kind of label that the set's task has.
void CheckTargets(const Dataset& dataset, const LoaderSpec& spec, const ImageShape& shape) {
  const Task task = dataset.task();
  if (task == Task::kClassification) {
    ADA_CHECK(!spec.changes.ssd && !spec.coder);
    return;
  }
  ADA_CHECK(dataset.store && dataset.channels == 3);
  if (spec.mixing.any())
    throw ConfigError("data.augment: mixup and cutmix mix images with one label each; " +
                      dataset.name + " has label images or boxes");
  if (task == Task::kSegmentation) {
    ADA_CHECK(!spec.changes.ssd && !spec.coder);
    return;
  }
  if (!spec.coder)
    throw ConfigError(
        "data.dataset: " + dataset.name +
        ": images with boxes need default boxes to be trained on; set task: detection");
  CheckDetection(spec, shape);
}

// Values on the scale of bytes as the network takes them: divided by 255, less the mean, through
// the deviation.
void Normalize(const std::vector<float>& values, const LoaderSpec& spec, float* out) {
  std::array<float, 3> mean{}, std{1, 1, 1};
  for (std::size_t c = 0; c < spec.mean.size(); ++c) {
    mean[c] = static_cast<float>(spec.mean[c]);
    std[c] = static_cast<float>(spec.std[c]);
  }
  for (std::size_t i = 0; i < values.size(); i += 3)
    for (std::size_t c = 0; c < 3; ++c) out[i + c] = (values[i + c] / 255.0f - mean[c]) / std[c];
}

// Writes rows of images. ImageWriter makes the image; where labels depend on what it shows (pixels,
// boxes), ImageWriter tells the part that is shown and this class makes the labels follow it.
class ImageRows final : public RowWriter {
 public:
  ImageRows(const Dataset& dataset, const LoaderSpec& spec);

  RowSizes sizes() const override { return {images_.shape().numel(), 0, labels_, locations_}; }
  ImageShape shape() const override { return images_.shape(); }
  bool is_slow() const override { return images_.is_slow(); }
  std::string NameOf(std::int64_t /*epoch*/, std::int64_t image) const override {
    return images_.NameOf(image);
  }
  void Prefetch(std::int64_t image) const override { images_.Prefetch(image); }
  void CheckUnchanged() const override { images_.CheckUnchanged(); }
  void Write(std::int64_t epoch, std::int64_t image, const RowPlace& out) const override;
  std::int64_t TermsOf(const std::vector<std::int32_t>& labels) const override;

 private:
  void WriteLabels(std::int64_t image, const ShownPart& part, std::int32_t* labels) const;
  // DataError where the picture that was read is not of the size that they are for.
  const ImageObjects& ObjectsOf(std::int64_t image, PictureSize read) const;
  // Those that SSD's changes make; returns the boxes that are left, in pixels of the input.
  std::vector<vision::LabeledBox> WriteSsd(std::int64_t epoch, std::int64_t image,
                                           float* out) const;

  const Dataset& dataset_;
  const LoaderSpec& spec_;
  ImageWriter images_;
  std::int64_t labels_ = 1, locations_ = 0;
};

ImageRows::ImageRows(const Dataset& dataset, const LoaderSpec& spec)
    : dataset_(dataset), spec_(spec), images_(dataset, spec) {
  CheckTargets(dataset, spec, shape());
  if (dataset.task() == Task::kSegmentation) {
    labels_ = std::int64_t{shape().height} * shape().width;
  } else if (dataset.task() == Task::kDetection) {
    labels_ = spec.coder->boxes();
    locations_ = labels_ * kValuesOfBox;
  }
}

void ImageRows::Write(std::int64_t epoch, std::int64_t image, const RowPlace& out) const {
  const ImageValues to{out.values, out.bytes};
  if (dataset_.task() == Task::kClassification) {
    *out.labels = dataset_.labels[static_cast<std::size_t>(image)];
    return images_.Write(epoch, image, to);
  }
  // The writer sets it before labels are made: the random choices of the image are those of its
  // labels.
  ShownPart part;
  if (dataset_.task() == Task::kSegmentation) {
    images_.Write(epoch, image, to, &part);
    return WriteLabels(image, part, out.labels);
  }
  if (spec_.changes.ssd)
    return spec_.coder->Encode(WriteSsd(epoch, image, out.values), out.locations, out.labels);
  images_.Write(epoch, image, to, &part);
  spec_.coder->Encode(ShowBoxes(part, TrainingBoxes(ObjectsOf(image, part.stored))), out.locations,
                      out.labels);
}

const ImageObjects& ImageRows::ObjectsOf(std::int64_t image, PictureSize read) const {
  // The boxes were read when the set was opened, in pixels of the picture's size of then.
  const ImageObjects& objects =
      (*dataset_.objects)[static_cast<std::size_t>(dataset_.NumberInFiles(image))];
  if (read == objects.size) return objects;
  throw DataError(images_.NameOf(image) + ": has " + std::to_string(read.width) + " x " +
                  std::to_string(read.height) + " pixels, and " +
                  std::to_string(objects.size.width) + " x " + std::to_string(objects.size.height) +
                  " when its boxes were read: it was replaced, and they may be those of another "
                  "picture; put the first one back, or start again");
}

void ImageRows::WriteLabels(std::int64_t image, const ShownPart& part, std::int32_t* labels) const {
  const std::int64_t number = dataset_.NumberInFiles(image);
  ShowLabels(part, ReadLabels(dataset_, number, part.stored), labels);
}

std::vector<vision::LabeledBox> ImageRows::WriteSsd(std::int64_t epoch, std::int64_t image,
                                                    float* out) const {
  const std::int64_t number = dataset_.NumberInFiles(image);
  Picture picture = dataset_.store->Read(number, WholeOf);
  std::vector<vision::LabeledBox> boxes = TrainingBoxes(ObjectsOf(image, picture.size()));
  RandomStream random = StreamFor(spec_.seed, kSsdStream, epoch, image);
  StreamDraws draws(&random);
  const SsdChanges changes = DrawSsdChanges(*spec_.changes.ssd, picture.size(), boxes, &draws);
  const PictureSize to{shape().height, shape().width};
  Normalize(ApplySsdChanges(changes, std::move(picture), to, &boxes), spec_, out);
  return boxes;
}

std::int64_t ImageRows::TermsOf(const std::vector<std::int32_t>& labels) const {
  const Task task = dataset_.task();
  if (task == Task::kClassification) return static_cast<std::int64_t>(labels.size());
  // Background has label 0 in detection, and no label is negative in segmentation: both are no
  // terms.
  const std::int32_t least = task == Task::kDetection ? 1 : 0;
  return std::count_if(labels.begin(), labels.end(),
                       [least](std::int32_t label) { return label >= least; });
}

}  // namespace

std::unique_ptr<RowWriter> MakeImageRows(const Dataset& dataset, const LoaderSpec& spec) {
  return std::make_unique<ImageRows>(dataset, spec);
}

std::unique_ptr<RowWriter> MakeRowWriter(const Dataset& dataset, const LoaderSpec& spec) {
  return dataset.tokens ? MakeSequenceRows(dataset, spec) : MakeImageRows(dataset, spec);
}

}  // namespace ada::data

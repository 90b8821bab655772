// This file fixes the order of the steps and the random stream that each draws from. What is drawn
// depends on (seed, epoch, image) and on the sizes of images, never on other images or on threads.
#include "data/image_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/augment.h"
#include "data/images/random_changes.h"
#include "data/images/resize.h"
#include "error.h"
#include "number/random.h"

namespace ada::data {
namespace {

constexpr std::uint64_t kCropStream = StreamId("augment.random_resized_crop");
constexpr std::uint64_t kJitterStream = StreamId("augment.color_jitter");
constexpr std::uint64_t kScaleStream = StreamId("augment.random_scale");
constexpr std::uint64_t kErasingStream = StreamId("augment.random_erasing");

// Returns the size that `resize` makes of an image of size `of`; `of` itself where it asks for
// none.
PictureSize Resized(const ResizeTo& resize, PictureSize of, const std::string& name) {
  if (resize.shorter > 0) return ShorterSide(of, resize.shorter, name);
  return resize.any() ? resize.to : of;
}

// The part of `box` inside a picture of `size`; if it is empty, one pixel of the picture.
Box Inside(const Box& box, PictureSize size) {
  const int top = std::clamp(box.top, 0, size.height - 1);
  const int left = std::clamp(box.left, 0, size.width - 1);
  const int bottom = std::clamp(box.top + box.height, top + 1, size.height);
  const int right = std::clamp(box.left + box.width, left + 1, size.width);
  return {top, left, bottom - top, right - left};
}

ImageShape ShapeOf(const Picture& picture) {
  return {picture.height, picture.width, picture.channels};
}

// Whether `crop` can be cut from an image of `size` with its padding.
bool HasRoom(const LoaderSpec& spec, PictureSize size, PictureSize crop) {
  const std::int64_t pads = 2 * std::int64_t{spec.pad};
  return size.height + pads >= crop.height && size.width + pads >= crop.width;
}
std::string TooSmallText(const std::string& name, const LoaderSpec& spec, PictureSize size,
                         PictureSize crop) {
  return name + ": " + SizeText(size) + (spec.changes.resize.any() ? " when it is resized" : "") +
         ", too small to cut " + SizeText(crop) +
         " from a random place; set data.resize, or a smaller data.center_crop";
}

ChangesProblem ProblemOfCrop(const Dataset& dataset, const LoaderSpec& spec) {
  const ImageChanges& c = spec.changes;
  // A random resized crop has any size to cut from, and a random scale puts black around what is
  // too small.
  if (!spec.random_crop || c.random_resized_crop || c.random_scale) return {};
  const PictureSize stored{dataset.height, dataset.width};
  const PictureSize resized = Resized(c.resize, stored, dataset.name);
  const PictureSize size = SizeAfter(spec, stored, dataset.name);
  if (HasRoom(spec, resized, size)) return {};
  return {"data.center_crop", TooSmallText(dataset.name, spec, resized, size)};
}

}  // namespace

PictureSize SizeAfter(const LoaderSpec& spec, PictureSize stored, const std::string& name) {
  const ImageChanges& c = spec.changes;
  if (c.random_resized_crop) return c.random_resized_crop->size;
  return c.crops() ? c.center_crop : Resized(c.resize, stored, name);
}

bool FixesSize(const LoaderSpec& spec) {
  const ImageChanges& c = spec.changes;
  return c.random_resized_crop || c.crops() || c.resize.to.height > 0;
}

bool ComeAsBytes(const Dataset& dataset, const LoaderSpec& spec) {
  const bool floats = dataset.store && dataset.store->is_float();
  return !floats && !dataset.tokens && !spec.changes.random_erasing && !spec.changes.ssd &&
         !spec.mixing.any();
}

ChangesProblem ProblemOfChanges(const Dataset& dataset, const LoaderSpec& spec, bool one_size) {
  const ImageChanges& c = spec.changes;
  const std::string channels = std::to_string(dataset.channels) + " channels";
  const bool floats = dataset.store && dataset.store->is_float();
  if (floats && (c.resize.any() || c.random_resized_crop || c.color_jitter || c.random_scale))
    return {"data", dataset.name +
                        ": images in fp32 are taken as they are: resize, random_resized_crop, "
                        "random_scale and color_jitter are for bytes; store them as U8, or resize "
                        "them beforehand"};
  if (c.color_jitter && dataset.channels != 1 && dataset.channels != 3)
    return {"data.augment.color_jitter",
            "images of " + channels + " have no colours; expected 3 (RGB) or 1 (grey)"};
  if (c.random_erasing && !c.random_erasing->random_values) {
    const std::size_t values = c.random_erasing->value.size();
    if (values != 1 && values != static_cast<std::size_t>(dataset.channels))
      return {"data.augment.random_erasing.value", std::to_string(values) +
                                                       " values for images of " + channels +
                                                       "; expected one, or one a channel"};
  }
  return one_size ? ProblemOfCrop(dataset, spec) : ChangesProblem();
}

ImageWriter::ImageWriter(const Dataset& dataset, const LoaderSpec& spec)
    : dataset_(dataset), spec_(spec), stored_{dataset.height, dataset.width, dataset.channels} {
  const PictureSize size = SizeAfter(spec, {dataset.height, dataset.width}, dataset.name);
  shape_ = {size.height, size.width, dataset.channels};
  table_ = NormalizeTable(dataset.channels, spec.mean, spec.std);
  // For batches of bytes the same loops run with a table that changes nothing.
  for (std::size_t i = 0; i < table_.size(); ++i)
    same_.push_back(static_cast<std::uint8_t>(i % 256));
  floats_ = dataset.store ? dataset.store->Floats() : nullptr;
  bytes_ = dataset.bytes();
  plain_ = bytes_ != nullptr && !spec.changes.any();
  // Where images lie in memory all have one size, for which a crop can be checked before any is
  // read.
  const ChangesProblem problem =
      ProblemOfChanges(dataset, spec, bytes_ != nullptr || floats_ != nullptr);
  if (!problem.empty()) throw ConfigError(problem.key + ": " + problem.text);
}

std::string ImageWriter::NameOf(std::int64_t image) const {
  const std::int64_t number = dataset_.NumberInFiles(image);
  return dataset_.store ? dataset_.store->NameOf(number)
                        : dataset_.name + ": image " + std::to_string(number);
}

void ImageWriter::Prefetch(std::int64_t image) const {
  if (!plain_) return;
  // A shuffled data set is read in random order, which no processor foresees: the lines of the next
  // image are asked for while this one is written.
  constexpr std::int64_t kLine = 64;
  const std::uint8_t* begin = bytes_ + image * stored_.numel();
  for (std::int64_t i = 0; i < stored_.numel(); i += kLine) __builtin_prefetch(begin + i);
  // GCC takes calls of what does nothing but prefetch for calls without effect, and drops them.
  asm volatile("");
}

void ImageWriter::CheckUnchanged() const {
  if (dataset_.store) return dataset_.store->CheckUnchanged();
  ADA_CHECK(static_cast<std::int64_t>(dataset_.pixels.size()) ==
            dataset_.images() * dataset_.per_image());
}

// Where the result lies in a picture that is not resized any more.
Placement ImageWriter::PlaceIn(PictureSize stored, std::int64_t epoch, std::int64_t image) const {
  AugmentSpec augment{spec_.pad, spec_.random_crop, spec_.horizontal_flip};
  augment.spare_rows = stored.height - shape_.height;
  augment.spare_columns = stored.width - shape_.width;
  const PictureSize shown{shape_.height, shape_.width};
  if (spec_.random_crop && !HasRoom(spec_, stored, shown))
    throw DataError(TooSmallText(NameOf(image), spec_, stored, shown));
  // The rule is core's, which backends with resident images follow as well. Without a random crop
  // only its flip is taken, and the crop lies in the center.
  Placement place = PlaceImage(augment, spec_.seed, epoch, image);
  if (spec_.random_crop) return place;
  const Box box = CenterBox(stored, {shape_.height, shape_.width});
  place.dy = box.top, place.dx = box.left;
  return place;
}

void ImageWriter::Put(const std::uint8_t* pixels, const ImageShape& of, const Placement& place,
                      const ImageValues& out) const {
  if (out.bytes != nullptr) return WriteImage(pixels, of, shape_, place, same_, out.bytes);
  WriteImage(pixels, of, shape_, place, table_, out.values);
}

void ImageWriter::Write(std::int64_t epoch, std::int64_t image, const ImageValues& out,
                        ShownPart* shown) const {
  const PictureSize stored{stored_.height, stored_.width};
  if (plain_) {
    return Put(bytes_ + image * stored_.numel(), stored_, PlaceIn(stored, epoch, image), out);
  } else if (floats_) {
    const std::int64_t at = dataset_.NumberInFiles(image) * stored_.numel();
    if (!WriteFloatImage(floats_ + at * static_cast<std::int64_t>(sizeof(float)), stored_, shape_,
                         PlaceIn(stored, epoch, image), spec_.mean, spec_.std, out.values))
      throw DataError(NameOf(image) + " holds a NaN or an infinity; expected finite values");
  } else {
    WriteChanged(epoch, image, out, shown);
  }
  Erase(epoch, image, out.values);
}

Picture ImageWriter::Read(std::int64_t image, const ChoosePart& part) const {
  if (bytes_ == nullptr) return dataset_.store->Read(dataset_.NumberInFiles(image), part);
  const PictureSize size{stored_.height, stored_.width};
  return CutOut(bytes_ + image * stored_.numel(), size, stored_.channels, part(size));
}

// Scaled by a random factor, and a window of the result's size somewhere on it or around it.
void ImageWriter::PlaceScaled(std::int64_t epoch, std::int64_t image, ShownPart* part) const {
  RandomStream random = StreamFor(spec_.seed, kScaleStream, epoch, image);
  StreamDraws draws(&random);
  const Range& range = *spec_.changes.random_scale;
  const auto drawn = static_cast<double>(
      draws.Uniform(static_cast<float>(range.low), static_cast<float>(range.high)));
  // A factor that would make more pixels than any picture may have is the largest that does not: no
  // draw makes an image unusable. Its sides are cut to whole numbers, so that they do not pass it.
  const double pixels = static_cast<double>(part->resized.height) * part->resized.width;
  const double most = std::sqrt(static_cast<double>(kMaxPixels) / pixels);
  const auto scaled = [&](int side) {
    const double size = drawn < most ? std::round(side * drawn) : std::floor(side * most);
    return std::max(1, static_cast<int>(size));
  };
  const PictureSize to{scaled(part->resized.height), scaled(part->resized.width)};
  // A window that is larger than the picture lies anywhere around it, one that is smaller anywhere
  // in it.
  const auto place = [&](int spare) {
    return spare < 0 ? -draws.Below(1 - spare) : draws.Below(spare + 1);
  };
  part->resized = to;
  part->window.top = place(to.height - shape_.height);
  part->window.left = place(to.width - shape_.width);
}

ShownPart ImageWriter::PartOf(PictureSize stored, std::int64_t epoch, std::int64_t image) const {
  const ImageChanges& changes = spec_.changes;
  const PictureSize wanted{shape_.height, shape_.width};
  ShownPart part{stored, WholeOf(stored), stored, WholeOf(wanted), false};
  // The box is resized to the result's size, so that the window shows all of it.
  if (changes.random_resized_crop) {
    RandomStream random = StreamFor(spec_.seed, kCropStream, epoch, image);
    StreamDraws draws(&random);
    part.box = RandomCropBox(changes.random_resized_crop->box, stored, &draws);
    part.resized = wanted;
    part.flip = PlaceImage({0, false, spec_.horizontal_flip}, spec_.seed, epoch, image).flip;
    return part;
  }
  part.resized = Resized(changes.resize, stored, NameOf(image));
  // Without a key that fixes the size, the first image decided it, and this one has another.
  if (!FixesSize(spec_) && part.resized != wanted)
    throw DataError(NameOf(image) + ": " + SizeText(part.resized) +
                    (changes.resize.any() ? " when it is resized" : "") + "; expected " +
                    SizeText(wanted) +
                    ", as the first image; where sizes differ set data.resize and "
                    "data.center_crop (for training: data.augment.random_resized_crop)");
  if (changes.random_scale) {
    part.flip = PlaceImage({0, false, spec_.horizontal_flip}, spec_.seed, epoch, image).flip;
    PlaceScaled(epoch, image, &part);
    return part;
  }
  const Placement place = PlaceIn(part.resized, epoch, image);
  part.window.top = static_cast<int>(place.dy), part.window.left = static_cast<int>(place.dx);
  part.flip = place.flip;
  return part;
}

void ImageWriter::WriteChanged(std::int64_t epoch, std::int64_t image, const ImageValues& out,
                               ShownPart* shown) const {
  ShownPart part;
  Box inside;  // of the picture when it is resized: what the result shows of it
  // If the picture is resized, the whole box has to be decoded, and only the visible part of the
  // result is computed. Otherwise only the visible part needs to be decoded.
  const bool resizes =
      spec_.changes.resize.any() || spec_.changes.random_scale || spec_.changes.random_resized_crop;
  const Picture read = Read(image, [&](PictureSize size) {
    part = PartOf(size, epoch, image);
    inside = Inside(part.window, part.resized);
    return resizes ? part.box : inside;
  });
  const Placement place{part.window.top - inside.top, part.window.left - inside.left, part.flip};
  if (shown != nullptr) *shown = part;
  if (!resizes) return WriteBytes(read, place, epoch, image, out);
  WriteBytes(ResizeBox(read, WholeOf(read.size()), part.resized, inside), place, epoch, image, out);
}

// From a picture, of which the result shows the part at `place`.
void ImageWriter::WriteBytes(const Picture& picture, const Placement& place, std::int64_t epoch,
                             std::int64_t image, const ImageValues& out) const {
  if (!spec_.changes.color_jitter) return Put(picture.pixels.data(), ShapeOf(picture), place, out);
  // Black pixels around the picture belong to the result; mirroring them changes nothing.
  Picture shown = CutBox(picture, {static_cast<int>(place.dy), static_cast<int>(place.dx),
                                   shape_.height, shape_.width});
  RandomStream random = StreamFor(spec_.seed, kJitterStream, epoch, image);
  StreamDraws draws(&random);
  ApplyColorJitter(DrawColorJitter(*spec_.changes.color_jitter, &draws), &shown);
  Put(shown.pixels.data(), shape_, {0, 0, place.flip}, out);
}

void ImageWriter::Erase(std::int64_t epoch, std::int64_t image, float* out) const {
  if (!spec_.changes.random_erasing) return;
  const RandomErasingSpec& erasing = *spec_.changes.random_erasing;
  RandomStream random = StreamFor(spec_.seed, kErasingStream, epoch, image);
  StreamDraws draws(&random);
  const PictureSize size{shape_.height, shape_.width};
  const std::optional<Box> box = DrawErasedBox(erasing, size, &draws);
  if (box) EraseBox(erasing, *box, size, shape_.channels, &draws, out);
}

std::vector<float> NetworkInput(const Picture& picture, const LoaderSpec& spec,
                                const ImageShape& shape, const std::string& name) {
  const PictureSize resized = Resized(spec.changes.resize, picture.size(), name);
  const PictureSize size = spec.changes.crops() ? spec.changes.center_crop : resized;
  if (size != PictureSize{shape.height, shape.width} || picture.channels != shape.channels)
    throw DataError(name + ": becomes " + SizeText(size) + " of " +
                    std::to_string(picture.channels) + " channels; the network takes " +
                    SizeText({shape.height, shape.width}) + " of " +
                    std::to_string(shape.channels) + ": see data.resize and data.center_crop");
  const Box box = CenterBox(resized, size);
  const Box inside = Inside(box, resized);
  const Placement place{box.top - inside.top, box.left - inside.left, false};
  // Only the part that the crop shows is computed.
  const Picture shown = ResizeBox(picture, WholeOf(picture.size()), resized, inside);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  WriteImage(shown.pixels.data(), ShapeOf(shown), shape, place,
             NormalizeTable(shape.channels, spec.mean, spec.std), values.data());
  return values;
}

}  // namespace ada::data

// Pictures: what decodes has the size that its header says, the same pixels in every part, and
// bears every change.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/random.h"
#include "data/images/picture.h"
#include "data/images/random_changes.h"
#include "data/images/resize.h"
#include "fuzz/scratch.h"
#include "fuzz/targets.h"

namespace ada::fuzz {
namespace {

// Larger pictures are decoded and then left alone: a fuzzer makes thousands in a second.
constexpr std::int64_t kChangedPixels = 1 << 16;

data::Box ChosenBox(data::PictureSize size, unsigned choice) {
  RandomStream stream(choice, 1);
  data::StreamDraws draws(&stream);
  return data::RandomCropBox({}, size, &draws);
}

void Change(data::Picture picture, unsigned choice) {
  RandomStream stream(choice, 2);
  data::StreamDraws draws(&stream);
  const data::Picture small =
      data::ResizeBox(picture, {0, 0, picture.height, picture.width}, {9, 7});
  Demand(small.pixels.size() == 9 * 7 * 3, "a resized picture of another size");
  data::ColorJitterSpec spec;
  spec.brightness = spec.contrast = spec.saturation = {0, 3};
  spec.hue = {-0.5, 0.5};
  data::ApplyColorJitter(data::DrawColorJitter(spec, &draws), &picture);
  data::FlipColumns(&picture);
}

}  // namespace

void Images(std::string_view input) {
  const unsigned choice = TakeByte(&input), more = TakeByte(&input);
  const data::FileBytes file(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  std::optional<data::PictureSize> size;
  Refusable([&] { size = data::SizeOfPicture(file, "fuzzed"); });
  Refusable([&] {
    data::Picture picture = data::DecodePicture(file, "fuzzed");
    Demand(size && picture.size() == *size, "a picture of another size than its header says");
    Demand(picture.pixels.size() == static_cast<std::size_t>(picture.height) *
                                        static_cast<std::size_t>(picture.width) * 3,
           "pixels that are no picture");
    const data::Box box = ChosenBox(*size, choice);
    Demand(data::DecodePicture(file, "fuzzed", box).pixels == data::CutBox(picture, box).pixels,
           "a part of a picture that differs from the whole");
    if (std::int64_t{picture.height} * picture.width <= kChangedPixels)
      Change(std::move(picture), more);
  });
}

}  // namespace ada::fuzz

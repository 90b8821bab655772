// Pictures: what decodes has the size that its header says, the same pixels in every part, and
// bears every change.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "data/images/picture.h"
#include "data/images/random_changes.h"
#include "data/images/resize.h"
#include "fuzz/made_png.h"
#include "fuzz/scratch.h"
#include "fuzz/targets.h"
#include "number/random.h"

namespace ada::fuzz {
namespace {

// Larger pictures are decoded rarely, and few are changed: a fuzzer makes thousands in a second.
constexpr std::int64_t kDecodedPixels = 1 << 12, kChangedPixels = 1 << 9;
constexpr std::size_t kRarely = 509;
constexpr unsigned kChangedOneIn = 4;

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

data::FileBytes BytesOfFile(std::string_view file) {
  return {reinterpret_cast<const std::uint8_t*>(file.data()), file.size()};
}

// What the header says; nothing where it is refused, or where the picture is left alone.
std::optional<data::PictureSize> SizeToDecode(std::string_view file,
                                              const data::PictureRules& rules = {}) {
  std::optional<data::PictureSize> size;
  Refusable([&] { size = data::SizeOfPicture(BytesOfFile(file), "fuzzed", rules); });
  if (size && std::int64_t{size->height} * size->width > kDecodedPixels &&
      file.size() % kRarely != 0)
    return std::nullopt;
  return size;
}

// Two bytes choose a part and changes.
void UsePicture(std::string_view file, unsigned part, unsigned changes) {
  const data::PictureRules rules{
      changes % 2 == 1, changes % 3 == 0 ? data::SixteenBit::kScale : data::SixteenBit::kClip};
  const std::optional<data::PictureSize> size = SizeToDecode(file, rules);
  if (!size) return;
  Refusable([&] {
    data::Picture picture = data::DecodePicture(BytesOfFile(file), "fuzzed", rules);
    Demand(picture.size() == *size, "a picture of another size than its header says");
    Demand(picture.pixels.size() == static_cast<std::size_t>(picture.height) *
                                        static_cast<std::size_t>(picture.width) * 3,
           "pixels that are no picture");
    const data::Box box = ChosenBox(*size, part);
    Demand(data::DecodePicture(BytesOfFile(file), "fuzzed", box, rules).pixels ==
               data::CutBox(picture, box).pixels,
           "a part of a picture that differs from the whole");
    if (changes % kChangedOneIn == 0 &&
        std::int64_t{picture.height} * picture.width <= kChangedPixels)
      Change(std::move(picture), changes);
  });
}

}  // namespace

// After two bytes that choose, the file without the first bytes of every JPEG.
void Jpeg(std::string_view input) {
  const unsigned part = TakeByte(&input), changes = TakeByte(&input);
  UsePicture("\xff\xd8\xff" + std::string(input), part, changes);
}

void Png(std::string_view input) {
  const unsigned part = TakeByte(&input), changes = TakeByte(&input);
  UsePicture(ChosenPng(input), part, changes);
}

// After two bytes that choose, the file without the first bytes of every WebP.
void Webp(std::string_view input) {
  const unsigned part = TakeByte(&input), changes = TakeByte(&input);
  UsePicture("RIFF" + std::string(input.substr(0, 4)) + "WEBP" +
                 std::string(input.substr(std::min<std::size_t>(4, input.size()))),
             part, changes);
}

void LabelImage(std::string_view input) {
  const std::string file = ChosenPng(input);
  const std::optional<data::PictureSize> size = SizeToDecode(file);
  if (!size) return;
  Refusable([&] {
    const data::Picture labels = data::DecodeLabelPng(BytesOfFile(file), "fuzzed");
    Demand(labels.channels == 1 && labels.size() == *size,
           "a label image of another size than its header says");
  });
}

}  // namespace ada::fuzz

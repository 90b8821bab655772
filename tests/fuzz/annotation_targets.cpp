// Annotations of boxes: what is accepted bears SSD's changes, and what comes out of them lies in
// the image.
#include <cmath>
#include <cstdint>
#include <optional>

#include "data/box_changes.h"
#include "data/detection/voc_files.h"
#include "data/labels.h"
#include "fuzz/scratch.h"
#include "fuzz/targets.h"
#include "number/random.h"

namespace ada::fuzz {
namespace {

constexpr std::size_t kChangedBoxes = 16;  // more take long
constexpr int kSide = 12;

void ChangeBoxes(const data::ImageObjects& objects, unsigned choice) {
  std::vector<vision::LabeledBox> boxes = data::TrainingBoxes(objects);
  if (boxes.size() > kChangedBoxes) boxes.resize(kChangedBoxes);
  RandomStream stream(choice, 3);
  data::StreamDraws draws(&stream);
  data::Picture picture{objects.size.height, objects.size.width, 3, {}};
  picture.pixels.resize(static_cast<std::size_t>(picture.height) *
                        static_cast<std::size_t>(picture.width) * 3);
  const data::SsdChanges changes =
      data::DrawSsdChanges(data::SsdChangesSpec{}, picture.size(), boxes, &draws);
  const std::vector<float> image =
      data::ApplySsdChanges(changes, std::move(picture), {kSide, kSide}, &boxes);
  Demand(image.size() == kSide * kSide * 3, "an image of another size");
  for (const float value : image) Demand(std::isfinite(value), "a value that is not finite");
  constexpr float kBeyond = kSide * 1.0001F;
  for (const vision::LabeledBox& object : boxes) {
    const vision::Box& box = object.box;
    Demand(box.y0 > -0.001F && box.x0 > -0.001F && box.y1 <= kBeyond && box.x1 <= kBeyond,
           "a box beside its image");
    Demand(box.y0 <= box.y1 && box.x0 <= box.x1, "an inverted box");
  }
}

}  // namespace

void Annotation(std::string_view input) {
  const unsigned choice = TakeByte(&input);
  std::optional<data::Annotation> read;
  Refusable([&] { read = data::ParseAnnotation(input, "fuzzed"); });
  if (!read) return;
  data::ImageObjects objects{"fuzzed", {9, 13}, {}};
  for (const data::AnnotatedObject& object : read->objects) {
    Demand(!object.name.empty() && object.line > 0, "an object without name or place");
    objects.boxes.push_back({object.box, 0, object.difficult});
  }
  ChangeBoxes(objects, choice);
}

}  // namespace ada::fuzz

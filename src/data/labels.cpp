// Labels and boxes go the way of their image: they are cut, resized, cut again and mirrored.
#include "data/labels.h"

#include <algorithm>

#include "data/box_changes.h"
#include "data/images/resize.h"
#include "error.h"

namespace ada::data {

std::vector<vision::LabeledBox> TrainingBoxes(const ImageObjects& objects) {
  std::vector<vision::LabeledBox> boxes;
  const auto height = static_cast<float>(objects.size.height);
  const auto width = static_cast<float>(objects.size.width);
  for (vision::LabeledBox object : objects.boxes) {
    vision::Box& box = object.box;
    box = {std::max(box.y0, 0.0f), std::max(box.x0, 0.0f), std::min(box.y1, height),
           std::min(box.x1, width)};
    if (!object.difficult && box.y0 < box.y1 && box.x0 < box.x1) boxes.push_back(object);
  }
  return boxes;
}

namespace {

// For each place of the result along one axis the place in the picture; -1: beside it.
std::vector<int> PlacesOf(int window_begin, int window_size, int resized, int box_begin,
                          int box_size, bool mirrored) {
  // Rows and columns are independent of each other: two lists of places make the whole map.
  std::vector<int> places(static_cast<std::size_t>(window_size), -1);
  for (int i = 0; i < window_size; ++i) {
    const int at = window_begin + i;
    if (at < 0 || at >= resized) continue;
    const int to = mirrored ? window_size - 1 - i : i;
    places[static_cast<std::size_t>(to)] = box_begin + NearestPlace(at, box_size, resized);
  }
  return places;
}

}  // namespace

std::int64_t ShowLabels(const ShownPart& part, const Picture& labels, std::int32_t* out) {
  ADA_CHECK(labels.channels == 1 && labels.size() == part.stored);
  const Box &box = part.box, &window = part.window;
  const std::vector<int> rows =
      PlacesOf(window.top, window.height, part.resized.height, box.top, box.height, false);
  const std::vector<int> columns =
      PlacesOf(window.left, window.width, part.resized.width, box.left, box.width, part.flip);
  std::int64_t labeled = 0;
  for (const int row : rows) {
    const std::uint8_t* in = labels.pixels.data() + std::int64_t{std::max(row, 0)} * labels.width;
    for (const int column : columns) {
      const std::uint8_t label = row < 0 || column < 0 ? kIgnoredPixel : in[column];
      labeled += label != kIgnoredPixel;
      *out++ = label == kIgnoredPixel ? kNoLabel : label;
    }
  }
  return labeled;
}

std::vector<vision::LabeledBox> ShowBoxes(const ShownPart& part,
                                          const std::vector<vision::LabeledBox>& boxes) {
  std::vector<vision::LabeledBox> moved = boxes;
  for (vision::LabeledBox& object : moved) {
    const vision::Box in_box = Translated(object.box, static_cast<float>(-part.box.top),
                                          static_cast<float>(-part.box.left));
    object.box = ResizedBox(in_box, {part.box.height, part.box.width}, part.resized);
  }
  moved = CropBoxes(moved, part.window);
  if (part.flip)
    for (vision::LabeledBox& object : moved) object.box = Mirrored(object.box, part.window.width);
  return moved;
}

}  // namespace ada::data

#include "data/objects.h"

#include <algorithm>

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

}  // namespace ada::data

// What a network is trained for: it decides the targets, the loss and the metrics of a run.
#pragma once
#include <cstdint>

namespace ada {

enum class Task : std::uint8_t {
  kClassification,  // one label an image; softmax cross-entropy
  kSegmentation,    // one label a pixel; softmax cross-entropy by pixel
  kDetection,       // boxes with labels; the loss of SSD over default boxes
  kLanguage,        // the next token for each token of a text; softmax cross-entropy by token
};

// Whether predictions are measured class by class, by label images or boxes, in addition to the
// loss.
constexpr bool MeasuresClasses(Task task) {
  return task == Task::kSegmentation || task == Task::kDetection;
}

}  // namespace ada

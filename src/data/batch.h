// A batch of images or sequences, as it is made on the host.
#pragma once
#include <cstdint>
#include <vector>

#include "data/file_fault.h"

namespace ada::data {

// The trainer takes this for one step, or one process's part of it. All vectors have the same rows
// in the same order.
struct Batch {
  std::vector<float> images;              // [rows, h, w, c], normalized
  std::vector<std::uint8_t> bytes = {};   // LoaderSpec::as_bytes: instead, as they are before that
  std::vector<std::int32_t> tokens = {};  // language: instead, [rows, context]
  // [rows, labels of an image]: its class; the class of each pixel, or the target of each token
  // (kNoLabel: none); or of each default box, 0 for background, else 1 + class.
  std::vector<std::int32_t> labels;
  // Detection: [rows, default boxes, 4], as vision::BoxCoder encodes them; else empty.
  std::vector<float> locations = {};
  // What the loss is a mean over: rows; pixels that have a class; default boxes of an object;
  // tokens that have a target.
  std::int64_t terms = 0;
  std::vector<std::uint32_t> numbers;  // which images of the data set they are; of windows that
                                       // are drawn, how many drawings of the epoch came before
  int rows = 0;
  int whole_rows = 0;  // of all parts; but for broken images that are left out
  // For a batch that was mixed each row's second label and the share of its first; else empty.
  std::vector<std::int32_t> second_labels = {};
  std::vector<float> shares = {};
  std::vector<BrokenImage> broken = {};  // in the order of their rows; replaced or left out
};

}  // namespace ada::data

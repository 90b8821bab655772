// What a network said of one image: the same view of its logits that the loss takes.
#pragma once
#include <cstdint>
#include <functional>

namespace ada::train {

struct ImageResult {
  std::int64_t image = 0;  // in its split, from 0, in the order of the files
  std::int32_t label = 0;
  std::int32_t prediction = -1;  // the largest logit, the first of equals; -1: all are NaN
  double probability = 0, label_probability = 0;  // softmax, of the prediction and of the label
  double loss = 0;                                // cross-entropy, not smoothed
  // Of the label among the logits, from 1: how many are larger, or equal with a lower index, plus
  // one; 1 is a top-1 hit, up to 5 a top-5 hit. 0: its logit is NaN, which is neither.
  std::int64_t rank = 0;
};
using ImageVisitor = std::function<void(const ImageResult&)>;

// Of `classes` logits in fp32, in double arithmetic. label in 0..classes-1.
ImageResult JudgeImage(const float* logits, int classes, std::int32_t label);

}  // namespace ada::train

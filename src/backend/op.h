// What a backend makes: ops, the pass that each of their calls is part of, and a data set in its
// memory.
#pragma once
#include <cmath>
#include <cstdint>

#include "core/host_device.h"
#include "core/tensor.h"

namespace ada::backend {

// What one call of an op is part of.
struct Pass {
  int rows = 0;             // images of this call, at most the n of the tensors
  bool training = true;     // false: running statistics, no dropout
  bool count = false;       // fill every field of the TensorStats, not only max_abs
  bool accumulate = false;  // add to dw and db instead of replacing them (later micro-batches)
  // What the loss is a mean over, of all micro-batches: images; labeled pixels; positive default
  // boxes. 0: the gradients are zero.
  std::int64_t loss_terms = 0;
  float loss_scale = 1;              // S of the loss's gradients
  std::uint64_t seed = 0, draw = 0;  // key and counter of dropout's and rounding's random numbers
  double edge = INFINITY;            // TensorStats::above_edge, where `count` is set
  bool bins = false;                 // fill RoundingStyle::bins as well; goes with `count`
  // Several processes share the batch: where, among the rows of all, those of this call begin.
  // Random numbers go by it.
  std::int64_t first_row = 0;
  int whole_rows = 0;  // of this call, in all processes; 0: no other takes part
  float share = 1;     // of the images of the whole batch, those of this process
  // They do, so that dw and db are a part of a sum: they stay fp32, neither rounded nor counted,
  // until FinishGradients.
  bool part = false;
};

class Op {
 public:
  virtual ~Op() = default;
  virtual void Forward(const Pass& pass) = 0;
  virtual void Backward(const Pass& pass) = 0;
  // Masters changed: makes the low-precision copies anew. It reads count, bins, seed and draw of
  // `pass`.
  virtual void RefreshWeights(const Pass& /*pass*/) {}
  // After the last Backward of a batch whose passes were `part`s: dw and db hold the sums of all
  // processes by now, and are rounded and counted.
  virtual void FinishGradients(const Pass& /*pass*/) {}
};

// Loss and hits of one call, summed over its terms: images; labeled pixels; positive default
// boxes.
struct LossResult {
  double loss_sum = 0;      // of their losses, weights and label smoothing included
  double location_sum = 0;  // the part of it that is of boxes' locations
  std::int64_t top1 = 0, top5 = 0;

  ADA_HOST_DEVICE void Add(const LossResult& more) {
    loss_sum += more.loss_sum, location_sum += more.location_sum;
    top1 += more.top1, top5 += more.top5;
  }
};
// A second label of each row, of host memory, and the share of the first in its target; null: rows
// have one label.
struct SecondLabels {
  const std::int32_t* labels = nullptr;
  const float* shares = nullptr;
  SecondLabels From(int row) const {
    return labels == nullptr ? SecondLabels{} : SecondLabels{labels + row, shares + row};
  }
};
// The targets of a batch, in host memory.
struct Targets {
  // [rows, labels of an image], each a class: one; one a pixel, row by row, a negative one being
  // ignored; one a default box, 0 being the background and a negative one ignored.
  const std::int32_t* labels = nullptr;
  // Where rows are images with two labels (ClassLossSpec::mixes). Hits are of the label with the
  // larger share, of equals the first.
  SecondLabels second = {};
  const float* locations = nullptr;  // of boxes: [rows, boxes, 4], encoded
};
class LossOp : public Op {
 public:
  // Sets the targets of the next calls; they are copied before it returns. A label that is no class
  // is a mistake of the caller.
  virtual void SetTargets(const Targets& targets, int rows) = 0;
  // The sums of all Forwards since the last one whose Pass::accumulate was false, that one
  // included; each Forward's own sum is added as a whole. Waits for them.
  virtual LossResult Result() = 0;
  // Where SetTargets puts the labels of images, for what fills them in backend memory; null: it has
  // no such place.
  virtual std::int32_t* LabelMemory() { return nullptr; }
};
// Images as bytes, in host memory.
struct ByteImages {
  const std::uint8_t* bytes = nullptr;  // [rows, h, w, c]
  const float* table = nullptr;         // [c][256]: what a byte stands for
  int rows = 0;
};
// Brings a batch to where an input op reads it while ops still work on the batch before it.
class ByteFeed {
 public:
  virtual ~ByteFeed() = default;
  // Copied before it returns. The number of this sending; it stays until the second that follows.
  virtual std::int64_t Send(const ByteImages& images) = 0;
  // The next passes read what was sent under this number. To be called outside Backend::Run.
  virtual void Take(std::int64_t number) = 0;
};
class InputOp : public Op {
 public:
  virtual void SetImages(const float* images, int rows) = 0;  // host memory [rows, h, w, c]
  // What takes bytes instead, to the same values; null where the backend does not (takes_bytes).
  virtual ByteFeed* byte_feed() { return nullptr; }
};

// A data set in backend memory, of which batches are made there.
// Pointers are of host memory, copied when the source is made.
struct ImageSourceSpec {
  const std::uint8_t* pixels = nullptr;  // [images, h, w, c]
  const std::uint16_t* labels = nullptr;
  std::int64_t images = 0;
  Shape image;  // n = 1
  int pad = 0;
  bool random_crop = false, horizontal_flip = false;
  const float* table = nullptr;  // [c][256]: what a byte stands for
  std::uint64_t seed = 0;
};
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  // Numbers of images on the host, as many as there are, copied; null: 0, 1, 2, ...
  virtual void SetOrder(const std::uint32_t* order) = 0;
  // Images first .. first + rows of the order, augmented as in `epoch`, in fp32 [rows, h, w, c],
  // and their labels, both into backend memory. To be called outside Backend::Run.
  virtual void Fill(std::int64_t epoch, std::int64_t first, int rows, float* images,
                    std::int32_t* labels) = 0;
};

}  // namespace ada::backend

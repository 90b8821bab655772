// Interfaces of what a backend makes (ops, data sets in its memory), and Pass, which describes the
// forward or backward pass that a call of an op belongs to.
#pragma once
#include <cmath>
#include <cstdint>

#include "number/host_device.h"
#include "number/tensor.h"

namespace ada::backend {

// The pass that a call of an op belongs to.
struct Pass {
  int rows = 0;             // images of this call, at most the n of the tensors
  bool training = true;     // false: running statistics, no dropout
  bool count = false;       // fill every field of the TensorStats, not only max_abs
  bool accumulate = false;  // add to dw and db instead of replacing them (later micro-batches)
  // The number of terms that the loss is averaged over, in all micro-batches together: images,
  // labeled pixels or positive default boxes. With 0 the gradients are zero.
  std::int64_t loss_terms = 0;
  float loss_scale = 1;              // S of the loss's gradients
  std::uint64_t seed = 0, draw = 0;  // key and counter of dropout's and rounding's random numbers
  double edge = INFINITY;            // TensorStats::above_edge, where `count` is set
  bool bins = false;                 // fill RoundingStyle::bins as well; goes with `count`
  // Where several processes share the batch: the index of this call's first row among the rows of
  // all processes. Random numbers depend on it.
  std::int64_t first_row = 0;
  int whole_rows = 0;  // rows of this call in all processes; 0: there is only this one
  float share = 1;     // this process's share of the images of the whole batch
  // True where several processes share the batch, so that dw and db are partial sums: they stay
  // fp32, neither rounded nor counted, until FinishGradients.
  bool part = false;
};

class Op {
 public:
  virtual ~Op() = default;
  virtual void Forward(const Pass& pass) = 0;
  virtual void Backward(const Pass& pass) = 0;
  // Rounds the low-precision copies of the weights again, after the masters changed. Reads count,
  // bins, seed and draw of `pass`.
  virtual void RefreshWeights(const Pass& /*pass*/) {}
  // Called after the last Backward of a batch whose passes had `part` set, when dw and db hold the
  // sums over all processes: rounds and counts them.
  virtual void FinishGradients(const Pass& /*pass*/) {}
};

// Loss and hits (top-1, top-5) of one call, summed over its terms: images, labeled pixels or
// positive default boxes.
struct LossResult {
  double loss_sum = 0;      // including class weights and label smoothing
  double location_sum = 0;  // the part of it that comes from the locations of boxes
  std::int64_t top1 = 0, top5 = 0;

  ADA_HOST_DEVICE void Add(const LossResult& more) {
    loss_sum += more.loss_sum, location_sum += more.location_sum;
    top1 += more.top1, top5 += more.top5;
  }
};
// A second label for each row, in host memory, and the share of the first one in the target; null
// where rows have one label.
struct SecondLabels {
  const std::int32_t* labels = nullptr;
  const float* shares = nullptr;
  SecondLabels From(int row) const {
    return labels == nullptr ? SecondLabels{} : SecondLabels{labels + row, shares + row};
  }
};
// The targets of a batch, in host memory.
struct Targets {
  // [rows, labels of an image], each a class: one for an image; or one for each pixel, row by row,
  // ignored if negative; or one for each default box, 0 being background, ignored if negative.
  const std::int32_t* labels = nullptr;
  // Set where images may have two labels (ClassLossSpec::mixes). Hits are counted for the label
  // with the larger share, or for the first if both are equal.
  SecondLabels second = {};
  const float* locations = nullptr;  // of boxes: [rows, boxes, 4], encoded
};
class LossOp : public Op {
 public:
  // Sets the targets of the following calls; they are copied before it returns. The caller must
  // make sure that every label is a class.
  virtual void SetTargets(const Targets& targets, int rows) = 0;
  // Returns the sums over all Forwards since the last one whose Pass::accumulate was false,
  // including that one; each Forward's own sum is added as a whole. Waits for them.
  virtual LossResult Result() = 0;
  // Returns the backend memory in which SetTargets stores the labels of images, for code that fills
  // it on the device; null if there is none.
  virtual std::int32_t* LabelMemory() { return nullptr; }
};
// Images as bytes, in host memory.
struct ByteImages {
  const std::uint8_t* bytes = nullptr;  // [rows, h, w, c]
  const float* table = nullptr;         // [c][256]: what a byte stands for
  int rows = 0;
};
// Transfers the next batch to where an input op reads it while ops still work on the current one.
class ByteFeed {
 public:
  virtual ~ByteFeed() = default;
  // Copies `images` before it returns. The number returned is valid until the second Send after it.
  virtual std::int64_t Send(const ByteImages& images) = 0;
  // Makes the following passes read the transfer of this number. Call it outside of Backend::Run.
  virtual void Take(std::int64_t number) = 0;
};
class InputOp : public Op {
 public:
  virtual void SetImages(const float* images, int rows) = 0;  // host memory [rows, h, w, c]
  // Takes bytes instead, which give the same values; null where takes_bytes() is false.
  virtual ByteFeed* byte_feed() { return nullptr; }
};

// A data set to be kept in backend memory, where batches are made from it. Pointers are to host
// memory, which is copied when the source is made.
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
  // Sets the order of the images: one index for each, on the host, copied; null: 0, 1, 2, ...
  virtual void SetOrder(const std::uint32_t* order) = 0;
  // Writes images first .. first + rows of the order, augmented as in `epoch`, as fp32 [rows, h, w,
  // c] and their labels, both to backend memory. Call it outside of Backend::Run.
  virtual void Fill(std::int64_t epoch, std::int64_t first, int rows, float* images,
                    std::int32_t* labels) = 0;
};

}  // namespace ada::backend

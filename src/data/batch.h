// A batch of images or sequences, as it is made on the host: what it holds, how the images of one
// split are turned into it, which images of an epoch it has, and how two of them are mixed.
//
// mixup (Zhang et al. 2018) and cutmix (Yun et al. 2019) make two images of a batch one that has
// the labels of both. As torchvision.transforms.v2.MixUp and CutMix do: one draw a batch, and each
// row meets the row before it (the first one the last).
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/file_fault.h"
#include "data/settings.h"

namespace ada::vision {

class BoxCoder;

}  // namespace ada::vision

namespace ada::data {

struct Batch;

// Holds the keys data.augment.mixup and data.augment.cutmix.
struct Mixing {
  double mixup_alpha = 0, mixup_p = 1;    // alpha 0: never; p: share of the batches
  double cutmix_alpha = 0, cutmix_p = 1;  // of the batches too: one of the two, or none
  bool any() const { return mixup_alpha > 0 || cutmix_alpha > 0; }
};

struct MixedShape {
  std::int64_t height = 0, width = 0, channels = 0;
};
// A box of rows top..bottom - 1 and columns left..right - 1.
struct MixBox {
  std::int64_t top = 0, left = 0, bottom = 0, right = 0;
};

// What batch `sequence` (counted from the first of epoch 0) of a run becomes. share: of each row
// itself; mixup: drawn from Beta(alpha, alpha); cutmix: what the box leaves of the image, whose
// side is sqrt(1 - draw) of the image's, around a random point, cut off at the edges.
struct MixDraw {
  enum class Kind : std::uint8_t { kNone, kMixup, kCutmix } kind = Kind::kNone;
  double share = 1;
  MixBox box;
};
MixDraw DrawMix(const Mixing& mixing, std::uint64_t seed, std::int64_t sequence,
                const MixedShape& shape);

// Mixes the batch's images, in fp32 after their normalization, as drawn, and fills in second_labels
// and shares; where nothing is drawn they become empty. Rows of several processes are mixed within
// each process: BatchMaker gives each the row before its first one.
void MixBatch(const Mixing& mixing, std::uint64_t seed, std::int64_t sequence,
              const MixedShape& shape, Batch* batch);

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

// What becomes of an image that cannot be read.
enum class OnBroken : std::uint8_t {
  kFail,
  kReplace,   // the next image of the data set that can be read stands in for it
  kLeaveOut,  // the batch has a row less, and may have none
};

// The part of each batch that one of several processes takes: the share of number `index` of `of`
// in every `micro` rows (0: in all), as ShareOf has it.
struct BatchPart {
  int index = 0, of = 1, micro = 0;
};

// Made from the configuration, once for training and once for evaluation, where nothing is random.
// A batch is a function of all of its members except workers and prefetch, which only decide when
// it is made.
struct LoaderSpec {
  int batch_size = 128;
  BatchPart part = {};
  bool shuffle = false, drop_last = false;
  int pad = 0;  // black pixels (0 before normalizing) around it, to crop from;
                // without random_crop it changes nothing
  bool random_crop = false, horizontal_flip = false;
  std::vector<double> mean, std;  // per channel; empty: pixels / 255, fp32 values as they are
  std::uint64_t seed = 1;
  int workers = 1;   // threads; 0: in the caller's thread
  int prefetch = 4;  // batches ahead
  ImageChanges changes = {};
  Mixing mixing = {};
  OnBroken on_broken = OnBroken::kFail;
  // Batches have `bytes` instead of `images`. Only where ComeAsBytes.
  bool as_bytes = false;
  // Makes the targets of a set with boxes: needed there, and null elsewhere.
  std::shared_ptr<const vision::BoxCoder> coder = {};
};
// Whether images of a batch are bytes until they are normalized: not where they are fp32 in their
// files, or are erased or mixed, which is done to normalized values.
bool ComeAsBytes(const Dataset& dataset, const LoaderSpec& spec);

using Order = std::vector<std::uint32_t>;

// A uniformly random permutation of 0..images-1 (Fisher and Yates; Knuth's algorithm P).
Order ShuffledOrder(std::uint64_t seed, std::int64_t epoch, std::int64_t images);

// Remembers the orders of the epochs last asked for. Safe from several threads. Shuffling takes a
// while for large sets, and each part of each batch asks for its epoch's order.
class OrderCache {
 public:
  OrderCache(std::uint64_t seed, std::int64_t images) : seed_(seed), images_(images) {}
  std::shared_ptr<const Order> Get(std::int64_t epoch);

 private:
  std::uint64_t seed_;
  std::int64_t images_;
  std::mutex mutex_;
  std::vector<std::pair<std::int64_t, std::shared_ptr<const Order>>> known_;  // oldest first
};

}  // namespace ada::data

// Batches from a data set: shuffling, augmentation and normalization on worker threads. Every batch
// is a pure function of (seed, epoch, index), whatever the threads do.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/file_fault.h"
#include "data/mixing.h"
#include "data/settings.h"

namespace ada::vision {
class BoxCoder;
}

namespace ada::data {

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

// How the images of one split are turned into batches. Made from the configuration, once for
// training and once for evaluation, where nothing is random. A batch is a function of all of its
// members except workers and prefetch, which only decide when it is made.
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

// Serves one thread, which calls Seek and Next; the threads that make batches are its own. It holds
// prefetch + 1 batches (one where there are no workers), each in memory that is used again.
class Loader {
 public:
  // The data set must outlive it, unchanged. Throws ConfigError where the two do not go together:
  // no images, drop_last without one whole batch, mean and std for another number of channels.
  Loader(const Dataset& dataset, const LoaderSpec& spec);
  ~Loader();
  std::int64_t batches_per_epoch() const;
  // Goes to batch `index` (from 0, at most batches_per_epoch) of `epoch` (from 0). Threads start at
  // the first Seek or Next.
  void Seek(std::int64_t epoch, std::int64_t index);
  // The next batch; goes on into the next epoch. Valid until the following call. What went wrong in
  // a worker is thrown here, by every call until a Seek.
  const Batch& Next();
  // The batch that the next Next will return, where it is made already; else, or where something
  // went wrong, null. Valid until that call.
  const Batch* Ahead();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ada::data

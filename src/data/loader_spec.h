// How the images of one split are turned into batches.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"
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

}  // namespace ada::data

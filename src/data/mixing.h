// mixup (Zhang et al. 2018) and cutmix (Yun et al. 2019): two images of a batch become one that has
// the labels of both. As torchvision.transforms.v2.MixUp and CutMix: one draw a batch, and each row
// meets the row before it (the first one the last).
#pragma once
#include <cstdint>

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

}  // namespace ada::data

// The consumer's part of a batch norm that is never stored (RecomputedNorm of specs.h): its values
// are made and its gradient is summed chunk by chunk, while both are in the cache.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cpu/context.h"
#include "backend/cpu/rounding/rounding_stats.h"

namespace ada::backend::cpu {

// Chunks begin at whole blocks of raw and end at one or with the pass's rows. Workers may call for
// different chunks at the same time.
class RecomputedInput {
 public:
  RecomputedInput(const Context& context, const RecomputedNorm& norm);

  // What `buffer` must hold for a chunk of `images` images; 64-byte aligned.
  std::size_t chunk_bytes(std::int64_t images) const;
  // z of images [image, image + images), in `buffer` and in z's storage; rounded and measured.
  TensorSpan Forward(const Pass& pass, std::int64_t image, std::int64_t images, std::byte* buffer);
  // The same bits, nothing measured.
  TensorSpan Recompute(const Pass& pass, std::int64_t image, std::int64_t images,
                       std::byte* buffer);
  // After the last chunk: merges what Forward measured into the batch norm's statistics.
  void FinishForward(const Pass& pass);
  // Masks the chunk's dx in place where z is not positive (relu) and writes its blocks' sums. dx is
  // rounded and measured already; z is what Recompute gave for the chunk.
  void TakeSums(std::int64_t image, std::int64_t images, TensorSpan z, TensorSpan dx) const;

 private:
  TensorSpan Normalize(const Pass& pass, std::int64_t image, std::int64_t images, std::byte* buffer,
                       bool counted);

  Context context_;
  RecomputedNorm norm_;
  int block_;
  std::int64_t channels_, pixels_;  // pixels of one image
  RoundingStats y_stats_;
};

}  // namespace ada::backend::cpu

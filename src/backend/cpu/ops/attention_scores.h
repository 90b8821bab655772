// Scores of attention and what is of their shape: [queries, keys] of all heads, which are never in
// memory whole. They are rounded, counted and dropped block by block (QueryBlock). And what the
// four decisions of attention look at (AttentionSpec, backend/attention_formulas.h).
#pragma once
#include "backend/backend.h"
#include "backend/cpu/context.h"
#include "backend/cpu/ops/attention_head.h"
#include "backend/cpu/rounding/rounding_stats.h"

namespace ada::backend::cpu {

// The blocks of all heads as a tensor of an image each, for RoundingStats; it has no memory.
Tensor ScoreBlocks(const AttentionSizes& sizes, std::int64_t images, const NumberFormat& format);

// Rounds and drops scores of a block for an attention op; workers call it at the same time, for
// different blocks.
class ScoreRounding {
 public:
  // sizes: kept by reference.
  ScoreRounding(const Context& context, const AttentionSpec& spec, const AttentionSizes& sizes)
      : context_(context), sizes_(sizes), dropout_(spec.dropout), stream_(spec.stream) {}

  // The blocks of a call as the images of ScoreBlocks.
  Pass PassOfBlocks(const Pass& pass) const;
  // Sets values of a block to zero by the mask, and divides the others by what stays of them.
  void Drop(const Pass& pass, const QueryBlock& block, const float* in, float* out) const;
  // out = round(in * factor) for the scores of a block, counted if `counts`. Keys that no query
  // sees are zero, and counted; padding of rows is not counted. stats: of ScoreBlocks.
  void Round(const Pass& pass, const QueryBlock& block, const float* in, float factor, float* out,
             RoundingStats& stats, bool counts) const;

 private:
  std::int64_t FirstValue(const Pass& pass, const QueryBlock& block) const;
  void RoundRows(const Pass& pass, const QueryBlock& block, const float* in, float factor,
                 float* out, Rounding rounding) const;

  Context context_;
  const AttentionSizes& sizes_;
  float dropout_;
  std::uint64_t stream_;
};

// Moments of `channels` channels of each position from `first` on, of `rows` images of all
// processes. Takes kMomentPositions * channels values of each worker's memory.
// An attention op asks for them where a rule looks at queries, keys or values, whose moments no
// rounding has: three of them may lie in one tensor.
inline constexpr std::int64_t kMomentPositions = 32;
TensorMoments MomentsOfPart(const Context& context, const Tensor& tensor, std::int64_t first,
                            std::int64_t channels, int rows);

}  // namespace ada::backend::cpu

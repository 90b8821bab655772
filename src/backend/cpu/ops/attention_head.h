// One head's products of attention, block of queries by block of queries: what a worker computes.
// Knows no scales, formats or counts: those are attention_op's.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backend/cpu/context.h"
#include "backend/cpu/sequence_kernels.h"

namespace ada::backend::cpu {

struct AttentionSizes {
  std::int64_t heads = 1, kv_heads = 1, width = 0, queries = 0, keys = 0;
  bool causal = false;
  static constexpr std::int64_t kRows = 32;  // queries of a block

  explicit AttentionSizes(const AttentionSpec& spec);
  static std::int64_t Padded(std::int64_t values) { return (values + 15) / 16 * 16; }
  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t blocks() const { return (queries + kRows - 1) / kRows; }
  std::int64_t step() const { return Padded(width); }  // of rows of queries, keys and values
  double factor() const { return 1 / std::sqrt(static_cast<double>(width)); }  // of scores
};

// Some queries of one head of one image, and what they see of the keys.
struct QueryBlock {
  std::int64_t image, head, index;  // index: of the block in its head
  std::int64_t first, rows;         // queries
  std::int64_t seen;                // keys that its last query sees
  std::int64_t width;               // values in a row of scores
  AttentionRows scores;
};
QueryBlock BlockOf(const AttentionSizes& sizes, std::int64_t image, std::int64_t head,
                   std::int64_t index);

// A worker's memory, in fp32. Rows of queries, keys and values lie AttentionSizes::step values
// apart, rows of scores QueryBlock::width.
struct HeadMemory {
  float *k, *v;    // [keys]
  float *kt, *vt;  // transposed: [width][keys], rows Padded(keys) apart
  float *q, *dy;   // [kRows]
  float *p, *pr, *dp;
  float* out;      // [kRows]
  float *dk, *dv;  // [keys]
  HeadMemory(const AttentionSizes& sizes, float* memory);
  static std::int64_t Values(const AttentionSizes& sizes);
};

class HeadProducts {
 public:
  HeadProducts(const Context& context, const AttentionSizes& sizes)
      : kernels_(context.kernels), sequence_(SequenceKernelsOf(context.kernels)), sizes_(sizes) {}

  // `count` rows of `sizes.width` values, `from_step` values apart, as fp32.
  void Load(const TensorSpan& from, std::int64_t from_step, std::int64_t count, float* to) const;
  void TransposeKeys(const float* rows, float* to) const;

  // p = softmax(q k^T / sqrt(width)).
  void Probabilities(const QueryBlock& block, const HeadMemory& m) const;
  // out = scores * rows of keys or values.
  void TimesRows(const QueryBlock& block, const float* scores, const float* rows, float* out) const;
  // sums += scores^T * rows of queries.
  void AddTransposed(const QueryBlock& block, const float* scores, const float* rows,
                     float* sums) const;
  // dp = dy v^T.
  void ProbabilityGradient(const QueryBlock& block, const HeadMemory& m) const;
  // dp becomes the gradient of the scores.
  void ScoreGradient(const QueryBlock& block, const HeadMemory& m) const {
    sequence_.score_gradient(block.scores, m.p, m.dp);
  }

 private:
  void TimesTransposed(const QueryBlock& block, const float* rows, const float* transposed,
                       float* scores) const;

  const Kernels& kernels_;
  const SequenceKernels& sequence_;
  const AttentionSizes& sizes_;
};

}  // namespace ada::backend::cpu

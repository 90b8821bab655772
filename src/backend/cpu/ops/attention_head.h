// One head's products of attention, block of queries by block of queries: what a worker computes.
// Knows no scales, formats or counts: those are attention_op's.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/ops/accumulated_head.h"
#include "backend/cpu/sequence_kernels.h"

namespace ada::backend::cpu {

// The sizes of one attention as its spec gives them. A position is a pixel of a tensor's image,
// read row by row; `width` is the number of values that a head has at a position.
struct AttentionSizes {
  std::int64_t heads = 1, kv_heads = 1, width = 0, queries = 0, keys = 0;
  bool causal = false;
  bool whole = false;            // operands are rounded, or judged, by whole matrices of a head
  std::int64_t line_blocks = 1;  // blocks of a line that have factors of their own (SumMemory)
  static constexpr std::int64_t kRows = 32;  // queries of a block

  explicit AttentionSizes(const AttentionSpec& spec);
  // Values up to the next multiple of 16: the kernels write whole vectors of the widest instruction
  // set, and what lies after a row's own values has to be zero.
  static std::int64_t Padded(std::int64_t values) { return (values + 15) / 16 * 16; }
  // Query heads that read one head of keys: 1 in plain multi-head attention.
  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t blocks() const { return (queries + kRows - 1) / kRows; }
  // Queries that are in a worker's memory at once.
  std::int64_t rows() const { return whole ? queries : kRows; }
  std::int64_t step() const { return Padded(width); }  // of rows of queries, keys and values
  // The step of rows of transposed keys and values. Products walk down their columns, whose values
  // would share few places of a core's cache if they lay a power of two apart.
  std::int64_t transposed_step() const { return Padded(keys) + (Padded(keys) % 256 == 0 ? 16 : 0); }
  double factor() const { return 1 / std::sqrt(static_cast<double>(width)); }  // of scores
};

// Some queries of one head of one image, and what they see of the keys.
struct QueryBlock {
  std::int64_t image, head, index;  // index: of the block in its head
  std::int64_t first, rows;         // queries
  std::int64_t seen;                // keys that its last query sees
  std::int64_t width;               // values in a row of scores
  // How the sequence kernels see the rows of scores of this block, with the causal mask in it.
  AttentionRows scores;
};
// Block `index` of a head: kRows queries, fewer in the last one. Under a causal mask it sees only
// the keys up to its last query, so that its rows are shorter than those of later blocks; not of
// whole matrices.
QueryBlock BlockOf(const AttentionSizes& sizes, std::int64_t image, std::int64_t head,
                   std::int64_t index);

// A worker's memory, in fp32. Rows of queries, keys and values lie AttentionSizes::step values
// apart, rows of scores QueryBlock::width.
struct HeadMemory {
  float *k, *v;    // [keys]
  float *kt, *vt;  // transposed: [width][keys]
  float *q, *dy;   // [AttentionSizes::rows]
  float *p, *pr, *dp;
  float* out;      // [kRows]
  float *dk, *dv;  // [keys]
  // Whole matrices have these too: rounded keys, rounded queries or dy, memory of roundings, and
  // the factors of rows (SumMemory::lines) by operand.
  float *k_rounded = nullptr, *q_rounded = nullptr, *work = nullptr, *lines = nullptr;
  SumMemory sums;               // where accumulators make sums
  SumMemory* judged = nullptr;  // by HeadMatmuls::judged
  // Cuts `memory`, which belongs to the caller and holds Values(sizes) values, into the parts
  // above.
  HeadMemory(const AttentionSizes& sizes, float* memory);
  // The same from row `row` of queries and scores on, whose rows have `width` values.
  HeadMemory From(const AttentionSizes& sizes, std::int64_t row, std::int64_t width) const;
  static std::int64_t MostLines(const AttentionSizes& sizes);
  static std::int64_t WorkValues(const AttentionSizes& sizes);  // four matrices without padding
  static std::int64_t Values(const AttentionSizes& sizes);
};

// The products of one head. An attention op makes one for itself and calls it from every worker,
// each with its own HeadMemory: it has no state that a call changes. `context.kernels` and `sizes`
// are kept by reference and have to outlive it.
class HeadMatmuls {
 public:
  HeadMatmuls(const Context& context, const AttentionSpec& spec, const AttentionSizes& sizes);
  // Those whose sums accumulators make.
  const HeadSums& sums() const { return sums_; }
  // Those that are made to be judged, by rule.
  const std::vector<HeadSums>& judged() const { return judged_; }

  // Keys or values with positions along a row, as the products with transposed keys read them; the
  // padding of each row becomes zero.
  void TransposeKeys(const float* rows, float* to) const;

  // p = softmax(q k^T / sqrt(width)).
  // Reads m.q and m.kt, writes m.p; what a row does not see becomes 0.
  void Probabilities(const QueryBlock& block, const HeadMemory& m) const;
  // m.out = p v (with p as it is multiplied), or ds k.
  // Only the block.seen keys that some query of the block sees are read.
  void Outputs(const QueryBlock& block, const float* p, const HeadMemory& m) const;
  void QueryGradient(const QueryBlock& block, const HeadMemory& m) const;
  // m.dv += p^T dy, m.dk += ds^T q.
  // Blocks have to be added in their order: sums of fp32 depend on it.
  void AddValueGradient(const QueryBlock& block, const float* p, const HeadMemory& m) const;
  void AddKeyGradient(const QueryBlock& block, const HeadMemory& m) const;
  // dp = dy v^T.
  void ProbabilityGradient(const QueryBlock& block, const HeadMemory& m) const;
  // dp becomes the gradient of the scores.
  void ScoreGradient(const QueryBlock& block, const HeadMemory& m) const {
    sequence_.score_gradient(block.scores, m.p, m.dp);
  }

 private:
  MatrixArgs TimesTransposed(const QueryBlock& block, const float* rows, const float* transposed,
                             float* scores) const;
  MatrixArgs TimesRows(const QueryBlock& block, const float* scores, const float* rows,
                       float* out) const;
  void Multiply(scaling::LayerMatmul matmul, AttentionOperand a, AttentionOperand b,
                const MatrixArgs& args, std::int64_t columns, const QueryBlock& block,
                const HeadMemory& m) const;
  void AddTransposed(const QueryBlock& block, AttentionOperand a, const float* scores,
                     AttentionOperand b, const float* rows, float* sums,
                     RunningSums SumMemory::*running, const HeadMemory& m) const;

  const SequenceKernels& sequence_;
  const AttentionSizes& sizes_;
  HeadSums sums_;
  std::vector<HeadSums> judged_;
};

}  // namespace ada::backend::cpu

// The sizes of an attention, and what one of its passes multiplies: how operands and results lie in
// scratch memory, the chunks of heads whose scores are in memory at a time, and their products.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/decide.h"
#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/matmuls.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {

// Heads of keys of all images, one after the other, with the queries that read them.
struct ScoreChunk {
  std::int64_t first = 0, heads = 0;
  std::int64_t before = 0, values = 0;  // scores of the call before these, and of these
  FlatBlocks flat;
  int first_block = 0, blocks = 0;  // blocks: of all chunks of the call
  bool is_last() const { return first_block + flat.blocks == blocks; }
};

// The scores of a call in chunks, so that only those of some heads are in memory at a time. How
// they are cut is fixed by the shapes alone, but that a call of fewer images has fewer of them.
// Made once with an attention op. A chunk has as many heads as `most` scores allow, at least one,
// but never more than a batched matmul can have matrices.
class ScoreChunks {
 public:
  // each: scores of a head of keys; heads: of a whole batch; most: scores of a chunk of several
  // heads.
  ScoreChunks(std::int64_t each, std::int64_t heads, std::int64_t most)
      : each_(each),
        heads_(std::min(heads, std::clamp<std::int64_t>(most / each, 1, kMostBatches))),
        chunks_((heads + heads_ - 1) / heads_) {}
  // How many the largest chunk has.
  std::int64_t heads() const { return heads_; }
  std::int64_t values() const { return heads_ * each_; }
  // Where whole chunks of values of the batch lie: the first value of chunk k, on a multiple of 4.
  std::int64_t Place(std::int64_t chunk) const { return chunk * ((values() + 3) / 4 * 4); }
  std::int64_t count() const { return chunks_; }
  // The most that a call has.
  int most_blocks() const { return static_cast<int>(chunks_ * MostFlatBlocksOf(values())); }

  // Calls body(chunk, its number) for the chunks of this many heads.
  template <class Body>
  void For(std::int64_t heads, Body&& body) const {
    const std::int64_t count = (heads + heads_ - 1) / heads_;
    const FlatBlocks whole = FlatBlocksOf(values());
    for (std::int64_t k = 0; k < count; ++k) {
      ScoreChunk chunk;
      chunk.first = k * heads_, chunk.heads = std::min(heads_, heads - chunk.first);
      chunk.before = chunk.first * each_, chunk.values = chunk.heads * each_;
      chunk.flat = FlatBlocksOf(chunk.values);
      chunk.first_block = static_cast<int>(k) * whole.blocks;
      const std::int64_t last = heads - (count - 1) * heads_;
      chunk.blocks = static_cast<int>(count - 1) * whole.blocks + FlatBlocksOf(last * each_).blocks;
      body(chunk, k);
    }
  }

 private:
  std::int64_t each_, heads_, chunks_;
};

// As RoundingStats::Round, of a chunk's values: value(i) and `out` from its first on. The last
// chunk's launch writes the statistics. launch(kernel, blocks) launches it.
template <class Value, class LaunchIt>
void RoundChunk(const RoundingStats& stats, const Pass& pass, const ScoreChunk& chunk,
                const TensorSpan& out, const Value& value, const LaunchIt& launch) {
  Rounding how = stats.For(pass);
  how.first += chunk.before;
  stats.AtLevel(pass, [&](auto level) {
    using Kernel = RoundValuesKernel<Value, decltype(level)::value>;
    launch(
        PartOfLaunch<Kernel>{
            {{how, chunk.values, chunk.flat.size}, value, out}, chunk.first_block, chunk.blocks},
        chunk.flat.blocks);
  });
}
// The same without statistics.
template <class Value>
void RoundChunkAgain(Stream& stream, const RoundingStats& stats, const Pass& pass,
                     const ScoreChunk& chunk, const TensorSpan& out, const Value& value) {
  Rounding how = stats.For(pass);
  how.first += chunk.before;
  using Kernel = RoundValuesKernel<Value, StatsLevel::kNone>;
  Launch(stream, Kernel{{how, chunk.values, chunk.flat.size}, value, out}, chunk.flat.blocks);
}

// --- Memory and products ---

// The storage in which a pass multiplies queries, keys, values and probabilities, backwards
// gradients of y and of scores as well: 16 bits where all of them have the same, else fp32.
Storage CommonOperands(const AttentionSpec& spec, bool backward);

// The sizes of an attention, from its spec; a position is a pixel of a tensor's image. Matmuls
// treat a head of keys, with all queries that read it, as one matrix.
struct AttentionSizes {
  std::int64_t heads = 1, kv_heads = 1, width = 0, queries = 0, keys = 0;
  bool causal = false, fused = false;

  // Throws ConfigError where a batch has more scores than fit.
  explicit AttentionSizes(const AttentionSpec& spec);
  double factor() const { return 1 / std::sqrt(static_cast<double>(width)); }  // of scores
  // Rows of scores, and scores, of a head of keys.
  std::int64_t Rows() const { return heads / kv_heads * queries; }
  std::int64_t Scores() const { return Rows() * keys; }
  // Parts are queries (0), keys (1) and values (2): how many values of an image they are, and where
  // they begin among the channels of their tensor.
  std::int64_t ValuesOfPart(std::size_t part) const {
    return part == 0 ? queries * heads * width : keys * kv_heads * width;
  }
  std::int64_t FirstOf(std::size_t part) const {
    return !fused || part == 0 ? 0 : (heads + (part == 2 ? kv_heads : 0)) * width;
  }
  // The shapes of tensors that hold nothing else.
  HeadShape Queries() const { return ShapeOf(heads, queries); }
  HeadShape Keys() const { return ShapeOf(kv_heads, keys); }
  ScoreShape Shape() const {
    return {static_cast<std::uint32_t>(queries), static_cast<std::uint32_t>(keys), causal};
  }

 private:
  HeadShape ShapeOf(std::int64_t of_heads, std::int64_t positions) const {
    const auto size = [](std::int64_t n) { return static_cast<std::uint32_t>(n); };
    return {size(of_heads), size(positions), size(width), size(of_heads * width), 0};
  }
};

// The plan of one way of an attention: an op makes one for the forward and one for the backward
// pass. Places are in the scratch memory that all ops share, so that nothing in them outlives a
// call.
class AttentionMemory {
 public:
  // s = q k^T, y = p v; dv = p^T dy, dp = dy v^T, dq = ds k, dk = ds^T q. A plan has those of its
  // own way, and kScores.
  enum AttentionMatmul : std::uint8_t { kScores, kY, kDv, kDp, kDq, kDk, kAttentionMatmuls };
  AttentionMemory(const Context& context, const AttentionSpec& spec, const AttentionSizes& sizes,
                  const ScoreChunks& chunks, bool backward);

  // CommonOperands of its way.
  Storage operands() const { return operands_; }
  std::size_t bytes() const { return bytes_; }

  // Forward: without dy, the gradients, dp and slopes; backward: without y.
  // The memory of a pass; bytes() of scratch memory are enough for it.
  struct Places {
    TensorSpan q, k, v, dy;   // by head, of the batch
    float *y, *dq, *dk, *dv;  // sums by head, of the batch
    float *scores, *dp;       // of a chunk
    TensorSpan rounded;       // the same, as they are multiplied
    ScoreSum* sums;           // by row of a chunk
    double* slopes;           // the same
  };
  Places At(std::byte* scratch) const { return LayOut(scratch).places; }

  // The product of a chunk's heads: first and second are of the batch or, where they are scores, of
  // the chunk; likewise what comes of it.
  void Multiply(AttentionMatmul product, const ScoreChunk& chunk, const TensorSpan& first,
                const TensorSpan& second, float* out) const;

 private:
  // How far apart the operands and results of consecutive heads of keys are, and which of them are
  // scores, which begin with the chunk.
  struct Sides {
    std::int64_t first = 0, second = 0, out = 0;  // values of a head of keys
    bool first_is_scores = false, out_is_scores = false;
  };
  struct Layout {
    Places places;
    std::size_t bytes;
  };
  // With null it only counts bytes.
  Layout LayOut(std::byte* scratch) const;
  void Plan(const Context& context, AttentionMatmul product, const BatchedRequest& request,
            Sides sides);

  AttentionSizes sizes_;
  std::int64_t images_;
  ScoreChunks chunks_;
  bool backward_;
  Storage operands_;
  std::size_t bytes_ = 0;
  std::array<std::shared_ptr<BatchedMatmul>, kAttentionMatmuls> products_;
  std::array<Sides, kAttentionMatmuls> sides_;
};

}  // namespace ada::backend::cuda

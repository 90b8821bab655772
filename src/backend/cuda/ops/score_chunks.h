// The scores of a call in chunks, so that only those of some heads are in memory at a time. How
// they are cut is fixed by the shapes alone, but that a call of fewer images has fewer of them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

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
};

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
// chunk's launch writes the statistics.
template <class Value>
void RoundChunk(Stream& stream, const RoundingStats& stats, const Pass& pass,
                const ScoreChunk& chunk, const TensorSpan& out, const Value& value) {
  Rounding how = stats.For(pass);
  how.first += chunk.before;
  stats.AtLevel(pass, [&](auto level) {
    using Kernel = RoundValuesKernel<Value, decltype(level)::value>;
    Launch(stream,
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

}  // namespace ada::backend::cuda

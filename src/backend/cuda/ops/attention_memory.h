// The sizes of an attention, and what one of its passes multiplies: how operands and results lie in
// scratch memory, and the products of a chunk of heads.
#pragma once
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/matmuls.h"
#include "backend/cuda/ops/score_chunks.h"

namespace ada::backend::cuda {

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
  enum Product : std::uint8_t { kScores, kY, kDv, kDp, kDq, kDk, kProducts };
  AttentionMemory(const Context& context, const AttentionSpec& spec, const AttentionSizes& sizes,
                  const ScoreChunks& chunks, bool backward);

  // In which storage packed queries, keys, values and gradients of y are multiplied, and rounded
  // probabilities and gradients of scores with them: 16 bits where all of them have the same, else
  // fp32.
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
  void Multiply(Product product, const ScoreChunk& chunk, const TensorSpan& first,
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
  void Plan(const Context& context, Product product, const BatchedRequest& request, Sides sides);

  AttentionSizes sizes_;
  std::int64_t images_;
  ScoreChunks chunks_;
  bool backward_;
  Storage operands_;
  std::size_t bytes_ = 0;
  std::array<std::shared_ptr<BatchedMatmul>, kProducts> products_;
  std::array<Sides, kProducts> sides_;
};

}  // namespace ada::backend::cuda

// Fused attention: scores of 16 queries of one head in the shared memory of a block, which takes
// 16-bit rows of keys and values through it tile by tile.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/formulas.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// --- Operands ---

// Queries, keys, values or gradients of y where they are stored, in 16 bits: of `channels` channels
// of a position those of head h begin at first + h * width.
struct HeadOperand {
  ADA_HOST_DEVICE std::int64_t Begin(std::int64_t image, int position, int head) const {
    return (image * positions + position) * channels + first + std::int64_t{head} * width;
  }
  // Values c .. c + 7 of a head, where 8 divides c; zeros from `width` on.
  ADA_HOST_DEVICE Vec8Codes Vec8At(std::int64_t image, int position, int head, int c) const {
    const std::int64_t at = Begin(image, position, head) + c;
    if (vec8) return LoadVec8(span, at);
    const auto* codes = static_cast<const std::uint16_t*>(span.data) + at;
    Vec8Codes all = {};
    ADA_UNROLL
    for (int k = 0; k < 8; ++k)
      if (c + k < width) all.pair[k / 2] |= std::uint32_t{codes[k]} << (16 * (k % 2));
    return all;
  }
  // Values c .. c + 3, where 4 divides c.
  template <StorageType kStorageType>
  ADA_HOST_DEVICE Vec4 Vec4At(std::int64_t image, int position, int head, int c) const {
    const std::int64_t at = Begin(image, position, head) + c;
    if (vec4) return LoadVec4As<kStorageType>(span, at);
    const auto* codes = static_cast<const std::uint16_t*>(span.data) + at;
    Vec4 all = {};
    ADA_UNROLL
    for (int k = 0; k < 4; ++k)
      if (c + k < width) all.of[k] = WidenedCode<kStorageType>(codes[k]);
    return all;
  }

  TensorSpan span;
  std::int64_t channels, first;
  int positions, width;
  bool vec8, vec4;  // such runs of values lie on boundaries of their size
};

// a * b + sum. Products of two 16-bit values are exact in fp32, so that it is no matter whether
// they are rounded before they are added; below fp32's range it is, of values of bf16.
ADA_HOST_DEVICE inline float MultiplyAdd(float a, float b, float sum) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, sum);
#else
  return a * b + sum;
#endif
}

// body(std::integral_constant<StorageType, ...>()) for one of the two storages of 16 bits.
template <class Body>
ADA_HOST_DEVICE inline void WithStorageOf16(Storage storage, Body&& body) {
  if (storage == Storage::kF16)
    body(std::integral_constant<StorageType, StorageType::kF16>());
  else
    body(std::integral_constant<StorageType, StorageType::kBF16>());
}

// --- Tiles ---

inline constexpr int kAttentionRows = GroupThreads::kGroups;  // of a block
inline constexpr int kMostFusedKeys = 256, kMostFusedWidth = 128;

// Rows of a head in shared memory, 16 bytes at a time. Pitch() of these are an odd number, so that
// adjacent rows begin in different banks.
template <int kRowsOfTile>
struct HeadTile {
  static constexpr int kRows = kRowsOfTile;
  static ADA_HOST_DEVICE int VecsOf(int width) { return (width + 7) / 8; }
  static ADA_HOST_DEVICE int Pitch(int width) { return VecsOf(width) | 1; }
  // By all threads of a block: positions `begin` .. end - 1 of a head, zeros after these.
  ADA_HOST_DEVICE void Fill(int thread, const HeadOperand& from, std::int64_t image, int head,
                            int begin, int end) {
    const int vecs = VecsOf(from.width), pitch = Pitch(from.width);
    for (int i = thread; i < kRows * vecs; i += GroupThreads::kThreads) {
      const int row = i / vecs, vec = i - row * vecs;
      Vec8Codes codes = {};
      if (begin + row < end) codes = from.Vec8At(image, begin + row, head, 8 * vec);
      of[row * pitch + vec] = codes;
    }
  }
  Vec8Codes of[kRows * (kMostFusedWidth / 8 + 1)];
};

// A float for each score of a block. Two rows of one warp lie in different banks.
struct ScoreRows {
  static constexpr int kPitch = kMostFusedKeys + kSumLanes;
  ADA_HOST_DEVICE float& At(int row, int key) {
    const auto i = static_cast<unsigned>(row * kPitch + key);
    return of[i / 4].of[i % 4];
  }
  // Keys key .. key + 3, where 4 divides key.
  ADA_HOST_DEVICE const Vec4& Vec4At(int row, int key) const {
    return of[static_cast<unsigned>(row * kPitch + key) / 4];
  }
  Vec4 of[kAttentionRows * kPitch / 4];
};

// The products of a thread's row with every 16th row of the tile from the thread's lane on, one
// after the other along the width.
template <StorageType kStorageType, int kKeys>
ADA_HOST_DEVICE inline void MultiplyRows(const HeadTile<kAttentionRows>& rows,
                                         const HeadTile<kKeys>& keys, int width, int thread,
                                         float (&sums)[kKeys / kSumLanes]) {
  const int group = thread / kSumLanes, lane = thread % kSumLanes;
  const int vecs = HeadTile<1>::VecsOf(width), pitch = HeadTile<1>::Pitch(width);
  ADA_UNROLL
  for (float& sum : sums) sum = 0;
  for (int vec = 0; vec < vecs; ++vec) {
    const Vec8 a = Widened<kStorageType>(rows.of[group * pitch + vec]);
    ADA_UNROLL
    for (int k = 0; k < kKeys / kSumLanes; ++k) {
      const Vec8 b = Widened<kStorageType>(keys.of[(lane + k * kSumLanes) * pitch + vec]);
      ADA_UNROLL
      for (int e = 0; e < 8; ++e) sums[k] = MultiplyAdd(a.of[e], b.of[e], sums[k]);
    }
  }
}

// --- Scores of a block ---

// The rows of one block: queries `first` .. first + rows - 1 of a head, which see no key from
// `seen` on.
struct AttentionBlock {
  std::int64_t image;
  int head, kv_head, first, rows, seen;
  std::int64_t row;  // the first one's number among those of all heads and images
};

// Scores of all rows, and their softmax. A group of 16 threads has one row of a block, a thread
// every 16th key of it: the order in which ScoreSumsKernel adds. Phases 0 .. kPhases - 1 are Run's;
// in the next one Probabilities puts p in the place of scores. What a kernel has for them in shared
// memory (Work): scores; q, and in its place sums; keys, and in their place extremes.
struct FusedScores {
  static constexpr int kPhases = 3;
  struct Sums {
    double of[GroupThreads::kThreads];
  };
  struct Extremes {
    ScoreExtremes of[GroupThreads::kThreads];
  };
  using Own = ScoreSum;

  int RowBlocks() const { return (queries + kAttentionRows - 1) / kAttentionRows; }
  ADA_HOST_DEVICE AttentionBlock BlockOf(int block) const {
    const int per_head = (queries + kAttentionRows - 1) / kAttentionRows;
    const int of_all = block / per_head;
    AttentionBlock made;
    made.image = of_all / heads, made.head = of_all % heads;
    made.kv_head = made.head / (heads / kv_heads);
    made.first = (block - of_all * per_head) * kAttentionRows;
    made.rows = queries - made.first < kAttentionRows ? queries - made.first : kAttentionRows;
    made.seen = VisibleKeys(made.first + made.rows - 1);
    made.row = std::int64_t{of_all} * queries + made.first;
    return made;
  }
  ADA_HOST_DEVICE int VisibleKeys(int query) const {
    return causal && query + 1 < keys ? query + 1 : keys;
  }
  // Keys that rows have room for, of which a lane has every 16th.
  ADA_HOST_DEVICE int WholeKeys() const { return (keys + kSumLanes - 1) / kSumLanes * kSumLanes; }

  // Turns of a phase that takes all keys or values that a block sees through shared memory: each
  // tile is first filled, then used.
  template <int kTileKeys>
  ADA_HOST_DEVICE int Turns(int block) const {
    return 2 * ((BlockOf(block).seen + kTileKeys - 1) / kTileKeys);
  }
  template <int kPhase, class Work>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Work& work, Own& own) const {
    if constexpr (kPhase == 0) return Multiply(at, q, k, work.q, work.keys, work.scores);
    const AttentionBlock block = BlockOf(at.block);
    const int row = at.thread / kSumLanes, lane = at.thread % kSumLanes;
    if (row >= block.rows) return;
    const int seen = VisibleKeys(block.first + row);
    if constexpr (kPhase == 1) {
      ScoreExtremes extremes = ScoreExtremes::None();
      for (int key = lane; key < seen; key += kSumLanes) extremes.Add(work.scores.At(row, key));
      work.extremes.of[at.thread] = extremes;
    } else {
      ScoreExtremes all = ScoreExtremes::None();
      for (int t = at.thread - lane; t < at.thread - lane + kSumLanes; ++t)
        all.Add(work.extremes.of[t]);
      own = all.Sum(factor);
      double sum = 0;
      for (int key = lane; key < seen; key += kSumLanes)
        sum += own.Term(work.scores.At(row, key), factor);
      work.sums.of[at.thread] = sum;
    }
  }
  // Masked keys, and those that there are not, have the probability 0.
  template <class Work>
  ADA_HOST_DEVICE void Probabilities(const ThreadIndex& at, Work& work, Own& own) const {
    const AttentionBlock block = BlockOf(at.block);
    const int row = at.thread / kSumLanes, lane = at.thread % kSumLanes;
    if (row >= block.rows) return;
    const int seen = VisibleKeys(block.first + row);
    own.sum = GroupThreads::Sum(work.sums.of, at);
    for (int key = lane; key < WholeKeys(); key += kSumLanes) {
      float& score = work.scores.At(row, key);
      score = key < seen ? own.Probability(score, factor) : 0.0f;
    }
  }
  // In Turns: products of a block's rows of `first` with those of keys or values that it sees.
  template <int kTileKeys>
  ADA_HOST_DEVICE void Multiply(const ThreadIndex& at, const HeadOperand& first,
                                const HeadOperand& second, HeadTile<kAttentionRows>& rows,
                                HeadTile<kTileKeys>& tile, ScoreRows& to) const {
    const AttentionBlock block = BlockOf(at.block);
    const int begin = at.turn / 2 * kTileKeys;
    if (at.turn % 2 == 0) {
      if (at.turn == 0)
        rows.Fill(at.thread, first, block.image, block.head, block.first, block.first + block.rows);
      tile.Fill(at.thread, second, block.image, block.kv_head, begin, block.seen);
      return;
    }
    float sums[kTileKeys / kSumLanes];
    WithStorageOf16(second.span.storage, [&](auto type) {
      MultiplyRows<type()>(rows, tile, second.width, at.thread, sums);
    });
    const int row = at.thread / kSumLanes, lane = at.thread % kSumLanes;
    ADA_UNROLL
    for (int k = 0; k < kTileKeys / kSumLanes; ++k)
      to.At(row, begin + k * kSumLanes + lane) = sums[k];
  }

  HeadOperand q, k;
  int heads, kv_heads, queries, keys;
  bool causal;
  float factor;
};

}  // namespace ada::backend::cuda

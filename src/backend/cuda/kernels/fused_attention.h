// Fused attention forward: from queries, keys and values to y in one launch, without scores in
// memory.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/attention_tiles.h"
#include "backend/cuda/kernels/rounding_stats.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// s = q k^T and p = softmax(s), p rounded and measured, y = p v rounded and measured. A block has
// 16 rows of a head; kValues: those of a row of y that a thread has, 2, 4 or 8 for heads of up to
// 32, 64 and 128. Sums of y run over keys in their order. kLevel: at least that of both roundings.
template <int kValues, StatsLevel kLevel>
struct FusedAttentionKernel {
  static constexpr int kThreads = kStatsThreads, kStats = StatsPhases(kLevel);
  static constexpr int kP = FusedScores::kPhases, kRoundP = kP + 1, kGatherP = kRoundP + 1,
                       kY = kGatherP + kStats, kBeginY = kY + 1, kRoundY = kBeginY + 1,
                       kGatherY = kRoundY + 1, kPhases = kGatherY + kStats;
  static constexpr int kTileKeys = 64;
  struct Shared {
    ScoreRows scores;
    union {
      HeadTile<kAttentionRows> q;
      FusedScores::Sums sums;
    };
    union {
      HeadTile<kTileKeys> keys;  // or values
      FusedScores::Extremes extremes;
      StatsShared<kLevel> stats;
    };
  };
  struct Own {
    FusedScores::Own scores;
    float y[kValues];
    StatsOwn<kLevel> stats;
  };

  template <int kPhase>
  ADA_HOST_DEVICE int Turns(const ThreadIndex& at) const {
    return kPhase == 0 || kPhase == kY ? scores.Turns<kTileKeys>(at.block) : 1;
  }
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if constexpr (kPhase < kP) {
      scores.template Run<kPhase>(at, shared, own.scores);
    } else if constexpr (kPhase == kP) {
      scores.Probabilities(at, shared, own.scores);
      BeginStats(p, at, shared.stats, own.stats);
    } else if constexpr (kPhase == kRoundP) {
      RoundProbabilities(at, shared, own);
    } else if constexpr (kPhase < kY) {
      if (p.totals != nullptr) GatherStats<kPhase - kGatherP>(p, at, shared.stats, own.stats);
    } else if constexpr (kPhase == kY) {
      MultiplyValues(at, shared, own);
    } else if constexpr (kPhase == kBeginY) {
      BeginStats(y, at, shared.stats, own.stats);
    } else if constexpr (kPhase == kRoundY) {
      RoundY(at, shared, own);
    } else if (y.totals != nullptr) {
      GatherStats<kPhase - kGatherY>(y, at, shared.stats, own.stats);
    }
  }

  FusedScores scores;
  HeadOperand v;
  Rounding p, y;  // without totals: nothing is measured
  ScoreMask mask;
  TensorSpan out;

 private:
  ADA_HOST_DEVICE void RoundProbabilities(const ThreadIndex& at, Shared& shared, Own& own) const {
    const AttentionBlock block = scores.BlockOf(at.block);
    const int row = at.thread / kSumLanes;
    if (row >= block.rows) return;
    const std::int64_t first = (block.row + row) * scores.keys;
    for (int key = at.thread % kSumLanes; key < scores.keys; key += kSumLanes) {
      float& x = shared.scores.At(row, key);
      const std::int64_t i = first + key;
      x = RoundAndCount(p, shared.stats, own.stats, mask.Applied(x, i), i);
    }
  }

  // In turns: a tile of values is brought to shared memory, then multiplied.
  ADA_HOST_DEVICE void MultiplyValues(const ThreadIndex& at, Shared& shared, Own& own) const {
    const AttentionBlock block = scores.BlockOf(at.block);
    const int begin = at.turn / 2 * kTileKeys;
    if (at.turn == 0)
      for (float& sum : own.y) sum = 0;
    if (at.turn % 2 == 0)
      return shared.keys.Fill(at.thread, v, block.image, block.kv_head, begin, block.seen);
    const int left = block.seen - begin;
    if (at.thread / kSumLanes >= block.rows || at.thread % kSumLanes * kValues >= v.width) return;
    WithStorageOf16(v.span.storage, [&](auto type) {
      AddKeys<type()>(at.thread, begin, left < kTileKeys ? left : kTileKeys, shared, own.y);
    });
  }
  // Probabilities and values after `count` keys are zeros, up to a multiple of 4.
  template <StorageType kStorageType>
  ADA_HOST_DEVICE void AddKeys(int thread, int begin, int count, const Shared& shared,
                               float (&sums)[kValues]) const {
    const int row = thread / kSumLanes, value = thread % kSumLanes * kValues;
    const int pitch = HeadTile<1>::Pitch(v.width);
    for (int key = 0; key < count; key += 4) {
      const Vec4 a = shared.scores.Vec4At(row, begin + key);
      ADA_UNROLL
      for (int e = 0; e < 4; ++e) {
        const Vec8Codes& codes = shared.keys.of[(key + e) * pitch + value / 8];
        ADA_UNROLL
        for (int pair = 0; pair < kValues / 2; ++pair) {
          const Vec2 b = WidenedPair<kStorageType>(codes.pair[value % 8 / 2 + pair]);
          sums[2 * pair] = MultiplyAdd(a.of[e], b.of[0], sums[2 * pair]);
          sums[2 * pair + 1] = MultiplyAdd(a.of[e], b.of[1], sums[2 * pair + 1]);
        }
      }
    }
  }

  ADA_HOST_DEVICE void RoundY(const ThreadIndex& at, Shared& shared, Own& own) const {
    const AttentionBlock block = scores.BlockOf(at.block);
    const int row = at.thread / kSumLanes, value = at.thread % kSumLanes * kValues;
    if (row >= block.rows) return;
    const std::int64_t position = block.image * scores.queries + block.first + row;
    const std::int64_t first = (position * scores.heads + block.head) * v.width + value;
    ADA_UNROLL
    for (int k = 0; k < kValues; ++k)
      if (value + k < v.width)
        StoreExact(out, first + k, RoundAndCount(y, shared.stats, own.stats, own.y[k], first + k));
  }
};

}  // namespace ada::backend::cuda

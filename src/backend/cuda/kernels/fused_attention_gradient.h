// Fused attention backward: the gradient of the scores by one launch, those of queries, keys and
// values by another.
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

// Rounded scores in memory, [images, heads, queries, pitch] of 16 bits, zeros from `keys` on.
struct ScoreMatrix {
  // A multiple of 8, so that rows begin on 16 bytes.
  static constexpr int PitchOf(int keys) { return (keys + 7) / 8 * 8; }
  TensorSpan span;
  int pitch;
};

// s and p once more, to the bits of the forward pass; dp = dy v^T, ds = alpha p (dp - the row's sum
// of p dp). Rounded p and ds are left in memory, ds is measured.
template <StatsLevel kLevel>
struct FusedScoreGradientKernel {
  static constexpr int kThreads = kStatsThreads;
  static constexpr int kP = FusedScores::kPhases, kDp = kP + 1, kSlopes = kDp + 1,
                       kDs = kSlopes + 1, kBegin = kDs + 1, kRound = kBegin + 1,
                       kGather = kRound + 1, kPhases = kGather + StatsPhases(kLevel);
  static constexpr int kTileKeys = 32;
  struct Work {
    ScoreRows scores;  // then p
    union {
      HeadTile<kAttentionRows> q;  // or dy
      FusedScores::Sums sums;      // or slopes
    };
    union {
      HeadTile<kTileKeys> keys;  // or values
      FusedScores::Extremes extremes;
    };
  };
  struct Shared {
    ScoreRows dp;  // then ds
    union {
      Work work;
      StatsShared<kLevel> stats;
    };
  };
  struct Own {
    FusedScores::Own scores;
    StatsOwn<kLevel> stats;
  };

  template <int kPhase>
  ADA_HOST_DEVICE int Turns(const ThreadIndex& at) const {
    return kPhase == 0 || kPhase == kDp ? scores.Turns<kTileKeys>(at.block) : 1;
  }
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    Work& work = shared.work;
    if constexpr (kPhase < kP) scores.template Run<kPhase>(at, work, own.scores);
    if constexpr (kPhase == kP) {
      scores.Probabilities(at, work, own.scores);
      StoreProbabilities(at, work.scores);
    }
    if constexpr (kPhase == kDp) scores.Multiply(at, dy, v, work.q, work.keys, shared.dp);
    if constexpr (kPhase == kSlopes) AddSlopes(at, shared);
    if constexpr (kPhase == kDs) MakeGradients(at, shared);
    if constexpr (kPhase == kBegin) BeginStats(ds, at, shared.stats, own.stats);
    if constexpr (kPhase == kRound) StoreGradients(at, shared, own);
    if constexpr (kPhase >= kGather)
      if (ds.totals != nullptr) GatherStats<kPhase - kGather>(ds, at, shared.stats, own.stats);
  }

  FusedScores scores;
  HeadOperand v, dy;
  Rounding p, ds;  // p's: nothing is measured
  ScoreMask mask;
  ScoreMatrix to_p, to_ds;
  const float* alpha;

 private:
  // Calls body(row, its first score's number, its first place in a ScoreMatrix).
  template <class Body>
  ADA_HOST_DEVICE void OfRow(const ThreadIndex& at, Body&& body) const {
    const AttentionBlock block = scores.BlockOf(at.block);
    const int row = at.thread / kSumLanes;
    if (row < block.rows)
      body(row, scores.VisibleKeys(block.first + row), (block.row + row) * scores.keys,
           (block.row + row) * to_p.pitch);
  }

  ADA_HOST_DEVICE void StoreProbabilities(const ThreadIndex& at, ScoreRows& rows) const {
    const RoundingNow now = Now(p);
    OfRow(at, [&](int row, int, std::int64_t first, std::int64_t to) {
      for (int key = at.thread % kSumLanes; key < to_p.pitch; key += kSumLanes) {
        const std::int64_t i = first + key;
        const std::uint32_t word = p.stochastic ? RandomWord(now.key, now.draw, p.first + i) : 0;
        const float x = mask.Applied(rows.At(row, key), i);
        StoreExact(to_p.span, to + key,
                   key < scores.keys ? RoundWith(p, now, x, word).stored : 0.0f);
      }
    });
  }
  ADA_HOST_DEVICE void AddSlopes(const ThreadIndex& at, Shared& shared) const {
    OfRow(at, [&](int row, int seen, std::int64_t first, std::int64_t) {
      double sum = 0;
      for (int key = at.thread % kSumLanes; key < seen; key += kSumLanes) {
        float& dp = shared.dp.At(row, key);
        dp = mask.Applied(dp, first + key);
        sum += static_cast<double>(shared.work.scores.At(row, key)) * static_cast<double>(dp);
      }
      shared.work.sums.of[at.thread] = sum;
    });
  }
  // Puts ds, times alpha, in the place of dp.
  ADA_HOST_DEVICE void MakeGradients(const ThreadIndex& at, Shared& shared) const {
    const float times = *alpha;
    OfRow(at, [&](int row, int seen, std::int64_t, std::int64_t) {
      const double slope = GroupThreads::Sum(shared.work.sums.of, at);
      for (int key = at.thread % kSumLanes; key < scores.keys; key += kSumLanes) {
        float& x = shared.dp.At(row, key);
        x = key < seen ? ScoreGradient(shared.work.scores.At(row, key), x, slope) * times : 0.0f;
      }
    });
  }
  ADA_HOST_DEVICE void StoreGradients(const ThreadIndex& at, Shared& shared, Own& own) const {
    OfRow(at, [&](int row, int, std::int64_t first, std::int64_t to) {
      for (int key = at.thread % kSumLanes; key < to_ds.pitch; key += kSumLanes) {
        float x = 0;
        if (key < scores.keys)
          x = RoundAndCount(ds, shared.stats, own.stats, shared.dp.At(row, key), first + key);
        StoreExact(to_ds.span, to + key, x);
      }
    });
  }
};

// The gradient of queries (ds k), keys (ds^T q) or values (p^T dy): sums of products of rounded
// scores and an operand along keys, or along the queries of all heads that read the key, times
// factor and alpha, rounded and measured. A thread has four values of four positions of a head, one
// sum after the other product; grids of up to three of them are one launch (FusedKernels).
template <StatsLevel kLevel>
struct FusedInputGradientKernel {
  static constexpr int kThreads = kStatsThreads, kPhases = 2 + StatsPhases(kLevel);
  static constexpr int kRun = 4;  // positions of a thread, and values
  struct Shared {
    Vec4 sums[kRun][kThreads];  // each thread's own
    StatsShared<kLevel> stats;
  };
  struct Own {
    StatsOwn<kLevel> stats;
  };
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if constexpr (kPhase == 0) {
      BeginStats(how, at, shared.stats, own.stats);
    } else if constexpr (kPhase == 1) {
      OfThread(at, shared, own);
    } else if (how.totals != nullptr) {
      GatherStats<kPhase - 2>(how, at, shared.stats, own.stats);
    }
  }
  // A thread's, of this many images.
  std::int64_t Items(std::int64_t images) const {
    return images * heads * ((Positions() + kRun - 1) / kRun) * ((with.width + kRun - 1) / kRun);
  }
  int Blocks() const { return static_cast<int>((std::int64_t{items} + kThreads - 1) / kThreads); }

  Rounding how;  // without totals: nothing is measured
  ScoreMatrix scores;
  HeadOperand with;
  TensorSpan out;      // [images, positions, heads, width]
  bool along_queries;  // else along keys
  int heads, readers;  // of `out`, and the heads of queries that read one of them
  int queries, keys;
  bool causal;
  std::uint32_t items;  // of this call's images
  float factor;
  const float* alpha;

 private:
  using Sums = float[kRun][kRun];
  struct Place {
    std::int64_t image;
    int head, position, value;
  };
  ADA_HOST_DEVICE int Positions() const { return along_queries ? keys : queries; }
  ADA_HOST_DEVICE void OfThread(const ThreadIndex& at, Shared& shared, Own& own) const {
    const std::uint32_t item =
        static_cast<std::uint32_t>(at.block) * kThreads + static_cast<std::uint32_t>(at.thread);
    if (item >= items) return;
    const auto values = static_cast<std::uint32_t>((with.width + kRun - 1) / kRun);
    const auto runs = static_cast<std::uint32_t>((Positions() + kRun - 1) / kRun);
    const std::uint32_t row = item / values, head = row / runs;
    Place place;
    place.value = static_cast<int>(item - row * values) * kRun;
    place.position = static_cast<int>(row - head * runs) * kRun;
    place.image = head / static_cast<std::uint32_t>(heads);
    place.head = static_cast<int>(head % static_cast<std::uint32_t>(heads));
    Sums sums = {};
    WithStorageOf16(with.span.storage, [&](auto type) {
      if (along_queries)
        AddQueries<type()>(place, sums);
      else
        AddKeys<type()>(place, sums);
    });
    const float times = alpha == nullptr ? 1 : *alpha;
    ADA_UNROLL
    for (int i = 0; i < kRun; ++i) {
      Vec4 x;
      ADA_UNROLL
      for (int k = 0; k < kRun; ++k) x.of[k] = sums[i][k] * factor * times;
      shared.sums[i][at.thread] = x;
    }
    Store(at.thread, place, shared, own);
  }

  template <StorageType kStorageType>
  ADA_HOST_DEVICE void AddQueries(const Place& place, Sums& sums) const {
    for (int reader = 0; reader < readers; ++reader) {
      const int head = place.head * readers + reader;
      const std::int64_t row = (place.image * heads * readers + head) * queries;
      for (int query = causal ? place.position : 0; query < queries; ++query) {
        const Vec4 a =
            LoadVec4As<kStorageType>(scores.span, (row + query) * scores.pitch + place.position);
        AddOuter(a, with.template Vec4At<kStorageType>(place.image, query, head, place.value),
                 sums);
      }
    }
  }
  template <StorageType kStorageType>
  ADA_HOST_DEVICE void AddKeys(const Place& place, Sums& sums) const {
    const std::int64_t row = (place.image * heads + place.head) * queries + place.position;
    const int end = causal && place.position + kRun < keys ? place.position + kRun : keys;
    for (int key = 0; key < end; key += kRun) {
      Vec4 a[kRun];
      ADA_UNROLL
      for (int i = 0; i < kRun; ++i)
        a[i] = LoadVec4As<kStorageType>(
            scores.span, (row + (place.position + i < queries ? i : 0)) * scores.pitch + key);
      ADA_UNROLL
      for (int k = 0; k < kRun; ++k)
        if (key + k < end)
          AddOuter({{a[0].of[k], a[1].of[k], a[2].of[k], a[3].of[k]}},
                   with.template Vec4At<kStorageType>(place.image, key + k, place.head / readers,
                                                      place.value),
                   sums);
    }
  }
  ADA_HOST_DEVICE static void AddOuter(const Vec4& a, const Vec4& b, Sums& sums) {
    ADA_UNROLL
    for (int i = 0; i < kRun; ++i) {
      ADA_UNROLL
      for (int k = 0; k < kRun; ++k) sums[i][k] = MultiplyAdd(a.of[i], b.of[k], sums[i][k]);
    }
  }

  // From shared memory, as a loop over positions would bring registers into a stack.
  ADA_HOST_DEVICE void Store(int thread, const Place& place, Shared& shared, Own& own) const {
    const int left = Positions() - place.position;
    for (int i = 0; i < (left < kRun ? left : kRun); ++i) {
      const std::int64_t position = place.image * Positions() + place.position + i;
      const std::int64_t begin = (position * heads + place.head) * with.width + place.value;
      const Vec4& x = shared.sums[i][thread];
      if (with.width % kRun == 0) {
        StoreVec4(out, begin, RoundAndCountVec4(how, shared.stats, own.stats, x, begin));
        continue;
      }
      for (int k = 0; k < (with.width - place.value < kRun ? with.width - place.value : kRun); ++k)
        StoreExact(out, begin + k, RoundAndCount(how, shared.stats, own.stats, x.of[k], begin + k));
    }
  }
};

}  // namespace ada::backend::cuda

// Attention in products of a library: its tensors by head, scores and their gradient.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/attention_formulas.h"
#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// --- Tensors by head ---

// Tensors of attention by head: queries, keys and values as one matrix per head, and results of
// these matrices in the tensors' layout.
// A tensor's [images, positions, heads * width], some of `channels` channels from `first` on; by
// head: [images, heads, positions, width].
// Numbers of 32 bits, which a device divides faster; a tensor of attention has fewer values than
// 2^32.
struct HeadShape {
  std::uint32_t heads, positions, width;
  std::uint32_t channels, first;  // of the tensor

  // Where value i of [images, heads, positions, width] lies in the tensor.
  ADA_HOST_DEVICE std::int64_t InTensor(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t row = at / width, value = at - row * width;
    const std::uint32_t head = row / positions, position = row - head * positions;
    const std::uint32_t image = head / heads;
    return (std::int64_t{image} * positions + position) * channels + first +
           (head - image * heads) * width + value;
  }
  // The other way, of a tensor that holds nothing else.
  ADA_HOST_DEVICE std::int64_t ByHead(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t row = at / width, value = at - row * width;
    const std::uint32_t place = row / heads, head = row - place * heads;
    const std::uint32_t image = place / positions;
    return ((std::int64_t{image} * heads + head) * positions + (place - image * positions)) *
               width +
           value;
  }
  // Whether values i .. i + 3, where 4 divides i, are adjacent in both layouts.
  bool vec4() const { return width % 4 == 0 && first % 4 == 0 && channels % 4 == 0; }
};

// A tensor's values by head, in the storage of `to`; without data there they are only measured.
// Values stay what they are; moments are taken of them where `how` has room for totals. A launch
// has one for each of queries, keys, values and their gradient.
template <StatsLevel kLevel>
struct PackHeadsKernel : FlatStatsKernel<PackHeadsKernel<kLevel>, kLevel> {
  using Frame = FlatStatsKernel<PackHeadsKernel<kLevel>, kLevel>;
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, typename Frame::Shared& shared,
                           typename Frame::Own& own) const {
    if (kPhase >= 2 && !measures()) return;
    Frame::template Run<kPhase>(at, shared, own);
  }
  ADA_HOST_DEVICE void OfVec4(std::int64_t i, StatsShared<kLevel>& shared,
                              StatsOwn<kLevel>& own) const {
    Vec4 x;
    if (vec4)
      x = LoadVec4(from, shape.InTensor(i));
    else
      for (int k = 0; k < 4; ++k) x.of[k] = Load(from, shape.InTensor(i + k));
    if (to.data != nullptr) StoreVec4(to, i, x);
    if (!measures()) return;
    ADA_UNROLL
    for (int k = 0; k < 4; ++k) CountStored(this->how, shared, own, x.of[k]);
  }
  ADA_HOST_DEVICE void One(std::int64_t i, StatsShared<kLevel>& shared,
                           StatsOwn<kLevel>& own) const {
    const float x = Load(from, shape.InTensor(i));
    if (to.data != nullptr) StoreExact(to, i, x);
    if (measures()) CountStored(this->how, shared, own, x);
  }
  ADA_HOST_DEVICE bool measures() const {
    return kLevel != StatsLevel::kNone && this->how.totals != nullptr;
  }

  TensorSpan from, to;
  HeadShape shape;
  bool vec4;
};

// A tensor's value i of sums by head, times `factor`, then alpha (null: 1).
// A Value of RoundingStats::Round: what the products gave, brought from heads to the tensor's order
// while it is rounded.
struct HeadsValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return Of(sums[shape.ByHead(i)]); }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v;
    if (vec4) {
      v = reinterpret_cast<const Vec4*>(sums)[shape.ByHead(i) / 4];
      ADA_UNROLL
      for (int k = 0; k < 4; ++k) v.of[k] = Of(v.of[k]);
      return v;
    }
    ADA_UNROLL
    for (int k = 0; k < 4; ++k) v.of[k] = (*this)(i + k);
    return v;
  }
  ADA_HOST_DEVICE float Of(float sum) const {
    const float value = sum * factor;
    return alpha == nullptr ? value : value * *alpha;
  }
  const float* sums;
  HeadShape shape;
  float factor;
  const float* alpha;
  bool vec4;
};

// --- Scores ---

// Scores of attention, [rows, keys] of some heads, a row for each query: probabilities, and the
// gradient of the scores. Sums of a row by 16 threads in double, values one by one.
// Rows are those of whole heads. Fewer than 2^32 values.
// Row r belongs to query r % queries of its head; under `causal` it sees the keys up to its own
// position.
struct ScoreShape {
  std::uint32_t queries, keys;
  bool causal;
  ADA_HOST_DEVICE std::uint32_t RowOf(std::int64_t i) const {
    return static_cast<std::uint32_t>(i) / keys;
  }
  // Keys that the row's query sees: the first ones.
  ADA_HOST_DEVICE std::uint32_t VisibleKeys(std::uint32_t row) const {
    if (!causal) return keys;
    const std::uint32_t seen = row % queries + 1;
    return seen < keys ? seen : keys;
  }
};

// of(row, key, k) for values i + k, k = 0 .. 3.
template <class Of>
ADA_HOST_DEVICE inline Vec4 ScoresVec4(const ScoreShape& shape, std::int64_t i, Of&& of) {
  std::uint32_t row = shape.RowOf(i);
  std::uint32_t key = static_cast<std::uint32_t>(i) - row * shape.keys;
  Vec4 v;
  ADA_UNROLL
  for (int k = 0; k < 4; ++k) {
    v.of[k] = of(row, key, k);
    if (++key == shape.keys) key = 0, ++row;
  }
  return v;
}

// What turns a row's scores into probabilities.
struct ScoreSum {
  // The probability of one of its scores.
  ADA_HOST_DEVICE float Probability(float score, float factor) const {
    if (wide) return static_cast<float>(WideExponential(score, top, factor) / sum);
    return SmallExponential((score - top) * factor) / static_cast<float>(sum);
  }
  // What a score adds to `sum`.
  ADA_HOST_DEVICE double Term(float score, float factor) const {
    return wide ? WideExponential(score, top, factor)
                : static_cast<double>(SmallExponential((score - top) * factor));
  }
  double sum;  // of e^(factor * (score - top))
  float top;
  bool wide;  // scores that SmallExponential is not for
};
// The extremes of a row's scores, or of some of them; a NaN shows in `magnitude` alone.
struct ScoreExtremes {
  ADA_HOST_DEVICE void Add(float score) {
    top = score > top ? score : top, low = score < low ? score : low;
    const std::uint32_t u = MagnitudeBits(score);
    magnitude = u > magnitude ? u : magnitude;
  }
  ADA_HOST_DEVICE void Add(const ScoreExtremes& other) {
    top = other.top > top ? other.top : top, low = other.low < low ? other.low : low;
    magnitude = other.magnitude > magnitude ? other.magnitude : magnitude;
  }
  // All of a ScoreSum but the sum.
  ADA_HOST_DEVICE ScoreSum Sum(float factor) const {
    return {0, top, magnitude >= kInfinityBits || !IsNarrow(low, top, factor)};
  }
  static ADA_HOST_DEVICE ScoreExtremes None() { return {-HUGE_VALF, HUGE_VALF, 0}; }
  float top, low;
  std::uint32_t magnitude;  // the largest, as bits
};

// For rows of scores.
// A row of scores by 16 threads: first its extremes, then the sum of exponentials, then the sum
// over the threads. Other kernels make probabilities of it value by value, several times, rather
// than keep them.
struct ScoreSumsKernel {
  static constexpr int kThreads = GroupThreads::kThreads, kPhases = 3;
  struct Shared {
    double sum[kThreads];
    ScoreExtremes extremes[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t row = GroupThreads::Group(at);
    if (row >= rows) return;
    const int lane = GroupThreads::Lane(at);
    const float* s = scores + row * shape.keys;
    const std::int64_t seen = shape.VisibleKeys(static_cast<std::uint32_t>(row));
    if constexpr (kPhase == 0) {
      ScoreExtremes own = ScoreExtremes::None();
      for (std::int64_t j = lane; j < seen; j += kSumLanes) own.Add(s[j]);
      shared.extremes[at.thread] = own;
      return;
    } else {
      ScoreExtremes all = ScoreExtremes::None();
      for (int t = at.thread - lane; t < at.thread - lane + kSumLanes; ++t)
        all.Add(shared.extremes[t]);
      const ScoreSum of = all.Sum(factor);
      if constexpr (kPhase == 1) {
        double sum = 0;
        for (std::int64_t j = lane; j < seen; j += kSumLanes) sum += of.Term(s[j], factor);
        shared.sum[at.thread] = sum;
      } else if (lane == 0) {
        sums[row] = {GroupThreads::Sum(shared.sum, at), of.top, of.wide};
      }
    }
  }

  ScoreShape shape;
  std::int64_t rows;
  const float* scores;
  float factor;
  ScoreSum* sums;
};

// Probabilities, from scores or as they were kept.
// The probability of a value, computed from its score each time it is asked for.
struct ProbabilityValue {
  ADA_HOST_DEVICE float At(std::uint32_t row, std::uint32_t key, float score) const {
    if (key >= shape.VisibleKeys(row)) return 0;
    if (sums == nullptr) return score;
    return sums[row].Probability(score, factor);
  }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const std::uint32_t row = shape.RowOf(i);
    return At(row, static_cast<std::uint32_t>(i) - row * shape.keys, scores[i]);
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    const Vec4 s = reinterpret_cast<const Vec4*>(scores)[i / 4];
    return ScoresVec4(shape, i, [&](std::uint32_t row, std::uint32_t key, int k) {
      return At(row, key, s.of[k]);
    });
  }
  ScoreShape shape;
  const float* scores;
  const ScoreSum* sums;  // null: `scores` are the probabilities
  float factor;
};
// For all values: probabilities in the place of the scores.
// Under keep_probabilities: what the backward pass would compute anew.
struct KeepProbabilities {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const { scores[i] = p(i); }
  ProbabilityValue p;
  float* scores;
};

// Which probabilities are dropped; what stays is divided by the share that does.
// Random words belong to the batch's values of all processes, so that neither chunks nor the number
// of processes change a mask, and the backward pass draws the same one.
struct ScoreMask {
  // x, of value i, as the mask leaves it; v of values i .. i + 3.
  ADA_HOST_DEVICE float Applied(float x, std::int64_t i) const {
    return rate > 0 ? Of(x, RandomWord(pass->seed ^ stream, pass->draw, before + i)) : x;
  }
  ADA_HOST_DEVICE Vec4 AppliedVec4(Vec4 v, std::int64_t i) const {
    if (!(rate > 0)) return v;
    const Vec4Words words = RandomWords(pass->seed ^ stream, pass->draw, before + i);
    ADA_UNROLL
    for (int k = 0; k < 4; ++k) v.of[k] = Of(v.of[k], words.of[k]);
    return v;
  }
  ADA_HOST_DEVICE float Of(float x, std::uint32_t word) const {
    return UniformFloat(word) >= rate ? x * factor : 0.0f;
  }
  const PassValues* pass;
  std::uint64_t stream;
  float rate, factor;   // rate 0: none is dropped
  std::int64_t before;  // values before these, of all processes
};

// Probabilities as they are rounded and multiplied.
struct DroppedValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return mask.Applied(p(i), i); }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const { return mask.AppliedVec4(p.OfVec4(i), i); }
  ProbabilityValue p;
  ScoreMask mask;
};

// The inputs of the scores' gradient: p, and the gradient of the probabilities as multiplied.
struct ScoreTerms {
  // The gradient of p.
  ADA_HOST_DEVICE float Dp(std::int64_t i) const { return mask.Applied(dp[i], i); }
  ADA_HOST_DEVICE Vec4 DpVec4(std::int64_t i) const {
    return mask.AppliedVec4(reinterpret_cast<const Vec4*>(dp)[i / 4], i);
  }
  ProbabilityValue p;
  const float* dp;
  ScoreMask mask;
};

// The sum of p dp of each row.
// The sum that the derivative of softmax subtracts, in double, as its terms nearly cancel.
struct ScoreSlopesKernel {
  static constexpr int kThreads = GroupThreads::kThreads, kPhases = 2;
  struct Shared {
    double sum[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t row = GroupThreads::Group(at);
    if (row >= rows) return;
    const int lane = GroupThreads::Lane(at);
    const ScoreShape& shape = terms.p.shape;
    if constexpr (kPhase == 0) {
      const std::int64_t seen = shape.VisibleKeys(static_cast<std::uint32_t>(row));
      double sum = 0;
      for (std::int64_t j = lane; j < seen; j += kSumLanes) {
        const std::int64_t i = row * shape.keys + j;
        sum += static_cast<double>(terms.p.At(static_cast<std::uint32_t>(row),
                                              static_cast<std::uint32_t>(j), terms.p.scores[i])) *
               static_cast<double>(terms.Dp(i));
      }
      shared.sum[at.thread] = sum;
    } else if (lane == 0) {
      slopes[row] = GroupThreads::Sum(shared.sum, at);
    }
  }

  std::int64_t rows;
  ScoreTerms terms;
  double* slopes;
};

// The gradient of a score that its query sees; slope: the row's sum of p dp.
ADA_HOST_DEVICE inline float ScoreGradient(float p, float dp, double slope) {
  return static_cast<float>(static_cast<double>(p) * (static_cast<double>(dp) - slope));
}
// The same times alpha (null: 1), of all values.
// Masked scores have the gradient 0.
struct ScoreGradientValue {
  ADA_HOST_DEVICE float At(std::uint32_t row, std::uint32_t key, float score, float dp) const {
    if (key >= terms.p.shape.VisibleKeys(row)) return 0;
    const float ds = ScoreGradient(terms.p.At(row, key, score), dp, slopes[row]);
    return alpha == nullptr ? ds : ds * *alpha;
  }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const std::uint32_t row = terms.p.shape.RowOf(i);
    return At(row, static_cast<std::uint32_t>(i) - row * terms.p.shape.keys, terms.p.scores[i],
              terms.Dp(i));
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    const Vec4 s = reinterpret_cast<const Vec4*>(terms.p.scores)[i / 4], dp = terms.DpVec4(i);
    return ScoresVec4(terms.p.shape, i, [&](std::uint32_t row, std::uint32_t key, int k) {
      return At(row, key, s.of[k], dp.of[k]);
    });
  }
  ScoreTerms terms;
  const double* slopes;
  const float* alpha;
};

}  // namespace ada::backend::cuda

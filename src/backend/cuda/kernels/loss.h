// Losses: of images, and of rows of scores (pixels, default boxes).
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "backend/formulas.h"
#include "backend/loss_formulas.h"

namespace ada::backend::cuda {

// What a second label makes of a row's target; share 1: nothing.
struct RowMix {
  std::int32_t second;
  float share;
};

// One row's loss, hits and unscaled gradient (p - target) / loss_terms.
// A block a row suits many classes; pixels and boxes, rows of few scores, take a thread each
// (RowSoftmax). Phases: the largest logit, the sum of exponentials, gradients and loss, and the
// row's result.
struct LossRow {
  static constexpr int kThreads = 64, kPhases = 4;
  struct Shared {
    float highest[kThreads];
    double sum[kThreads], loss[kThreads];
    std::int32_t better[kThreads];
  };
  struct Own {
    double highest;
  };

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    const std::int64_t row = at.block;
    const int used = classes < kThreads ? static_cast<int>(classes) : kThreads;
    if (at.thread >= used) return;
    if constexpr (kPhase == 0) {
      shared.highest[at.thread] = Highest(row, at.thread);
    } else if constexpr (kPhase == 1) {
      float highest = -INFINITY;
      for (int t = 0; t < used; ++t)
        if (shared.highest[t] > highest) highest = shared.highest[t];
      own.highest = static_cast<double>(highest);
      double sum = 0;
      for (std::int64_t k = at.thread; k < classes; k += kThreads)
        sum += std::exp(Logit(row, k) - own.highest);
      shared.sum[at.thread] = sum;
    } else if constexpr (kPhase == 2) {
      double sum = 0;
      for (int t = 0; t < used; ++t) sum += shared.sum[t];
      Gradients(row, at.thread, own.highest + std::log(sum), shared);
    } else if (at.thread == 0) {
      results[row] = Total(row, used, shared);
    }
  }

  ADA_HOST_DEVICE double Logit(std::int64_t row, std::int64_t k) const {
    return static_cast<double>(Load(logits, row * classes + k));
  }
  ADA_HOST_DEVICE double Target(std::int64_t row, std::int64_t k) const {
    if (mixes == nullptr || mixes[row].share == 1)
      return TargetOf(k, labels[row], classes, smoothing);
    return MixedTargetOf(k, labels[row], mixes[row].second, mixes[row].share, classes, smoothing);
  }
  // The label with the larger share, by which hits are counted.
  ADA_HOST_DEVICE std::int64_t LabelOf(std::int64_t row) const {
    return mixes == nullptr || mixes[row].share >= 0.5f ? labels[row] : mixes[row].second;
  }
  // The largest logit of this thread's classes; a NaN is skipped.
  ADA_HOST_DEVICE float Highest(std::int64_t row, int thread) const {
    float highest = -INFINITY;
    for (std::int64_t k = thread; k < classes; k += kThreads) {
      const float z = Load(logits, row * classes + k);
      if (z > highest) highest = z;
    }
    return highest;
  }
  ADA_HOST_DEVICE void Gradients(std::int64_t row, int thread, double log_sum,
                                 Shared& shared) const {
    const std::int64_t label = LabelOf(row);
    const double mine = Logit(row, label);
    double loss = 0;
    std::int32_t better = 0;
    for (std::int64_t k = thread; k < classes; k += kThreads) {
      const double z = Logit(row, k), log_p = z - log_sum, target = Target(row, k);
      if (gradient != nullptr)
        gradient[row * classes + k] = LogitGradient(log_p, target, pass->loss_terms);
      if (target != 0) loss -= target * log_p;
      better += ComesBefore(z, k, mine, label) ? 1 : 0;
    }
    shared.loss[thread] = loss, shared.better[thread] = better;
  }
  ADA_HOST_DEVICE LossResult Total(std::int64_t row, int used, const Shared& shared) const {
    double loss = 0;
    std::int32_t better = 0;
    for (int t = 0; t < used; ++t) loss += shared.loss[t], better += shared.better[t];
    const double mine = Logit(row, LabelOf(row));
    return {loss, 0, Hits(mine, better, 1), Hits(mine, better, 5)};
  }

  TensorSpan logits;
  std::int64_t classes = 0;
  const std::int32_t* labels = nullptr;
  const RowMix* mixes = nullptr;  // null: rows have one label
  double smoothing = 0;
  const PassValues* pass = nullptr;
  float* gradient = nullptr;  // null: evaluation
  LossResult* results = nullptr;
};

// The parts of one call's loss (of rows, images or blocks), added to what `result` holds or in
// place of it. One block, whose threads stand for kLanes.
// kLanes is fixed, whatever the number of threads: the sum's order is too.
template <int kBlockThreads>
struct LossSum {
  static constexpr int kThreads = kBlockThreads, kPhases = 2, kLanes = 128;
  struct Shared {
    double loss[kLanes], location[kLanes];
    std::int64_t top1[kLanes], top5[kLanes];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const int used = parts < kLanes ? parts : kLanes;
    if constexpr (kPhase == 0) {
      for (int lane = at.thread; lane < used; lane += kThreads) SumLane(lane, shared);
    } else if (at.thread == 0) {
      LossResult sum;
      for (int t = 0; t < used; ++t)
        sum.Add({shared.loss[t], shared.location[t], shared.top1[t], shared.top5[t]});
      if (accumulate) sum.Add(*result);
      *result = sum;
      *on_host = sum;
    }
  }
  ADA_HOST_DEVICE void SumLane(int lane, Shared& shared) const {
    LossResult sum;
    for (int part = lane; part < parts; part += kLanes) sum.Add(results[part]);
    shared.loss[lane] = sum.loss_sum, shared.location[lane] = sum.location_sum;
    shared.top1[lane] = sum.top1, shared.top5[lane] = sum.top5;
  }

  const LossResult* results = nullptr;
  int parts = 0;
  bool accumulate = false;
  LossResult* result = nullptr;
  LossResult* on_host = nullptr;  // a copy for the host, in memory of AllocateOnHost
};

// The scale of a loss's gradient.
// S is read from backend memory, as it changes between replays of one recording.
struct SetLossScale {
  ADA_HOST_DEVICE void operator()(std::int64_t) const { *scale = pass->loss_scale; }
  float* scale = nullptr;
  const PassValues* pass = nullptr;
};

// A gradient of a loss before it is rounded: the unscaled one times S; under `reference` it is
// rounded to `before`, its format, before that as well. For RoundingStats::Round.
template <class Unscaled>
struct ScaledGradient {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return RoundToGrid(before, unscaled(i)) * pass->loss_scale;
  }
  Unscaled unscaled;
  NumberGrid before;
  const PassValues* pass = nullptr;
};
// The gradient as it is stored in memory.
struct StoredGradient {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return gradient[i]; }
  const float* gradient = nullptr;
};

// --- Softmax of rows ---

// Softmax cross-entropy of many rows of scores (pixels, default boxes), a thread for each, with
// loss_formulas.h; a row whose label is negative is skipped.
// One pass for the maximum, one for the sum: a thread reads its row twice, the second time from the
// cache.
struct RowSoftmax {
  double mine, log_sum;  // the score of the label, ln(sum of e^score)
  std::int32_t better;   // classes before the label
};
struct ScoreRows {
  ADA_HOST_DEVICE float Score(std::int64_t row, std::int64_t k) const {
    return Load(scores, row * classes + k);
  }
  // A NaN is passed over in the maximum, not in the sum.
  ADA_HOST_DEVICE RowSoftmax Of(std::int64_t row, std::int32_t label) const {
    float highest = -INFINITY;
    for (std::int64_t k = 0; k < classes; ++k) {
      const float z = Score(row, k);
      highest = z > highest ? z : highest;
    }
    const double mine = static_cast<double>(Score(row, label));
    double sum = 0;
    std::int32_t better = 0;
    for (std::int64_t k = 0; k < classes; ++k) {
      const auto z = static_cast<double>(Score(row, k));
      sum += Exponential(z - static_cast<double>(highest));
      better += ComesBefore(z, k, mine, label) ? 1 : 0;
    }
    return {mine, LogSumExp(static_cast<double>(highest), sum), better};
  }

  TensorSpan scores;
  std::int64_t classes = 0;
};

// The loss of pixels: log_sums of rows, and a part of the sum for each block of threads.
// Threads of a block add up in order, then blocks do (LossSum).
struct PixelLossRows {
  static constexpr int kThreads = 256, kPhases = 2;
  static std::int64_t Blocks(std::int64_t rows) { return (rows + kThreads - 1) / kThreads; }
  struct Shared {
    double loss[kThreads];
    std::int32_t top1[kThreads], top5[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t row = std::int64_t{at.block} * kThreads + at.thread;
    if constexpr (kPhase == 0) {
      shared.loss[at.thread] = 0, shared.top1[at.thread] = shared.top5[at.thread] = 0;
      const std::int32_t label = row < count ? labels[row] : -1;
      if (label < 0) return;
      const RowSoftmax softmax = rows.Of(row, label);
      log_sums[row] = softmax.log_sum;
      shared.loss[at.thread] =
          static_cast<double>(weights[label]) * (softmax.log_sum - softmax.mine);
      shared.top1[at.thread] = Hits(softmax.mine, softmax.better, 1);
      shared.top5[at.thread] = Hits(softmax.mine, softmax.better, 5);
    } else if (at.thread == 0) {
      LossResult part;
      for (int t = 0; t < kThreads; ++t)
        part.Add({shared.loss[t], 0, shared.top1[t], shared.top5[t]});
      parts[at.block] = part;
    }
  }

  ScoreRows rows;
  std::int64_t count;  // rows
  const std::int32_t* labels;
  const float* weights;  // by class
  double* log_sums;
  LossResult* parts;
};

// The unscaled gradient of scores, value by value. weights null: 1 each.
// A Value of RoundingStats::Round through ScaledGradient: it computes each score's probability anew
// from log_sums.
struct RowGradient {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i), each = static_cast<std::uint32_t>(rows.classes);
    const std::uint32_t row = at / each;
    const std::int32_t label = labels[row];
    if (label < 0) return 0;
    const double weight = weights == nullptr ? 1 : static_cast<double>(weights[label]);
    const bool mine = static_cast<std::int32_t>(at - row * each) == label;
    return ScoreGradient(Load(rows.scores, i), log_sums[row], mine ? 1 : 0,
                         TermFactor(weight, pass->loss_terms));
  }

  ScoreRows rows;
  const std::int32_t* labels;
  const float* weights;
  const double* log_sums;
  const PassValues* pass;
};

// --- Default boxes ---

// The loss of default boxes: first each box by itself, then a block of threads for each image,
// which chooses the hard negatives by a search for the last key that is taken, digit by digit, and
// adds up.
// The entropy of each box with a label that is not negative, for all boxes of the call.
// Body of ForEach over all boxes of a call. Ignored boxes are passed over.
struct BoxEntropies {
  ADA_HOST_DEVICE void operator()(std::int64_t box) const {
    const std::int32_t label = labels[box];
    if (label < 0) return;
    const RowSoftmax softmax = rows.Of(box, label);
    log_sums[box] = softmax.log_sum, entropies[box] = softmax.log_sum - softmax.mine;
    better[box] = softmax.better;
  }

  ScoreRows rows;
  const std::int32_t* labels;
  double *log_sums, *entropies;
  std::int32_t* better;
};

// Hard negatives are the background boxes with the largest entropies, `negatives` for each positive
// one; of equal entropies those that come first. A radix search over 32-bit keys finds the smallest
// key that is taken without sorting: four rounds of counting, one for each byte.
struct MultiboxImage {
  static constexpr int kThreads = 256, kDigits = 4, kPhases = kDigits + 4;
  struct Shared {
    std::uint32_t counts[kDigits][256];  // boxes by digit, of those that share the digits before it
    std::int32_t positives[kThreads], background[kThreads], ties[kThreads];
    double loss[kThreads], location[kThreads];
    std::int32_t top1[kThreads], top5[kThreads];
  };
  struct Own {
    std::uint32_t key;  // the last one taken: its digits found so far
    std::int64_t left;  // boxes still to be taken of those with these digits
  };

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    const std::int64_t first = at.block * boxes;
    if constexpr (kPhase == 0) {
      CountLabels(first, at.thread, shared);
    } else if constexpr (kPhase == 1) {
      own.key = 0, own.left = Wanted(shared);
      CountDigit<0>(first, at.thread, own, shared);
    } else if constexpr (kPhase <= kDigits) {
      FindDigit<kPhase - 2>(shared, own);
      CountDigit<kPhase - 1>(first, at.thread, own, shared);
    } else if constexpr (kPhase == kDigits + 1) {
      FindDigit<kDigits - 1>(shared, own);
      CountTies(first, at.thread, own, shared);
    } else if constexpr (kPhase == kDigits + 2) {
      Take(first, at.thread, own, shared);
    } else if (at.thread == 0) {
      LossResult part;
      for (int t = 0; t < kThreads; ++t)
        part.Add({shared.loss[t], shared.location[t], shared.top1[t], shared.top5[t]});
      parts[at.block] = part;
    }
  }

  ADA_HOST_DEVICE void CountLabels(std::int64_t first, int thread, Shared& shared) const {
    for (int digit = 0; digit < kDigits; ++digit) shared.counts[digit][thread] = 0;
    std::int32_t positives = 0, background = 0;
    for (std::int64_t box = first + thread; box < first + boxes; box += kThreads) {
      positives += labels[box] > 0 ? 1 : 0;
      background += labels[box] == 0 ? 1 : 0;
    }
    shared.positives[thread] = positives, shared.background[thread] = background;
  }
  // At most as many as there are background boxes.
  // Each thread adds up all counts, since each keeps the state of the search for itself.
  ADA_HOST_DEVICE std::int64_t Wanted(const Shared& shared) const {
    std::int64_t positives = 0, background = 0;
    for (int t = 0; t < kThreads; ++t)
      positives += shared.positives[t], background += shared.background[t];
    const std::int64_t wanted = NegativesWanted(negatives, positives);
    return wanted < background ? wanted : background;
  }

  // Digits are bytes, the highest first.
  template <int kDigit>
  ADA_HOST_DEVICE void CountDigit(std::int64_t first, int thread, const Own& own,
                                  Shared& shared) const {
    constexpr int kShift = 24 - 8 * kDigit;
    for (std::int64_t box = first + thread; box < first + boxes; box += kThreads) {
      if (labels[box] != 0) continue;
      const std::uint32_t key = NegativeKey(entropies[box]);
      const bool shares = kDigit == 0 || ((key ^ own.key) >> (kShift + 8) % 32) == 0;
      if (shares) AtomicAdd(&shared.counts[kDigit][key >> kShift & 255], 1u);
    }
  }
  // The digit of the last key taken: from the largest down, until enough boxes have been passed.
  template <int kDigit>
  ADA_HOST_DEVICE void FindDigit(const Shared& shared, Own& own) const {
    std::uint32_t digit = 255;
    while (digit > 0 && own.left > shared.counts[kDigit][digit])
      own.left -= shared.counts[kDigit][digit--];
    own.key |= digit << (24 - 8 * kDigit);
  }

  // From here on a thread has adjacent boxes, so that among equal keys the first ones are chosen.
  ADA_HOST_DEVICE std::int64_t Begin(std::int64_t first, int thread) const {
    const std::int64_t each = (boxes + kThreads - 1) / kThreads, begin = each * thread;
    return first + (begin < boxes ? begin : boxes);
  }
  ADA_HOST_DEVICE void CountTies(std::int64_t first, int thread, const Own& own,
                                 Shared& shared) const {
    std::int32_t ties = 0;
    for (std::int64_t box = Begin(first, thread); box < Begin(first, thread + 1); ++box)
      ties += labels[box] == 0 && NegativeKey(entropies[box]) == own.key ? 1 : 0;
    shared.ties[thread] = ties;
  }
  // Boxes with the last key that lie with the threads before this one are taken first.
  ADA_HOST_DEVICE void Take(std::int64_t first, int thread, const Own& own, Shared& shared) const {
    std::int64_t left = own.left;
    for (int t = 0; t < thread; ++t) left -= shared.ties[t];
    double loss = 0, location = 0;
    std::int32_t top1 = 0, top5 = 0;
    for (std::int64_t box = Begin(first, thread); box < Begin(first, thread + 1); ++box) {
      const std::int32_t label = labels[box];
      bool taken = label > 0;
      if (label == 0) {
        const std::uint32_t key = NegativeKey(entropies[box]);
        taken = key > own.key || (key == own.key && left-- > 0);
      }
      used[box] = taken ? label : -1;
      if (taken) loss += entropies[box];
      if (label > 0) {
        top1 += Hits(entropies[box], better[box], 1);
        top5 += Hits(entropies[box], better[box], 5);
      }
      location += LocationLoss(box, label > 0);
    }
    shared.loss[thread] = loss + location, shared.location[thread] = location;
    shared.top1[thread] = top1, shared.top5[thread] = top5;
  }
  // A background box has no part in the loss, but with reads_background a location or target of it
  // that is not finite makes the loss NaN (MultiboxLossSpec).
  ADA_HOST_DEVICE double LocationLoss(std::int64_t box, bool positive) const {
    if (!positive && !reads_background) return 0;
    double sum = 0;
    for (std::int64_t i = 4 * box; i < 4 * box + 4; ++i)
      sum += HuberLoss(LocationDifference(Load(locations, i), targets[i]));
    return positive ? sum : sum * 0;
  }

  std::int64_t boxes;  // of an image
  double negatives;
  bool reads_background;
  const std::int32_t *labels, *better;
  const double* entropies;
  TensorSpan locations;
  const float* targets;  // of locations
  std::int32_t* used;    // labels of boxes that count in the scores' loss, else -1
  LossResult* parts;
};

// The unscaled gradient of locations, value by value.
struct LocationGradient {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    if (labels[i / 4] <= 0) return 0;
    const double slope = HuberSlope(LocationDifference(Load(locations, i), targets[i]));
    return static_cast<float>(slope * TermFactor(1, pass->loss_terms));
  }

  TensorSpan locations;
  const std::int32_t* labels;
  const float* targets;
  const PassValues* pass;
};

}  // namespace ada::backend::cuda

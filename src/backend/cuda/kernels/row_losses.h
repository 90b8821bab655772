// Losses of rows of scores: of pixels, and of default boxes.
#pragma once
#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "backend/formulas.h"
#include "backend/loss_formulas.h"

namespace ada::backend::cuda {

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

// The loss of default boxes: first each box by itself, then a block of threads for each image,
// which chooses the hard negatives by a search for the last key that is taken, digit by digit, and
// adds up.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/softmax_rows.h"

namespace ada::backend::cuda {

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

// Softmax cross-entropy of many rows of scores (pixels, default boxes), a thread for each, with
// loss_formulas.h; a row whose label is negative is skipped.
#pragma once
#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "backend/formulas.h"
#include "backend/loss_formulas.h"

namespace ada::backend::cuda {

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

}  // namespace ada::backend::cuda

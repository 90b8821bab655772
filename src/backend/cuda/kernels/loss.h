// Softmax cross-entropy: a block of threads for each row, in double; then the sums over rows. Sums
// over classes: thread t takes classes t, t + kThreads, ..., then the threads are added up in their
// order; over rows likewise.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "backend/formulas.h"

namespace ada::backend::cuda {

struct RowResult {
  double loss;
  std::int32_t top1, top5;
};

// What a second label makes of a row's target; share 1: nothing.
struct RowMix {
  std::int32_t second;
  float share;
};

// One row's loss, hits and unscaled gradient (p - target) / loss_rows.
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
  ADA_HOST_DEVICE std::int64_t LabelOf(std::int64_t row) const {
    return mixes == nullptr || mixes[row].share >= 0.5f ? labels[row] : mixes[row].second;
  }
  // Of this thread's classes; a NaN is passed over.
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
        gradient[row * classes + k] = LogitGradient(log_p, target, pass->loss_rows);
      if (target != 0) loss -= target * log_p;
      better += ComesBefore(z, k, mine, label) ? 1 : 0;
    }
    shared.loss[thread] = loss, shared.better[thread] = better;
  }
  ADA_HOST_DEVICE RowResult Total(std::int64_t row, int used, const Shared& shared) const {
    double loss = 0;
    std::int32_t better = 0;
    for (int t = 0; t < used; ++t) loss += shared.loss[t], better += shared.better[t];
    const double mine = Logit(row, LabelOf(row));
    return {loss, Hits(mine, better, 1), Hits(mine, better, 5)};
  }

  TensorSpan logits;
  std::int64_t classes = 0;
  const std::int32_t* labels = nullptr;
  const RowMix* mixes = nullptr;  // null: rows have one label
  double smoothing = 0;
  const PassValues* pass = nullptr;
  float* gradient = nullptr;  // null: evaluation
  RowResult* results = nullptr;
};

// The rows of one call, added to what `result` holds or in place of it. One block.
struct LossSum {
  static constexpr int kThreads = 128, kPhases = 2;
  struct Shared {
    double loss[kThreads];
    std::int64_t top1[kThreads], top5[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const int used = rows < kThreads ? rows : kThreads;
    if (kPhase == 0 && at.thread < used) {
      double loss = 0;
      std::int64_t top1 = 0, top5 = 0;
      for (int row = at.thread; row < rows; row += kThreads)
        loss += results[row].loss, top1 += results[row].top1, top5 += results[row].top5;
      shared.loss[at.thread] = loss, shared.top1[at.thread] = top1, shared.top5[at.thread] = top5;
    } else if (kPhase == 1 && at.thread == 0) {
      LossResult sum;
      for (int t = 0; t < used; ++t)
        sum.loss_sum += shared.loss[t], sum.top1 += shared.top1[t], sum.top5 += shared.top5[t];
      if (accumulate)
        sum.loss_sum += result->loss_sum, sum.top1 += result->top1, sum.top5 += result->top5;
      *result = sum;
    }
  }

  const RowResult* results = nullptr;
  int rows = 0;
  bool accumulate = false;
  LossResult* result = nullptr;
};

// The scale of the logit gradient.
struct SetLossScale {
  ADA_HOST_DEVICE void operator()(std::int64_t) const { *scale = pass->loss_scale; }
  float* scale = nullptr;
  const PassValues* pass = nullptr;
};

// The logit gradient before it is rounded; under `reference` it is rounded to `before`, its format,
// before it is scaled as well. For RoundingStats::Round.
struct ScaledGradient {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return RoundToGrid(before, gradient[i]) * pass->loss_scale;
  }
  const float* gradient = nullptr;
  NumberGrid before;
  const PassValues* pass = nullptr;
};

}  // namespace ada::backend::cuda

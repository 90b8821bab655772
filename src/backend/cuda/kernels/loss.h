// Softmax cross-entropy of images: a block of threads for each row, in double; then the sums over
// rows. Sums over classes: thread t takes classes t, t + kThreads, ..., then the threads are added
// up in their order; over rows likewise.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "backend/formulas.h"

namespace ada::backend::cuda {

// What a second label makes of a row's target; share 1: nothing.
struct RowMix {
  std::int32_t second;
  float share;
};

// One row's loss, hits and unscaled gradient (p - target) / loss_terms.
// A block a row suits many classes; pixels and boxes, rows of few scores, take a thread each
// (row_losses.h). Phases: the largest logit, the sum of exponentials, gradients and loss, and the
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

}  // namespace ada::backend::cuda

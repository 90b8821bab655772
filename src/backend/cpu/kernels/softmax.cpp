// Softmax of rows of scores, sixteen rows at a time, in loops that the compiler turns into vectors.
#include <algorithm>

#include "backend/cpu/kernels/functions.h"
#include "backend/cpu/kernels/tiles16.h"
#include "backend/loss_formulas.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// body(first row, rows) for each tile; its scores are in a.work.
template <class Body>
inline __attribute__((always_inline)) void ForTiles(const SoftmaxArgs& a, Body&& body) {
  for (std::int64_t first = 0; first < a.rows; first += kBlockRows) {
    const int count = static_cast<int>(std::min<std::int64_t>(kBlockRows, a.rows - first));
    LoadTile(a.z + first * a.classes, count, a.classes, a.work);
    body(first, count);
  }
}

// ln(sum of e^score) of a tile's rows. A NaN is passed over in the maximum, not in the sum.
inline __attribute__((always_inline)) void LogSums(const SoftmaxArgs& a, double* log_sums) {
  float highest[kBlockRows];
  double sums[kBlockRows];
  for (int r = 0; r < kBlockRows; ++r) highest[r] = -HUGE_VALF, sums[r] = 0;
  for (std::int64_t k = 0; k < a.classes; ++k)
    for (int r = 0; r < kBlockRows; ++r) {
      const float z = a.work[k * kBlockRows + r];
      highest[r] = z > highest[r] ? z : highest[r];
    }
  for (std::int64_t k = 0; k < a.classes; ++k)
    for (int r = 0; r < kBlockRows; ++r)
      sums[r] += Exponential(static_cast<double>(a.work[k * kBlockRows + r]) -
                             static_cast<double>(highest[r]));
  for (int r = 0; r < kBlockRows; ++r)
    log_sums[r] = LogSumExp(static_cast<double>(highest[r]), sums[r]);
}

}  // namespace

// Rows without a label are computed with label 0, which saves a branch in every loop; their results
// mean nothing.
void SoftmaxSums(const SoftmaxArgs& given) {
  const SoftmaxArgs a = given;
  ForTiles(a, [&](std::int64_t first, int count) {
    double log_sums[kBlockRows];
    LogSums(a, log_sums);
    std::int32_t labels[kBlockRows], better[kBlockRows];
    // The score of the row's label, and how many classes come before it: larger ones, and equal
    // ones of a smaller number.
    float mine[kBlockRows];
    for (int r = 0; r < kBlockRows; ++r) {
      const std::int32_t label = a.labels[first + std::min(r, count - 1)];
      labels[r] = label < 0 ? 0 : label, better[r] = 0;
      mine[r] = a.work[labels[r] * kBlockRows + r];
    }
    for (std::int64_t k = 0; k < a.classes; ++k)
      for (int r = 0; r < kBlockRows; ++r) {
        const float z = a.work[k * kBlockRows + r];
        const bool before =
            z > mine[r] || (z == mine[r] && static_cast<std::int32_t>(k) < labels[r]);
        better[r] += before ? 1 : 0;
      }
    for (int r = 0; r < count; ++r)
      a.log_sums[first + r] = log_sums[r], a.better[first + r] = better[r];
  });
}

// A tile in which nothing counts, as of boxes that are no hard negatives, is filled with zeros at
// once.
void SoftmaxGradient(const SoftmaxArgs& given) {
  const SoftmaxArgs a = given;
  ForTiles(a, [&](std::int64_t first, int count) {
    double log_sums[kBlockRows], factors[kBlockRows];
    std::int32_t labels[kBlockRows];
    bool any = false;
    for (int r = 0; r < kBlockRows; ++r) {
      const std::int64_t row = first + std::min(r, count - 1);
      labels[r] = a.labels[row], log_sums[r] = a.log_sums[row];
      factors[r] = labels[r] < 0 ? 0 : a.factors[labels[r]];
      any = any || labels[r] >= 0;
    }
    float* out = a.gradient + first * a.classes;
    if (!any) {
      std::fill_n(out, count * a.classes, 0.0f);
      return;
    }
    for (std::int64_t k = 0; k < a.classes; ++k)
      for (int r = 0; r < kBlockRows; ++r) {
        float& value = a.work[k * kBlockRows + r];
        const double target = static_cast<std::int32_t>(k) == labels[r] ? 1 : 0;
        value = labels[r] < 0 ? 0 : ScoreGradient(value, log_sums[r], target, factors[r]);
      }
    StoreTile(a.work, count, a.classes, out);
  });
}

}  // namespace ada::backend::cpu::ADA_ISA

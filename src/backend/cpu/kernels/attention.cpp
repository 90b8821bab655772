// Rows of attention: probabilities and the gradient of scores, in loops that the compiler turns
// into vectors, of sixteen lanes in every instruction set. At the end the table of all kernels of
// sequences, of which matrix.cpp has the others.
#include <algorithm>
#include <cmath>

#include "backend/attention_formulas.h"
#include "backend/cpu/sequence_kernels.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// The same number in all sets, so that sums are taken in one order.
constexpr int kLanes = 16;
#define ADA_ALWAYS inline __attribute__((always_inline))

ADA_ALWAYS double Sum(const double* lanes) {
  double sum = 0;
  for (int k = 0; k < kLanes; ++k) sum += lanes[k];
  return sum;
}

// A NaN compares false and is passed over; AllFinite finds it afterwards.
ADA_ALWAYS float Largest(const float* s, std::int64_t n) {
  float lanes[kLanes], largest = -HUGE_VALF;
  for (int k = 0; k < kLanes; ++k) lanes[k] = -HUGE_VALF;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) lanes[k] = s[i + k] > lanes[k] ? s[i + k] : lanes[k];
  for (; i < n; ++i) largest = s[i] > largest ? s[i] : largest;
  for (int k = 0; k < kLanes; ++k) largest = lanes[k] > largest ? lanes[k] : largest;
  return largest;
}
// A NaN is passed over, as above; no value: infinity.
ADA_ALWAYS float Smallest(const float* s, std::int64_t n) {
  float lanes[kLanes], smallest = HUGE_VALF;
  for (int k = 0; k < kLanes; ++k) lanes[k] = HUGE_VALF;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) lanes[k] = s[i + k] < lanes[k] ? s[i + k] : lanes[k];
  for (; i < n; ++i) smallest = s[i] < smallest ? s[i] : smallest;
  for (int k = 0; k < kLanes; ++k) smallest = lanes[k] < smallest ? lanes[k] : smallest;
  return smallest;
}

// By the largest bit pattern of magnitudes: those of inf and NaN are above all others.
ADA_ALWAYS bool AllFinite(const float* s, std::int64_t n) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, s[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest < 0x7f800000u;
}

// For rows whose visible scores give probabilities within fp32's normal range. Exponentials are in
// fp32, so that they are vectorized; they are summed in double, lane by lane.
ADA_ALWAYS void NarrowRow(float factor, float top, std::int64_t n, float* s) {
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) {
      const float e = SmallExponential((s[i + k] - top) * factor);
      s[i + k] = e;
      lanes[k] += static_cast<double>(e);
    }
  for (int k = 0; i + k < n; ++k) {
    s[i + k] = SmallExponential((s[i + k] - top) * factor);
    lanes[k] += static_cast<double>(s[i + k]);
  }
  const auto sum = static_cast<float>(Sum(lanes));
  for (std::int64_t j = 0; j < n; ++j) s[j] = s[j] / sum;
}

// Computes a row of any scores in double.
// Exponentials are computed twice, since there is no room for doubles; such rows are rare.
ADA_ALWAYS void WideRow(float factor, float top, std::int64_t n, float* s) {
  double sum = 0;
  for (std::int64_t j = 0; j < n; ++j) sum += WideExponential(s[j], top, factor);
  for (std::int64_t j = 0; j < n; ++j)
    s[j] = static_cast<float>(WideExponential(s[j], top, factor) / sum);
}

}  // namespace

// What a row does not see, and what fills up its last vector, becomes zero: the products after it
// run over whole rows.
void Probabilities(const AttentionRows& given, float factor, float* s) {
  const AttentionRows a = given;
  for (std::int64_t r = 0; r < a.rows; ++r, s += a.step) {
    const std::int64_t n = std::min(a.visible + (a.causal ? r : 0), a.keys);
    const float top = Largest(s, n);
    if (AllFinite(s, n) && IsNarrow(Smallest(s, n), top, factor))
      NarrowRow(factor, top, n, s);
    else
      WideRow(factor, top, n, s);
    std::fill(s + n, s + a.width, 0.0f);
  }
}

// p is the one that is not rounded. The sum is in double, as dp and it nearly cancel.
void ScoreGradient(const AttentionRows& given, const float* p, float* dp) {
  const AttentionRows a = given;
  for (std::int64_t r = 0; r < a.rows; ++r, p += a.step, dp += a.step) {
    const std::int64_t n = std::min(a.visible + (a.causal ? r : 0), a.keys);
    double lanes[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int k = 0; k < kLanes; ++k)
        lanes[k] += static_cast<double>(p[i + k]) * static_cast<double>(dp[i + k]);
    for (int k = 0; i + k < n; ++k)
      lanes[k] += static_cast<double>(p[i + k]) * static_cast<double>(dp[i + k]);
    const double sum = Sum(lanes);
    for (std::int64_t j = 0; j < n; ++j)
      dp[j] = static_cast<float>(static_cast<double>(p[j]) * (static_cast<double>(dp[j]) - sum));
    std::fill(dp + n, dp + a.width, 0.0f);
  }
}

// Defined in matrix.cpp.
void Matrix(const MatrixArgs&);
void TransposeMatrix(const float* from, std::int64_t rows, std::int64_t columns,
                     std::int64_t from_step, float* to, std::int64_t to_step);

const SequenceKernels kSequenceTable = {.matrix = Matrix,
                                        .transpose = TransposeMatrix,
                                        .probabilities = Probabilities,
                                        .score_gradient = ScoreGradient};

}  // namespace ada::backend::cpu::ADA_ISA

// Rows of attention: probabilities and the gradient of scores, sixteen lanes at a time in every
// instruction set. At the end the table of all kernels of sequences, of which matrix.cpp and
// rows.cpp have the others.
#include <algorithm>
#include <cmath>

#include "backend/attention_formulas.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/sequence_kernels.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// Whole vectors of n values.
ADA_INLINE std::int64_t WholeVectors(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Lanes in their order.
ADA_INLINE double SumOf(const D (&lanes)[2]) {
  double values[kLanes], sum = 0;
  StoreParts(values, lanes[0]);
  StoreParts(values + kLanes / 2, lanes[1]);
  for (int k = 0; k < kLanes; ++k) sum += values[k];
  return sum;
}

// What scores reach; a NaN is passed over but for `finite`.
struct Extremes {
  float smallest, largest;
  bool finite;
};
// n values and, up to the end of the last vector, copies of one of them.
ADA_INLINE Extremes ExtremesOf(const float* s, std::int64_t n) {
  F smallest = Fill(HUGE_VALF), largest = Fill(-HUGE_VALF);
  U magnitude{};
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const F x = LoadF(s + i);
    smallest = Select(x < smallest, x, smallest);
    largest = Select(x > largest, x, largest);
    magnitude = MaxBits(magnitude, Magnitude(x));
  }
  float low[kLanes], high[kLanes];
  StoreF(low, smallest), StoreF(high, largest);
  Extremes all{HUGE_VALF, -HUGE_VALF, LargestOf(magnitude) < 0x7f800000u};
  for (int k = 0; k < kLanes; ++k) {
    all.smallest = low[k] < all.smallest ? low[k] : all.smallest;
    all.largest = high[k] > all.largest ? high[k] : all.largest;
  }
  return all;
}

// For rows whose visible scores give probabilities within fp32's normal range. Exponentials are in
// fp32, so that they are vectorized; they are summed in double, lane by lane. What fills up the
// last vector becomes zero.
ADA_INLINE void NarrowRow(float factor, float top, std::int64_t n, float* s) {
  const std::int64_t whole = WholeVectors(n);
  for (std::int64_t i = 0; i < whole; i += kLanes)
    for (int k = 0; k < kLanes; ++k) s[i + k] = SmallExponential((s[i + k] - top) * factor);
  std::fill(s + n, s + whole, 0.0f);
  D lanes[2]{};
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    D e[2];
    ToDoubles(LoadF(s + i), e);
    lanes[0] = lanes[0] + e[0], lanes[1] = lanes[1] + e[1];
  }
  const F sum = Fill(static_cast<float>(SumOf(lanes)));
  for (std::int64_t i = 0; i < whole; i += kLanes) StoreF(s + i, LoadF(s + i) / sum);
}

// Computes a row of any scores in double.
// Exponentials are computed twice, since there is no room for doubles; such rows are rare.
ADA_INLINE void WideRow(float factor, float top, std::int64_t n, float* s) {
  double sum = 0;
  for (std::int64_t j = 0; j < n; ++j) sum += WideExponential(s[j], top, factor);
  for (std::int64_t j = 0; j < n; ++j)
    s[j] = static_cast<float>(WideExponential(s[j], top, factor) / sum);
}

}  // namespace

// What a row does not see, and what fills up its last vector, becomes zero: the products after it
// run over whole rows. Until then the last vector is filled up with a score of the row.
void Probabilities(const AttentionRows& given, float factor, float* s) {
  const AttentionRows a = given;
  for (std::int64_t r = 0; r < a.rows; ++r, s += a.step) {
    const std::int64_t n = std::min(a.visible + (a.causal ? r : 0), a.keys);
    std::fill(s + n, s + WholeVectors(n), s[0]);
    const Extremes scores = ExtremesOf(s, n);
    if (scores.finite && IsNarrow(scores.smallest, scores.largest, factor))
      NarrowRow(factor, scores.largest, n, s);
    else
      WideRow(factor, scores.largest, n, s);
    std::fill(s + n, s + a.width, 0.0f);
  }
}

// p is the one that is not rounded; it is zero where a row sees nothing. The sum is in double, as
// dp and it nearly cancel.
void ScoreGradient(const AttentionRows& given, const float* p, float* dp) {
  const AttentionRows a = given;
  for (std::int64_t r = 0; r < a.rows; ++r, p += a.step, dp += a.step) {
    const std::int64_t n = std::min(a.visible + (a.causal ? r : 0), a.keys);
    const std::int64_t whole = WholeVectors(n);
    std::fill(dp + n, dp + whole, 0.0f);
    D lanes[2]{};
    for (std::int64_t i = 0; i < whole; i += kLanes) {
      D of_p[2], of_dp[2];
      ToDoubles(LoadF(p + i), of_p);
      ToDoubles(LoadF(dp + i), of_dp);
      lanes[0] = lanes[0] + of_p[0] * of_dp[0], lanes[1] = lanes[1] + of_p[1] * of_dp[1];
    }
    const double sum = SumOf(lanes);
    for (std::int64_t i = 0; i < whole; i += kLanes)
      for (int k = 0; k < kLanes; ++k)
        dp[i + k] = static_cast<float>(static_cast<double>(p[i + k]) *
                                       (static_cast<double>(dp[i + k]) - sum));
    std::fill(dp + n, dp + a.width, 0.0f);
  }
}

// Defined in matrix.cpp and rows.cpp.
void Matrix(const MatrixArgs&);
void TransposeMatrix(const float* from, std::int64_t rows, std::int64_t columns,
                     std::int64_t from_step, float* to, std::int64_t to_step);
void LoadRows(TensorSpan from, std::int64_t from_step, std::int64_t rows, std::int64_t width,
              float* to, std::int64_t to_step);
void StoreRows(const float* from, std::int64_t from_step, std::int64_t rows, std::int64_t width,
               float factor, float* to, std::int64_t to_step);
void AddRows(TensorSpan from, std::int64_t rows, std::int64_t width, float factor, float* to,
             std::int64_t to_step);

const SequenceKernels kSequenceTable = {.matrix = Matrix,
                                        .transpose = TransposeMatrix,
                                        .load_rows = LoadRows,
                                        .store_rows = StoreRows,
                                        .add_rows = AddRows,
                                        .probabilities = Probabilities,
                                        .score_gradient = ScoreGradient};

}  // namespace ada::backend::cpu::ADA_ISA

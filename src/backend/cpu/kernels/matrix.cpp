// Products of small matrices: blocks of rows times one or two vectors of 16 columns, their sums in
// registers. And transposes.
#include <algorithm>
#include <utility>

#include "backend/cpu/kernels/lanes.h"
#include "backend/cpu/sequence_kernels.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

constexpr int kParts = 64 / kRegister;  // registers of 16 lanes
#if defined(__AVX512F__)
// As many sums as registers hold next to a factor and a value: 12 and 16 of 32.
constexpr int kRowsOfOne = 12, kRowsOfTwo = 8;
#else
constexpr int kRowsOfOne = 12 / kParts, kRowsOfTwo = kRowsOfOne / 2;
#endif

ADA_INLINE Floats Load(const float* from) {
  Floats x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

// kRows rows of 16 * kColumns columns from (row, column) on.
// Each value of b's row is loaded once for all rows of the block, each value of a is spread over a
// register.
template <int kRows, int kColumns>
ADA_INLINE void Block(const MatrixArgs& m, std::int64_t row, std::int64_t column) {
  constexpr int kRegisters = kColumns * kParts;
  constexpr int kWide = 16 / kParts;
  Floats sums[kRegisters][kRows];
#pragma GCC unroll 8
  for (int c = 0; c < kRegisters; ++c)
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
      sums[c][r] = m.add ? Load(m.c + (row + r) * m.c_row + column + c * kWide) : Floats{};
  const float *a = m.a + row * m.a_row, *b = m.b + column;
  for (std::int64_t k = 0; k < m.terms; ++k, a += m.a_term, b += m.b_term) {
    Floats factors[kRegisters];
#pragma GCC unroll 8
    for (int c = 0; c < kRegisters; ++c) factors[c] = Load(b + c * kWide);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Floats value = Floats{} + a[r * m.a_row];
#pragma GCC unroll 8
      for (int c = 0; c < kRegisters; ++c)
        sums[c][r] = FusedMultiplyAdd(value, factors[c], sums[c][r]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kRegisters; ++c)
      std::memcpy(m.c + (row + r) * m.c_row + column + c * kWide, &sums[c][r], sizeof(Floats));
}

// The remaining rows: blocks of 4, 2 and 1.
template <int kRows, int kColumns>
ADA_INLINE void Strip(const MatrixArgs& m, std::int64_t column) {
  std::int64_t row = 0;
  for (; row + kRows <= m.rows; row += kRows) Block<kRows, kColumns>(m, row, column);
  for (; row + 4 <= m.rows && kRows > 4; row += 4) Block<4, kColumns>(m, row, column);
  for (; row + 2 <= m.rows && kRows > 2; row += 2) Block<2, kColumns>(m, row, column);
  for (; row < m.rows; ++row) Block<1, kColumns>(m, row, column);
}

}  // namespace

// Columns are a multiple of 16 (MatrixArgs), so that no vector is partial; the order over terms is
// that of the memory.
void Matrix(const MatrixArgs& given) {
  const MatrixArgs m = given;
  std::int64_t column = 0;
  if constexpr (kRowsOfTwo > 0)
    for (; column + 32 <= m.columns; column += 32) Strip<kRowsOfTwo, 2>(m, column);
  for (; column < m.columns; column += 16) Strip<kRowsOfOne, 1>(m, column);
}

namespace {

constexpr int kSquare = kRegister / 4;  // values of a register

// The lanes with the bit kHalf of a, and those without it of b, change places.
template <int kHalf, int... kLane>
ADA_INLINE void Exchange(Floats& a, Floats& b, std::integer_sequence<int, kLane...>) {
  const Floats first =
      __builtin_shufflevector(a, b, ((kLane & kHalf) != 0 ? kSquare + kLane - kHalf : kLane)...);
  b = __builtin_shufflevector(a, b, ((kLane & kHalf) != 0 ? kSquare + kLane : kLane + kHalf)...);
  a = first;
}
// The two quarters beside the diagonal of each square of 2 * kHalf change places.
template <int kHalf>
ADA_INLINE void ExchangeQuarters(Floats (&rows)[kSquare]) {
#pragma GCC unroll 16
  for (int i = 0; i < kSquare; ++i)
    if ((i & kHalf) == 0)
      Exchange<kHalf>(rows[i], rows[i + kHalf], std::make_integer_sequence<int, kSquare>());
}
ADA_INLINE void TransposeSquare(const float* from, std::int64_t from_step, float* to,
                                std::int64_t to_step) {
  Floats rows[kSquare];
#pragma GCC unroll 16
  for (int i = 0; i < kSquare; ++i) rows[i] = Load(from + i * from_step);
  ExchangeQuarters<1>(rows);
  ExchangeQuarters<2>(rows);
  if constexpr (kSquare > 4) ExchangeQuarters<4>(rows);
  if constexpr (kSquare > 8) ExchangeQuarters<8>(rows);
#pragma GCC unroll 16
  for (int i = 0; i < kSquare; ++i) std::memcpy(to + i * to_step, &rows[i], sizeof(Floats));
}

}  // namespace

// Tiles of 16 x 16 keep both sides within a few lines of the cache.
void TransposeMatrix(const float* from, std::int64_t rows, std::int64_t columns,
                     std::int64_t from_step, float* to, std::int64_t to_step) {
  constexpr std::int64_t kTile = 16;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (std::int64_t k0 = 0; k0 < columns; k0 += kTile) {
      const std::int64_t r1 = std::min(r0 + kTile, rows), k1 = std::min(k0 + kTile, columns);
      if (r1 - r0 == kTile && k1 - k0 == kTile) {
        for (std::int64_t r = r0; r < r1; r += kSquare)
          for (std::int64_t k = k0; k < k1; k += kSquare)
            TransposeSquare(from + r * from_step + k, from_step, to + k * to_step + r, to_step);
        continue;
      }
      for (std::int64_t k = k0; k < k1; ++k)
        for (std::int64_t r = r0; r < r1; ++r) to[k * to_step + r] = from[r * from_step + k];
    }
}

}  // namespace ada::backend::cpu::ADA_ISA

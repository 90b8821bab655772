// Loops of updates of whole parameters. They are written value by value; the compiler makes vectors
// of them.
#include <cmath>

#include "backend/cpu/kernels/lanes.h"
#include "backend/cpu/whole_update_kernels.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

ADA_INLINE float ValueOf(float x) { return x; }
ADA_INLINE float ValueOf(std::uint16_t code) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(code) << 16);
}

// A product of two fp32 values is exact in double.
template <class T>
ADA_INLINE void CombineWith(float factor, const T* __restrict x, float share, float* __restrict y,
                            std::int64_t n) {
  const auto wide = static_cast<double>(factor);
  for (std::int64_t i = 0; i < n; ++i) {
    const float rest = share * y[i];
    y[i] =
        static_cast<float>(wide * static_cast<double>(ValueOf(x[i])) + static_cast<double>(rest));
  }
}

void Combine(float factor, TensorSpan x, float share, float* y, std::int64_t n) {
  if (x.storage == Storage::kBF16)
    return CombineWith(factor, static_cast<const std::uint16_t*>(x.data), share, y, n);
  CombineWith(factor, static_cast<const float*>(x.data), share, y, n);
}

void ColumnSquares(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t step,
                   double* __restrict sums) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* __restrict row = x + r * step;
    for (std::int64_t c = 0; c < columns; ++c)
      sums[c] += static_cast<double>(row[c]) * static_cast<double>(row[c]);
  }
}

void DivideByRoots(const float* __restrict gradient, float row, const float* __restrict columns,
                   float least, float* __restrict change, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float square = row * columns[i];
    change[i] = gradient[i] / std::sqrt(square < least ? least : square);
  }
}

}  // namespace

const WholeUpdateKernels kWholeUpdateTable = {
    .combine = Combine, .column_squares = ColumnSquares, .divide_by_roots = DivideByRoots};

}  // namespace ada::backend::cpu::ADA_ISA

// The instructions of the matrix unit with tile numbers as template arguments (the compiler's own
// want literals). Loads come after all stores to memory that precede them in the source.
#pragma once
#include <cstddef>

#include "backend/cpu/kernels/simd.h"

namespace ada::backend::cpu::ADA_ISA {

template <int kTile>
ADA_INLINE void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
// 16 rows of 64 bytes, one after the other, from a multiple of 64 on.
template <int kTile>
ADA_INLINE void LoadTile(const void* from) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
               :
               : "r"(from), "r"(std::ptrdiff_t{64}), "i"(kTile)
               : "memory");
}
// 16 rows of 64 bytes, `row_bytes` apart. The compiler may move it before stores to memory that
// precede it: for what was written before the kernel began.
template <int kTile>
ADA_INLINE void LoadRows(const void* from, std::ptrdiff_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(kTile));
}
template <int kTile>
ADA_INLINE void StoreTile(void* to) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
               :
               : "r"(to), "r"(std::ptrdiff_t{64}), "i"(kTile)
               : "memory");
}
// kSum += kA * kB, of bf16: row r of A times pairs of rows of B.
template <int kSum, int kA, int kB>
ADA_INLINE void MultiplyTiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

}  // namespace ada::backend::cpu::ADA_ISA

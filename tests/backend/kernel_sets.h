// The kernel tables that this processor can run.
#pragma once
#include <vector>

#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/naive_count.h"

namespace ada::backend::test {

using cpu::Kernels;
using cpu::TensorSpan;

inline std::vector<const Kernels*> KernelSets() {
  std::vector<const Kernels*> sets = {&cpu::sse2::kTable};
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) sets.push_back(&cpu::avx2::kTable);
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    sets.push_back(&cpu::avx512::kTable);
  return sets;
}

}  // namespace ada::backend::test

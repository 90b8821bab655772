// The kernel tables that this processor can run.
#pragma once
#include <vector>

#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/naive_count.h"

namespace ada::backend::test {

using cpu::Kernels;
using cpu::TensorSpan;

// The least first.
inline std::vector<const Kernels*> KernelSets() {
  const std::vector<const Kernels*> here = cpu::KernelsHere();
  return {here.rbegin(), here.rend()};
}

}  // namespace ada::backend::test

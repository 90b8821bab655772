#include "data/images/select_kernels.h"

namespace ada::data {

std::vector<const ResizeKernels*> ResizeKernelsHere() {
  std::vector<const ResizeKernels*> here;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    here.push_back(&avx512::kResizeKernels);
  if (__builtin_cpu_supports("avx2")) here.push_back(&avx2::kResizeKernels);
  here.push_back(&sse2::kResizeKernels);
  return here;
}

const ResizeKernels& BestResizeKernels() {
  static const ResizeKernels& best = *ResizeKernelsHere().front();
  return best;
}

}  // namespace ada::data

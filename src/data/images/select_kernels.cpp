// The processor is asked once; the kernels of all sets are part of every program.
#include "data/images/select_kernels.h"

namespace ada::data {

namespace {

template <class Kernels>
std::vector<const Kernels*> KernelsHere(const Kernels* avx512, const Kernels* avx2,
                                        const Kernels* sse2) {
  std::vector<const Kernels*> here;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    here.push_back(avx512);
  if (__builtin_cpu_supports("avx2")) here.push_back(avx2);
  here.push_back(sse2);
  return here;
}

}  // namespace

std::vector<const ResizeKernels*> ResizeKernelsHere() {
  return KernelsHere(&avx512::kResizeKernels, &avx2::kResizeKernels, &sse2::kResizeKernels);
}

const ResizeKernels& BestResizeKernels() {
  static const ResizeKernels& best = *ResizeKernelsHere().front();
  return best;
}

std::vector<const ColorKernels*> ColorKernelsHere() {
  return KernelsHere(&avx512::kColorKernels, &avx2::kColorKernels, &sse2::kColorKernels);
}

const ColorKernels& BestColorKernels() {
  static const ColorKernels& best = *ColorKernelsHere().front();
  return best;
}

}  // namespace ada::data

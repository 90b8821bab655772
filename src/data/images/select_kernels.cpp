// The processor is asked once; the kernels of all sets are part of every program.
#include "data/images/kernels/picture_kernels.h"

namespace ada::data {
namespace {

// The tables of one set.
struct Tables {
  const ResizeKernels& resize;
  const ColorKernels& color;
};

// Those that this machine can run, the best first.
#if defined(__x86_64__)
std::vector<Tables> Ask() {
  std::vector<Tables> here;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    here.push_back({avx512::kResizeKernels, avx512::kColorKernels});
  if (__builtin_cpu_supports("avx2")) here.push_back({avx2::kResizeKernels, avx2::kColorKernels});
  here.push_back({sse2::kResizeKernels, sse2::kColorKernels});
  return here;
}
#else
std::vector<Tables> Ask() { return {{generic::kResizeKernels, generic::kColorKernels}}; }
#endif

const std::vector<Tables>& TablesHere() {
  static const std::vector<Tables> here = Ask();
  return here;
}

}  // namespace

std::vector<const ResizeKernels*> ResizeKernelsHere() {
  std::vector<const ResizeKernels*> here;
  for (const Tables& tables : TablesHere()) here.push_back(&tables.resize);
  return here;
}
const ResizeKernels& BestResizeKernels() { return TablesHere().front().resize; }

std::vector<const ColorKernels*> ColorKernelsHere() {
  std::vector<const ColorKernels*> here;
  for (const Tables& tables : TablesHere()) here.push_back(&tables.color);
  return here;
}
const ColorKernels& BestColorKernels() { return TablesHere().front().color; }

}  // namespace ada::data

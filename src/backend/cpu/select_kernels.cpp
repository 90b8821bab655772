// Which instruction set this process uses.
#include <cpuid.h>

#include <cstdlib>
#include <string>

#include "backend/cpu/kernel_tables.h"
#include "core/error.h"

namespace ada::backend::cpu {
namespace {
// Conversions to and from fp16 (clang 14's __builtin_cpu_supports does not know the name).
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
}  // namespace

const Kernels& SelectKernels() {
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && HasF16c() && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const char* wanted = std::getenv("ADA_ISA");
  const std::string isa = wanted != nullptr && *wanted != '\0' ? wanted
                          : has_avx512                         ? "avx512"
                          : has_avx2                           ? "avx2"
                                                               : "sse2";
  if (isa == "avx512" && has_avx512) return avx512::kTable;
  if (isa == "avx2" && has_avx2) return avx2::kTable;
  if (isa == "sse2") return sse2::kTable;
  throw DeviceError("ADA_ISA=" + isa + ": this processor offers sse2" + (has_avx2 ? " avx2" : "") +
                    (has_avx512 ? " avx512" : ""));
}

}  // namespace ada::backend::cpu

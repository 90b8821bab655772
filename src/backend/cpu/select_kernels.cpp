// Which instruction set this process uses.
#include <cstdlib>
#include <string>

#include "backend/cpu/kernels.h"
#include "core/error.h"

namespace ada::backend::cpu {
namespace sse2 {
extern const Kernels kTable;
}
namespace avx2 {
extern const Kernels kTable;
}
namespace avx512 {
extern const Kernels kTable;
}

const Kernels& SelectKernels() {
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") &&
                        __builtin_cpu_supports("fma");
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

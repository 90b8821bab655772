// What the processor reports about itself, and what Linux permits.
#include "backend/cpu/processor.h"

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ada::backend::cpu {
namespace {

#if defined(__x86_64__)
// Conversions to and from fp16 (clang 14's __builtin_cpu_supports does not know the name).
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && HasF16c() && __builtin_cpu_supports("fma");
}
bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

// AVX-512's conversions to bf16 and bf16 dot products (CPUID 7.1, EAX bit 5).
bool HasBf16Dot() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1u) != 0;
}

// AMX tiles and their bf16 products (CPUID 7.0, EDX bits 24 and 22).
bool ProcessorHasAmx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 24 & 1u) != 0 && (d >> 22 & 1u) != 0;
}
// Linux keeps a process from the tiles' 8 KB of state until it asks (ARCH_REQ_XCOMP_PERM of
// arch_prctl, for XTILEDATA); threads made later have the permission too.
bool SystemPermitsAmx() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
bool HasAmx() { return ProcessorHasAmx() && SystemPermitsAmx(); }

std::vector<std::string_view> Ask() {
  struct Set {
    std::string_view name;
    bool (*has)();
  };
  static constexpr Set kMore[] = {
      {"avx2", HasAvx2}, {"avx512", HasAvx512}, {"avx512bf16", HasBf16Dot}, {"amx", HasAmx}};
  std::vector<std::string_view> sets = {"sse2"};
  for (const Set& set : kMore) {
    if (!set.has()) break;
    sets.push_back(set.name);
  }
  return sets;
}
#else
std::vector<std::string_view> Ask() { return {"generic"}; }
#endif

}  // namespace

// Asked once: in a virtual machine the instruction CPUID takes some twenty microseconds.
const std::vector<std::string_view>& InstructionSetsHere() {
  static const std::vector<std::string_view> sets = Ask();
  return sets;
}

bool HasInstructionSet(std::string_view name) {
  const std::vector<std::string_view>& sets = InstructionSetsHere();
  return std::find(sets.begin(), sets.end(), name) != sets.end();
}

}  // namespace ada::backend::cpu

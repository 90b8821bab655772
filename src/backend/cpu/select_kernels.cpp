// Which instruction set this process uses, of those that the processor says it has and Linux
// permits.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/accumulate_kernels.h"
#include "backend/cpu/block_kernels.h"
#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/sequence_kernels.h"
#include "backend/cpu/value_kernels.h"
#include "error.h"

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

// The names of those that this processor has, each one after those that it contains: sse2, avx2,
// avx512, avx512bf16, amx; of a processor other than x86-64 `generic` alone.
// Asked once: in a virtual machine the instruction CPUID takes some twenty microseconds.
const std::vector<std::string_view>& InstructionSetsHere() {
  static const std::vector<std::string_view> sets = Ask();
  return sets;
}

bool HasInstructionSet(std::string_view name) {
  const std::vector<std::string_view>& sets = InstructionSetsHere();
  return std::find(sets.begin(), sets.end(), name) != sets.end();
}

std::string Setting(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// The tables of one set.
struct Tables {
  const Kernels& kernels;
  const SequenceKernels& sequences;
  const ValueKernels& values;
  const BlockKernels& blocks;
  const AccumulateKernels& accumulate;
};

#if defined(__x86_64__)
// The best first.
constexpr Tables kTables[] = {{avx512::kTable, avx512::kSequenceTable, avx512::kValueTable,
                               avx512::kBlockTable, avx512::kAccumulateTable},
                              {avx2::kTable, avx2::kSequenceTable, avx2::kValueTable,
                               avx2::kBlockTable, avx2::kAccumulateTable},
                              {sse2::kTable, sse2::kSequenceTable, sse2::kValueTable,
                               sse2::kBlockTable, sse2::kAccumulateTable}};

MatmulKernels With(const WinogradKernels& winograd, MatmulKernels table) {
  table.winograd = &winograd;
  return table;
}
// Our own products in this set; the best first.
std::vector<MatmulKernels> MatmulsOf(std::string_view isa) {
  if (isa == "amx") return {amx::kAmxTable};
  if (isa == "avx512bf16")
    return {With(avx512::kWinogradTable, avx512bf16::kDirectTable),
            With(avx512::kWinogradTable, avx512::kDirectTable)};
  if (isa == "avx512") return {With(avx512::kWinogradTable, avx512::kDirectTable)};
  if (isa == "avx2") return {With(avx2::kWinogradTable, avx2::kDirectTable)};
  return {};
}
#else
constexpr Tables kTables[] = {{generic::kTable, generic::kSequenceTable, generic::kValueTable,
                               generic::kBlockTable, generic::kAccumulateTable}};

std::vector<MatmulKernels> MatmulsOf(std::string_view) { return {}; }
#endif

const Tables& TablesOf(const Kernels& kernels) {
  for (const Tables& tables : kTables)
    if (&tables.kernels == &kernels) return tables;
  throw DeviceError("these kernels are of no instruction set");
}

}  // namespace

std::vector<const Kernels*> KernelsHere() {
  std::vector<const Kernels*> here;
  for (const Tables& tables : kTables)
    if (HasInstructionSet(tables.kernels.name)) here.push_back(&tables.kernels);
  return here;
}

const Kernels& SelectKernels() {
  const std::string wanted = Setting("ADA_ISA");
  const std::vector<const Kernels*> here = KernelsHere();
  for (const Kernels* const kernels : here)
    if (wanted == kernels->name) return *kernels;
  if (wanted.empty() || HasInstructionSet(wanted)) return *here.front();
  std::string offered;
  for (const std::string_view isa : InstructionSetsHere()) offered.append(" ").append(isa);
  throw DeviceError("ADA_ISA=" + wanted + ": this processor offers" + offered);
}

const SequenceKernels& SequenceKernelsOf(const Kernels& kernels) {
  return TablesOf(kernels).sequences;
}
const ValueKernels& ValueKernelsOf(const Kernels& kernels) { return TablesOf(kernels).values; }
const BlockKernels& BlockKernelsOf(const Kernels& kernels) { return TablesOf(kernels).blocks; }
const AccumulateKernels& AccumulateKernelsOf(const Kernels& kernels) {
  return TablesOf(kernels).accumulate;
}

std::vector<MatmulKernels> SelectMatmulKernels() {
  const std::string products = Setting("ADA_PRODUCTS");
  if (products == "onednn") return {};
  if (!products.empty() && products != "direct")
    throw DeviceError("ADA_PRODUCTS=" + products +
                      ": it may be onednn or direct; without it the fastest products run");
  const std::string wanted = Setting("ADA_ISA");
  std::vector<MatmulKernels> tables =
      wanted.empty() || HasInstructionSet(wanted)
          ? MatmulsOf(wanted.empty() ? InstructionSetsHere().back() : std::string_view(wanted))
          : std::vector<MatmulKernels>();
  if (products == "direct")
    for (MatmulKernels& table : tables) table.winograd = nullptr;
  return tables;
}

std::string NameOfMatmuls() {
  const std::string products = Setting("ADA_PRODUCTS");
  return products.empty() ? "" : ", " + (products == "onednn" ? "oneDNN" : products) + " products";
}

}  // namespace ada::backend::cpu

// Which instruction set this process uses.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "backend/cpu/block_kernels.h"
#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/sequence_kernels.h"
#include "backend/cpu/value_kernels.h"
#include "core/error.h"

namespace ada::backend::cpu {
namespace {

// Conversions to and from fp16 (clang 14's __builtin_cpu_supports does not know the name).
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
// Asked once: in a virtual machine the instruction CPUID takes some twenty microseconds.
bool HasAvx2() {
  static const bool has =
      __builtin_cpu_supports("avx2") && HasF16c() && __builtin_cpu_supports("fma");
  return has;
}
bool HasAvx512() {
  static const bool has = HasAvx2() && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}

// AVX-512's conversions to bf16 and bf16 dot products (CPUID 7.1, EAX bit 5).
bool HasBf16Dot() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return HasAvx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1u) != 0;
  }();
  return has;
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
bool HasAmx() {
  static const bool has = HasBf16Dot() && ProcessorHasAmx() && SystemPermitsAmx();
  return has;
}

std::string Setting(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

MatmulKernels With(const WinogradKernels& winograd, MatmulKernels table) {
  table.winograd = &winograd;
  return table;
}
// The best first.
std::vector<MatmulKernels> TablesOf(const std::string& wanted) {
  const bool any = wanted.empty();
  if ((any || wanted == "amx") && HasAmx()) return {amx::kAmxTable};
  if ((any || wanted == "avx512bf16") && HasBf16Dot())
    return {With(avx512::kWinogradTable, avx512bf16::kDirectTable),
            With(avx512::kWinogradTable, avx512::kDirectTable)};
  if ((any || wanted == "avx512") && HasAvx512())
    return {With(avx512::kWinogradTable, avx512::kDirectTable)};
  if ((any || wanted == "avx2") && HasAvx2())
    return {With(avx2::kWinogradTable, avx2::kDirectTable)};
  return {};
}

}  // namespace

const Kernels& SelectKernels() {
  const std::string wanted = Setting("ADA_ISA");
  const std::string isa = !wanted.empty() ? wanted
                          : HasAvx512()   ? "avx512"
                          : HasAvx2()     ? "avx2"
                                          : "sse2";
  if (isa == "amx" && HasAmx()) return avx512::kTable;
  if (isa == "avx512bf16" && HasBf16Dot()) return avx512::kTable;
  if (isa == "avx512" && HasAvx512()) return avx512::kTable;
  if (isa == "avx2" && HasAvx2()) return avx2::kTable;
  if (isa == "sse2") return sse2::kTable;
  throw DeviceError("ADA_ISA=" + isa + ": this processor offers sse2" + (HasAvx2() ? " avx2" : "") +
                    (HasAvx512() ? " avx512" : "") + (HasBf16Dot() ? " avx512bf16" : "") +
                    (HasAmx() ? " amx" : ""));
}

const SequenceKernels& SequenceKernelsOf(const Kernels& kernels) {
  return &kernels == &avx512::kTable ? avx512::kSequenceTable
         : &kernels == &avx2::kTable ? avx2::kSequenceTable
                                     : sse2::kSequenceTable;
}

const ValueKernels& ValueKernelsOf(const Kernels& kernels) {
  return &kernels == &avx512::kTable ? avx512::kValueTable
         : &kernels == &avx2::kTable ? avx2::kValueTable
                                     : sse2::kValueTable;
}

const BlockKernels& BlockKernelsOf(const Kernels& kernels) {
  return &kernels == &avx512::kTable ? avx512::kBlockTable
         : &kernels == &avx2::kTable ? avx2::kBlockTable
                                     : sse2::kBlockTable;
}

std::vector<MatmulKernels> SelectMatmulKernels() {
  const std::string products = Setting("ADA_PRODUCTS");
  if (products == "onednn") return {};
  if (!products.empty() && products != "direct")
    throw DeviceError("ADA_PRODUCTS=" + products +
                      ": it may be onednn or direct; without it the fastest products run");
  std::vector<MatmulKernels> tables = TablesOf(Setting("ADA_ISA"));
  if (products == "direct")
    for (MatmulKernels& table : tables) table.winograd = nullptr;
  return tables;
}

std::string NameOfMatmuls() {
  const std::string products = Setting("ADA_PRODUCTS");
  return products.empty() ? "" : ", " + (products == "onednn" ? "oneDNN" : products) + " products";
}

}  // namespace ada::backend::cpu

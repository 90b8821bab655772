// Which instruction set this process uses.
#include <cstdlib>
#include <string>

#include "backend/cpu/accumulate_kernels.h"
#include "backend/cpu/block_kernels.h"
#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/processor.h"
#include "backend/cpu/sequence_kernels.h"
#include "backend/cpu/value_kernels.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

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

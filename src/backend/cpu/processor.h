// Which of the instruction sets that kernels are compiled for this processor has.
#pragma once
#include <string_view>
#include <vector>

namespace ada::backend::cpu {

// Their names, each one after those that it contains: sse2, avx2, avx512, avx512bf16, amx; of a
// processor other than x86-64 `generic` alone.
const std::vector<std::string_view>& InstructionSetsHere();

bool HasInstructionSet(std::string_view name);

}  // namespace ada::backend::cpu

// The first lanes of a vector of values, from any storage; the others are 0. Lanes that are not
// wanted are not touched in memory either.
#pragma once
#include "backend/cpu/matmul/kernels/amx/bf16_split.h"

namespace ada::backend::cpu::ADA_ISA {

template <Storage kStorage>
ADA_INLINE F LoadLanes(const void* values, std::int64_t i, __mmask16 lanes) {
  if constexpr (kStorage == Storage::kF16) {
    const auto* p = static_cast<const std::uint16_t*>(values) + i;
    return (F)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, p));
  } else if constexpr (kStorage == Storage::kBF16) {
    const auto* p = static_cast<const std::uint16_t*>(values) + i;
    return (F)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, p)), 16);
  } else {
    return (F)_mm512_maskz_loadu_ps(lanes, static_cast<const float*>(values) + i);
  }
}
// All 16 of them.
template <Storage kStorage>
ADA_INLINE F LoadWhole(const void* values, std::int64_t i) {
  if constexpr (kStorage == Storage::kF16)
    return ModeF16::Load({const_cast<void*>(values), kStorage}, i);
  else if constexpr (kStorage == Storage::kBF16)
    return ModeBF16::Load({const_cast<void*>(values), kStorage}, i);
  else
    return ModeF32::Load({const_cast<void*>(values), kStorage}, i);
}
ADA_INLINE __mmask16 Lanes(std::int64_t n) {
  return n >= 16 ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1u << n) - 1);
}

}  // namespace ada::backend::cpu::ADA_ISA

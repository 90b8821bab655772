// Which products of a weight gradient are not zero (matmul/plan/winograd.h): bits of pixels, and
// the weights for which few bits are common.
#include "backend/cpu/matmul/kernels/winograd/transforms.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// Words of 64 bits in a register, and registers of a block of 16 outputs.
typedef std::uint64_t Words __attribute__((vector_size(kRegister)));
constexpr int kWords = kRegister / 8, kRegisters = 16 / kWords;

// Codes: std::uint16_t or std::uint32_t. kMagnitude: all bits but the sign.
template <class Code, Code kMagnitude>
ADA_OUTLINE void Mark(const MarkNonzeroArgs& a) {
  const auto* codes = static_cast<const Code*>(a.pixels.data);
  for (int block = 0; block < a.channels; block += 16) {
    const int lanes = a.channels - block < 16 ? a.channels - block : 16;
    for (int pixel = 0; pixel < a.count;) {
      const int position = a.position + pixel, word = position / 64;
      const int rest = a.count - pixel, room = 64 - position % 64;
      const int end = pixel + (rest < room ? rest : room);
      std::uint64_t bits[16] = {};
      for (std::uint64_t bit = std::uint64_t{1} << position % 64; pixel < end; ++pixel, bit <<= 1) {
        const Code* from = codes + std::int64_t{pixel} * a.channels + block;
        if (lanes == 16)
          for (int c = 0; c < 16; ++c) bits[c] |= (from[c] & kMagnitude) != 0 ? bit : 0;
        else
          for (int c = 0; c < lanes; ++c) bits[c] |= (from[c] & kMagnitude) != 0 ? bit : 0;
      }
      std::uint64_t* to = a.bits + std::int64_t{word} * a.room + block;
      for (int c = 0; c < 16; ++c) to[c] |= bits[c];
    }
  }
}

// A bit for each word that is not zero.
ADA_INLINE unsigned NonzeroWords(Words w) {
#ifdef __AVX512F__
  return _mm512_test_epi64_mask((__m512i)w, (__m512i)w);
#else
  return ~_mm256_movemask_pd((__m256d)(w == Words{})) & 0xfu;
#endif
}

// A bit for each of 16 outputs that have at least kEnoughTerms bits in common with x.
ADA_INLINE unsigned WithEnough(const std::uint64_t* dy, std::uint64_t x) {
  unsigned enough = 0;
#pragma GCC unroll 4
  for (int r = 0; r < kRegisters; ++r) {
    Words common;
    __builtin_memcpy(&common, dy + r * kWords, sizeof common);
    common &= Words{} + x;
#pragma GCC unroll 8
    for (int n = 1; n < kEnoughTerms; ++n) common &= common - 1;  // without its lowest bit
    enough |= NonzeroWords(common) << (r * kWords);
  }
  return enough;
}

}  // namespace

void MarkNonzero(const MarkNonzeroArgs& a) {
  if (a.pixels.storage == Storage::kF32)
    Mark<std::uint32_t, 0x7fffffffu>(a);
  else
    Mark<std::uint16_t, 0x7fffu>(a);
}

// A word in which an output has enough common bits settles it; the loop ends when all are settled.
void FindSparseSums(const FindSparseSumsArgs& a) {
  for (int in = 0; in < a.in_channels; ++in) {
    std::uint16_t* few = a.few + in * kTaps;
    for (int tap = 0; tap < kTaps; ++tap) few[tap] = 0xffffu;
    bool all = false;
    for (int word = 0; word < a.words && !all; ++word) {
      const std::uint64_t* dy = a.dy + std::int64_t{word} * a.out_room;
      unsigned left = 0;
      for (int row = 0; row < kTapRows; ++row) {
        const std::uint64_t* at = a.x[row] + std::int64_t{word} * a.in_room + in;
        const std::uint64_t here = at[0], next = at[a.in_room];
        const std::uint64_t x[kTapRows] = {here, here >> 1 | next << 63, here >> 2 | next << 62};
        for (int column = 0; column < kTapRows; ++column) {
          std::uint16_t& of_tap = few[row * kTapRows + column];
          of_tap &= static_cast<std::uint16_t>(~WithEnough(dy, x[column]));
          left |= of_tap;
        }
      }
      all = left == 0;
    }
  }
}

}  // namespace ada::backend::cpu::ADA_ISA

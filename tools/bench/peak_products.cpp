// Arithmetic peaks: chains of instructions whose operands stay in registers, as many chains as hide
// one instruction's latency. See peak.h.
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "peak.h"

namespace ada::bench {
namespace {

constexpr int kTimes = 10;
constexpr int kRounds = 1 << 20;  // of a function below: some milliseconds
volatile float g_sink;            // results are used

// x = x * a + b, which tends to 1: no overflow, nothing subnormal. Chains begin with different
// values, or the compiler would compute one of them for all.
constexpr float kFactor = 0.75f, kSummand = 0.25f;
float Start(int chain) { return kFactor + 0.001f * static_cast<float>(chain); }

__attribute__((target("avx512f"))) double FmaAvx512() {
  constexpr int kChains = 16;
  __m512 x[kChains];
  const __m512 a = _mm512_set1_ps(kFactor), b = _mm512_set1_ps(kSummand);
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) x[i] = _mm512_set1_ps(Start(i));
  for (int round = 0; round < kRounds; ++round)
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) x[i] = _mm512_fmadd_ps(x[i], a, b);
  __m512 sum = x[0];
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) sum = _mm512_add_ps(sum, x[i]);
  g_sink = _mm512_cvtss_f32(sum);
  return 2.0 * 16 * kChains * kRounds;
}

__attribute__((target("avx512f,avx512bf16"))) double PairsAvx512() {
  constexpr int kChains = 16;
  __m512 sums[kChains];
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(kFactor), _mm512_set1_ps(kSummand));
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(Start(i));
  for (int round = 0; round < kRounds; ++round)
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, a);
  __m512 sum = sums[0];
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) sum = _mm512_add_ps(sum, sums[i]);
  g_sink = _mm512_cvtss_f32(sum);
  return 2.0 * 32 * kChains * kRounds;
}

__attribute__((target("avx2,fma"))) double FmaAvx2() {
  constexpr int kChains = 12;
  __m256 x[kChains];
  const __m256 a = _mm256_set1_ps(kFactor), b = _mm256_set1_ps(kSummand);
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) x[i] = _mm256_set1_ps(Start(i));
  for (int round = 0; round < kRounds; ++round)
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) x[i] = _mm256_fmadd_ps(x[i], a, b);
  __m256 sum = x[0];
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) sum = _mm256_add_ps(sum, x[i]);
  g_sink = _mm256_cvtss_f32(sum);
  return 2.0 * 8 * kChains * kRounds;
}

double MultiplyAddSse2() {
  constexpr int kChains = 12;
  __m128 x[kChains];
  const __m128 a = _mm_set1_ps(kFactor), b = _mm_set1_ps(kSummand);
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) x[i] = _mm_set1_ps(Start(i));
  for (int round = 0; round < kRounds; ++round)
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) x[i] = _mm_add_ps(_mm_mul_ps(x[i], a), b);
  __m128 sum = x[0];
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) sum = _mm_add_ps(sum, x[i]);
  g_sink = _mm_cvtss_f32(sum);
  return 2.0 * 4 * kChains * kRounds;
}

// LDTILECFG's 64 bytes: eight tiles of 16 rows of 64 bytes.
struct alignas(64) AmxTileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Four sums from two tiles on either side, as a blocked product has them. A tile product is
// 16 x 16 sums of 32 products each.
__attribute__((target("amx-tile,amx-bf16"))) double KernelMatmuls() {
  static constexpr AmxTileShapes kShapes;  // in memory: the intrinsic names but its first word
  _tile_loadconfig(&kShapes);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  constexpr int kTileRounds = kRounds / 8;
  for (int round = 0; round < kTileRounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 4.0 * 2 * 16 * 16 * 32 * kTileRounds;
}

// What ADA_ISA, from the narrowest on, leaves of the instruction sets.
bool Permitted(std::string_view set) {
  static constexpr std::string_view kSets[] = {"sse2", "avx2", "avx512", "avx512bf16", "amx"};
  const char* most = std::getenv("ADA_ISA");
  if (most == nullptr || *most == '\0') return true;
  const auto place = [](std::string_view name) {
    return std::find(std::begin(kSets), std::end(kSets), name) - std::begin(kSets);
  };
  return place(set) <= place(most);
}

bool HasAmx() {
  // The kernel lends the tile registers only to who asks: ARCH_REQ_XCOMP_PERM, XTILEDATA.
  unsigned a = 7, b, c = 0, d;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  const bool known = (d >> 22 & 1) != 0 && (d >> 24 & 1) != 0;  // AMX-BF16, AMX-TILE
  return known && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

double Rate(int threads, double (*work)()) {
  double flop = 0;
  const double seconds = BestSeconds(threads, kTimes, [&](int thread) {
    const double done = work();
    if (thread == 0) flop = done;
  });
  return flop * threads / seconds * 1e-9;
}

}  // namespace

double MeasureFma(int threads) {
  if (Permitted("avx512") && __builtin_cpu_supports("avx512f")) return Rate(threads, FmaAvx512);
  if (Permitted("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return Rate(threads, FmaAvx2);
  return Rate(threads, MultiplyAddSse2);
}

double MeasurePairs(int threads) {
  const bool has = Permitted("avx512bf16") && __builtin_cpu_supports("avx512bf16");
  return has ? Rate(threads, PairsAvx512) : 0;
}

double MeasureAmx(int threads) {
  return Permitted("amx") && HasAmx() ? Rate(threads, KernelMatmuls) : 0;
}

}  // namespace ada::bench

// bench_peak [THREADS]: the machine's peaks as a line of JSON; about a second. Every thread does
// the same work at the same time, several times over; a rate is that of the best time, in which all
// had ended. GFLOP/s: "fma", fp32 multiply-adds in the widest registers; "pairs", AVX-512's bf16
// products, and "tiles", AMX's, where the processor has them and ADA_ISA does not forbid them to
// ada-train. GB/s from arrays of 16 MiB: "copy", bytes read and bytes written together.
#include <immintrin.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/cpu_backend.h"

namespace {

constexpr int kTimes = 10;
constexpr int kRounds = 1 << 20;  // of a function below: some milliseconds
volatile float g_sink;            // results are used

// Calls `work` at once in so many threads, kTimes times with a pause for all of them between; the
// shortest time, in seconds, from the first start to the last end.
double BestSeconds(int threads, const std::function<void(int thread)>& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> starts(threads), ends(threads);
  double best = 1e30;
  std::barrier begin(threads);
  std::barrier end(threads, [&]() noexcept {
    const auto first = *std::min_element(starts.begin(), starts.end());
    const auto last = *std::max_element(ends.begin(), ends.end());
    best = std::min(best, std::chrono::duration<double>(last - first).count());
  });
  const auto run = [&](int thread) {
    for (int i = 0; i < kTimes; ++i) {
      begin.arrive_and_wait();
      starts[thread] = Clock::now();
      work(thread);
      ends[thread] = Clock::now();
      end.arrive_and_wait();
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& other : others) other.join();
  return best;
}

typedef float Float4 __attribute__((vector_size(16)));
typedef float Float8 __attribute__((vector_size(32)));
typedef float Float16 __attribute__((vector_size(64)));
// As wide as a cache line; the compiler makes the registers of any processor of it.
typedef long long Line __attribute__((vector_size(64)));

// Chains of x = x * a + b, which tends to 1 (no overflow, nothing subnormal), as many as hide the
// latency of one. They begin with different values, or the compiler would compute one for all. This
// file is built with contraction: each is one instruction where there is one.
template <class Vector, int kChains>
[[gnu::always_inline]] inline double Chains() {
  constexpr int kLanes = sizeof(Vector) / sizeof(float);
  Vector x[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) x[i] = Vector{} + (0.75f + 0.001f * static_cast<float>(i));
  for (int round = 0; round < kRounds; ++round)
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) x[i] = x[i] * 0.75f + 0.25f;
  Vector sum{};
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sum += x[i];
  g_sink = sum[0];
  return 2.0 * kLanes * kChains * kRounds;
}
[[gnu::target("avx512f")]] double FmaAvx512() { return Chains<Float16, 16>(); }
[[gnu::target("avx2,fma")]] double FmaAvx2() { return Chains<Float8, 12>(); }
double MultiplyAddSse2() { return Chains<Float4, 12>(); }

[[gnu::target("avx512f,avx512bf16")]] double PairsAvx512() {
  constexpr int kChains = 16;
  __m512 sums[kChains];
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.75f), _mm512_set1_ps(0.25f));
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i)
    sums[i] = _mm512_set1_ps(0.75f + 0.001f * static_cast<float>(i));
  for (int round = 0; round < kRounds; ++round)
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, a);
  __m512 sum = sums[0];
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) sum = _mm512_add_ps(sum, sums[i]);
  g_sink = _mm512_cvtss_f32(sum);
  return 2.0 * 32 * kChains * kRounds;
}

// LDTILECFG's 64 bytes: eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Four sums from two tiles on either side, as a blocked product has them. A tile product is
// 16 x 16 sums of 32 products each.
[[gnu::target("amx-tile,amx-bf16")]] double TilesAmx() {
  static constexpr TileShapes kShapes;  // in memory: the intrinsic names but its first word
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

double Rate(int threads, double (*work)()) {
  double flop = 0;
  const double seconds = BestSeconds(threads, [&](int thread) {
    const double done = work();
    if (thread == 0) flop = done;
  });
  return flop * threads / seconds * 1e-9;
}

constexpr std::size_t kLines = (std::size_t{16} << 20) / sizeof(Line);  // a large tensor of a step

// Plain stores, as a program's passes over its tensors make them.
void Copy(const std::vector<Line>& from, std::vector<Line>& to) {
  for (std::size_t i = 0; i < kLines; ++i) {
    to[i] = from[i];
    __asm__ volatile("" ::: "memory");  // no call of memcpy, which would bypass the caches
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = std::max(1, argc > 1 ? std::atoi(argv[1]) : cores);
  // Sets that this process may use, as "avx512bf16"; of AMX the kernel was asked.
  const std::string isa = ada::backend::cpu::MakeCpuBackend(1)->InstructionSet();
  const bool amx = isa.starts_with("amx"), pairs = amx || isa.starts_with("avx512bf16");
  const double fma = Rate(threads, amx || isa.starts_with("avx512") ? FmaAvx512
                                   : isa.starts_with("avx2")        ? FmaAvx2
                                                                    : MultiplyAddSse2);
  std::vector<std::vector<Line>> from(threads, std::vector<Line>(kLines)), to = from;
  const double giga = static_cast<double>(kLines * sizeof(Line)) * threads * 1e-9;
  const double copy =
      2 * giga / BestSeconds(threads, [&](int thread) { Copy(from[thread], to[thread]); });
  std::printf("{\"fma\": %.1f, \"copy\": %.1f", fma, copy);
  if (pairs) std::printf(", \"pairs\": %.1f", Rate(threads, PairsAvx512));
  if (amx) std::printf(", \"tiles\": %.1f", Rate(threads, TilesAmx));
  std::printf("}\n");
}

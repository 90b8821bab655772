// Memory rates: each thread reads an array of its own, then copies it. See peak.h.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "peak.h"

namespace ada::bench {
namespace {

constexpr std::size_t kBytes = std::size_t{16} << 20;  // about a large tensor of a training step
constexpr int kTimes = 10;

// As wide as a cache line; the compiler makes the registers of any processor of it.
typedef long long Line __attribute__((vector_size(64)));
constexpr std::size_t kLines = kBytes / sizeof(Line);

struct Free {
  void operator()(Line* p) const { std::free(p); }
};
using Array = std::unique_ptr<Line[], Free>;

// Written once, so that the pages exist.
Array MakeArray() {
  void* p = std::aligned_alloc(4096, kBytes);
  if (p == nullptr) throw std::bad_alloc();
  std::memset(p, 1, kBytes);
  return Array(static_cast<Line*>(p));
}

volatile long long g_sink;

void Read(const Line* from) {
  Line sum[4] = {};
  for (std::size_t i = 0; i < kLines; i += 4)
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) sum[k] += from[i + k];
  const Line all = sum[0] + sum[1] + sum[2] + sum[3];
  g_sink = all[0] + all[1] + all[2] + all[3] + all[4] + all[5] + all[6] + all[7];
}

// Plain stores, as a program's passes over its tensors make them.
void Copy(const Line* from, Line* to) {
  for (std::size_t i = 0; i < kLines; ++i) {
    to[i] = from[i];
    __asm__ volatile("" ::: "memory");  // no call of memcpy, which would bypass the caches
  }
}

}  // namespace

MemoryRates MeasureMemory(int threads) {
  std::vector<Array> from, to;
  for (int i = 0; i < threads; ++i) {
    from.push_back(MakeArray());
    to.push_back(MakeArray());
  }
  const double read = BestSeconds(threads, kTimes, [&](int thread) { Read(from[thread].get()); });
  const double copy =
      BestSeconds(threads, kTimes, [&](int thread) { Copy(from[thread].get(), to[thread].get()); });
  const double giga = static_cast<double>(kBytes) * threads * 1e-9;
  return {giga / read, 2 * giga / copy};
}

}  // namespace ada::bench

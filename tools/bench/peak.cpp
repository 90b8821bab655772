// bench_peak [THREADS]: the machine's peaks as a line of JSON; about a second. See peak.h.
#include "peak.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace ada::bench {

double BestSeconds(int threads, int times, const std::function<void(int thread)>& work) {
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
    for (int i = 0; i < times; ++i) {
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

}  // namespace ada::bench

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = std::max(1, argc > 1 ? std::atoi(argv[1]) : cores);
  const auto number_or_null = [](double rate) {
    char text[32] = "null";
    if (rate > 0) std::snprintf(text, sizeof text, "%.1f", rate);
    return std::string(text);
  };
  const double fma = ada::bench::MeasureFma(threads);
  const double pairs = ada::bench::MeasurePairs(threads);
  const double tiles = ada::bench::MeasureAmx(threads);
  const ada::bench::MemoryRates memory = ada::bench::MeasureMemory(threads);
  std::printf("{\"fma\": %.1f, \"pairs\": %s, \"tiles\": %s, \"read\": %.1f, \"copy\": %.1f}\n",
              fma, number_or_null(pairs).c_str(), number_or_null(tiles).c_str(), memory.read,
              memory.copy);
}

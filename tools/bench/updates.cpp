// bench_updates SHAPES THREADS UPDATES [KEY=VALUE...]: the time of an update of parameters of these
// shapes (768x768,768), as JSON: medians of wall and of processor time, in milliseconds. KEY=VALUE:
// as ada-train's --set, of optimizer and precision. `counted=1`: as on a logged step.
#include <time.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "config/load.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "run/assemble/assemble.h"
#include "step/specs.h"

namespace ada::bench {
namespace {

std::vector<std::int64_t> DimsOf(std::string_view text) {
  std::vector<std::int64_t> dims;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const auto [next, error] = std::from_chars(at, end, dims.emplace_back());
    if (error != std::errc() || dims.back() < 1) throw std::runtime_error("not a shape");
    at = next + 1;
  }
  return dims;
}

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// Fills a tensor with normal numbers times `deviation`.
Tensor Normal(backend::Backend& backend, std::int64_t numel, float deviation) {
  static std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<std::size_t>(numel));
  for (float& value : values) value = normal(generator);
  Tensor tensor;
  tensor.shape = {numel, 1, 1, 1};
  tensor.data = backend.Allocate(tensor.bytes());
  backend.Upload(tensor.data, values.data(), tensor.bytes());
  return tensor;
}

double ProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Measure(int count, char** words) {
  config::Overrides overrides;
  bool counted = false;
  for (int i = 4; i < count; ++i) {
    const std::string word = words[i];
    const std::size_t sign = std::min(word.find('='), word.size() - 1);
    if (word == "counted=1")
      counted = true;
    else
      overrides.emplace_back(word.substr(0, sign), word.substr(sign + 1));
  }
  const config::LoadedUpdate update = config::LoadUpdate("", overrides);
  const auto backend = backend::cpu::MakeCpuBackend(std::atoi(words[2]));
  std::vector<optim::OptimizedParameter> parameters;
  for (const std::string_view shape : Split(words[1])) {
    graph::Parameter parameter;
    parameter.name = "p" + std::to_string(parameters.size());
    parameter.dims = DimsOf(shape);
    std::int64_t numel = 1;
    for (const std::int64_t dim : parameter.dims) numel *= dim;
    parameter.value = Normal(*backend, numel, 0.02f);
    parameter.gradient = Normal(*backend, numel, 0.001f);
    parameters.push_back(step::OptimizedFrom(update.optimizer, parameter));
  }
  optim::Optimizer optimizer(*backend, step::UpdateRuleOf(update.optimizer, update.precision),
                             parameters, 0);
  optimizer.RoundMasters();
  std::vector<double> wall, processor;
  backend::UpdatePlan plan;
  plan.step.lr = update.optimizer.lr, plan.count = counted;
  for (int i = -2; i < std::atoi(words[3]); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const double used = ProcessorSeconds();
    optimizer.Update(plan);
    optimizer.Outcome();
    if (i < 0) continue;
    processor.push_back(ProcessorSeconds() - used);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    wall.push_back(took.count());
  }
  std::printf("{\"wall\": %.4f, \"processor\": %.4f}\n", 1e3 * MedianOf(wall),
              1e3 * MedianOf(processor));
}

}  // namespace
}  // namespace ada::bench

int main(int count, char** words) {
  if (count < 4) {
    std::fprintf(stderr, "bench_updates: expected SHAPES THREADS UPDATES [KEY=VALUE...]\n");
    return 2;
  }
  try {
    ada::bench::Measure(count, words);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_updates: %s\n", error.what());
    return 1;
  }
}

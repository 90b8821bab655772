// bench_updates SHAPES THREADS UPDATES [KEY=VALUE...]: the time of an update of parameters of these
// shapes (768x768,768), as JSON: medians of wall and of processor time, in milliseconds. KEY=VALUE:
// as ada-train's --set, of optimizer and precision.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <random>
#include <sstream>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "step/specs.h"
#include "words.h"

namespace ada::bench {
namespace {

// Those that stand between separators.
std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// A tensor of normal numbers times `deviation`.
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

double Milliseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Measure(const std::string& shapes, int threads, int updates,
             const config::Overrides& overrides) {
  const config::LoadedUpdate update = config::LoadUpdate("", overrides);
  const auto backend = backend::cpu::MakeCpuBackend(threads);
  std::vector<optim::OptimizedParameter> parameters;
  for (const std::string& shape : Split(shapes, ',')) {
    graph::Parameter parameter;
    parameter.name = "p" + std::to_string(parameters.size());
    std::int64_t numel = 1;
    for (const std::string& dim : Split(shape, 'x'))
      numel *= parameter.dims.emplace_back(std::stoll(dim));
    parameter.value = Normal(*backend, numel, 0.02f);
    parameter.gradient = Normal(*backend, numel, 0.001f);
    parameters.push_back(step::OptimizedFrom(update.optimizer, parameter));
  }
  optim::Optimizer optimizer(*backend, step::UpdateRuleOf(update.optimizer, update.precision),
                             parameters, 0);
  optimizer.RoundMasters();
  std::vector<double> wall, processor;
  backend::UpdatePlan plan;
  plan.step.lr = update.optimizer.lr;
  for (int i = -2; i < updates; ++i) {
    const double begin = Milliseconds(CLOCK_MONOTONIC);
    const double used = Milliseconds(CLOCK_PROCESS_CPUTIME_ID);
    optimizer.Update(plan);
    optimizer.Outcome();
    if (i < 0) continue;
    processor.push_back(Milliseconds(CLOCK_PROCESS_CPUTIME_ID) - used);
    wall.push_back(Milliseconds(CLOCK_MONOTONIC) - begin);
  }
  std::printf("{\"wall\": %.4f, \"processor\": %.4f}\n", MedianOf(wall), MedianOf(processor));
}

}  // namespace
}  // namespace ada::bench

int main(int count, char** words) {
  const char usage[] = "bench_updates SHAPES THREADS UPDATES [KEY=VALUE...]";
  return ada::bench::Finish(count >= 4, usage, [&] {
    ada::bench::Measure(words[1], std::atoi(words[2]), std::atoi(words[3]),
                        ada::bench::OverridesFrom(4, count, words));
  });
}

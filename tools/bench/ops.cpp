// bench_ops CONFIG IMAGE BATCH THREADS ROUNDS [KEY=VALUE...]: time of each part of every distinct
// convolution, linear layer and attention of a configuration's network over images of IMAGE
// (32x32x3), as CSV; the program of tools/bench/op_rows.py. KEY=VALUE: as ada-train's --set.
#include "ops.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

#include "config/load.h"
#include "graph/network/shapes.h"
#include "layers.h"

namespace ada::bench {

void FillNormal(float* values, std::size_t count, float deviation) {
  const std::size_t period = std::min<std::size_t>(count, 65521);  // no power of two
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < period; ++i) values[i] = deviation * normal(generator);
  for (std::size_t i = period; i < count; ++i) values[i] = values[i - period];
}

namespace {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The fastest call of at least three and 30 ms, after one that warms up: what else runs on the
// machine only ever adds to a call.
double SecondsOf(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  work();
  double fastest = 1e30, all = 0;
  for (int calls = 0; calls < 3 || all < 0.03; ++calls) {
    const auto start = Clock::now();
    work();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    fastest = std::min(fastest, seconds);
    all += seconds;
  }
  return fastest;
}

// One round of one program: part -> seconds, appended.
void Measure(const Program& program, std::map<std::string, std::vector<double>>& parts) {
  parts["1 forward"].push_back(SecondsOf(program.forward));
  const double weights = program.weight_gradient ? SecondsOf(program.weight_gradient) : 0;
  if (program.data_gradient)
    parts["2 data gradient"].push_back(SecondsOf(program.data_gradient));
  else if (program.both_gradients)
    parts["2 data gradient"].push_back(std::max(1e-9, SecondsOf(program.both_gradients) - weights));
  if (program.weight_gradient) parts["3 weight gradient"].push_back(weights);
}

// Programs live one at a time: idle threads of one would take cores from the other.
void MeasureLayer(const Counted& counted, int threads, int rounds) {
  const Layer& layer = counted.layer;
  const auto ours = layer.attention() ? MakeOurAttention : MakeOurs;
  const auto onednn = layer.attention() ? MakeOnednnAttention : MakeOnednn;
  const std::vector<std::function<Program()>> makers = {
      [&] { return ours(layer, "fp16", kFp16, threads); },
      [&] { return ours(layer, "bf16", kBf16, threads); },
      [&] { return ours(layer, "fp32", kFp32, threads); }, [&] { return onednn(layer, threads); }};
  struct Result {
    std::string name;
    int size = 4;
    std::map<std::string, std::vector<double>> parts;
  };
  std::vector<Result> results(makers.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < makers.size(); ++i) {
      const std::size_t which = (i + static_cast<std::size_t>(round)) % makers.size();
      const Program program = makers[which]();
      results[which].name = program.name;
      results[which].size = program.size;
      Measure(program, results[which].parts);
    }
  for (const Result& result : results)
    for (const auto& [part, seconds] : result.parts) {
      const bool forward = part == "1 forward";
      std::printf("%s,%d,%s,%s,%.9f,%.0f,%.0f\n", layer.Text().c_str(), counted.layers,
                  part.c_str() + 2, result.name.c_str(), Median(seconds), layer.Flop(forward),
                  layer.Bytes(result.size, forward));
    }
  std::fflush(stdout);
}

void Run(int argc, char** argv) {
  config::Overrides overrides;
  for (int i = 6; i < argc; ++i) {
    const std::string word = argv[i];
    overrides.emplace_back(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
  }
  const config::Config config = config::Load(argv[1], overrides).config;
  const graph::Network network = graph::Resolve(config.model, ParseImage(argv[2]), config.task);
  const int threads = std::max(1, std::atoi(argv[4])), rounds = std::max(1, std::atoi(argv[5]));
  std::puts("layer,layers,part,program,seconds,flop,bytes");
  for (const Counted& layer : DistinctLayers(network, std::max(1, std::atoi(argv[3]))))
    MeasureLayer(layer, threads, rounds);
}

}  // namespace
}  // namespace ada::bench

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fputs("usage: bench_ops CONFIG IMAGE BATCH THREADS ROUNDS [KEY=VALUE...]\n", stderr);
    return 2;
  }
  try {
    ada::bench::Run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_ops: %s\n", e.what());
    return 1;
  }
}

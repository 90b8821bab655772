// bench_ops CONFIG IMAGE BATCH THREADS ROUNDS [KEY=VALUE...]: time of each part of every distinct
// convolution, linear layer and attention of a configuration's network over images of IMAGE
// (32x32x3), by Google Benchmark, as its JSON; the program of tools/bench/op_rows.py. KEY=VALUE: as
// ada-train's --set.
#include "ops.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>

#include "config/load.h"
#include "graph/network/shapes.h"

namespace ada::bench {

void FillNormal(float* values, std::size_t count, float deviation) {
  const std::size_t period = std::min<std::size_t>(count, 65521);  // no power of two
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < period; ++i) values[i] = deviation * normal(generator);
  for (std::size_t i = period; i < count; ++i) values[i] = values[i - period];
}

namespace {

// A part of a layer in one program. Programs live one at a time: idle threads of one would take
// cores from the other. The label is "layer|layers|part|program".
void Register(const Counted& counted, const char* part, std::function<void()> Program::*work,
              const char* name, int size, int rounds, const std::function<Program()>& make) {
  const Layer& layer = counted.layer;
  const std::string label =
      layer.Text() + '|' + std::to_string(counted.layers) + '|' + part + '|' + name;
  const bool forward = work == &Program::forward;
  const double flop = layer.Flop(forward), bytes = layer.Bytes(size, forward);
  benchmark::RegisterBenchmark(label.c_str(),
                               [=](benchmark::State& state) {
                                 const Program program = make();
                                 (program.*work)();  // warms up
                                 for (auto _ : state) (program.*work)();
                                 state.SetLabel(label);
                                 state.counters["flop"] = flop, state.counters["bytes"] = bytes;
                               })
      ->UseRealTime()
      ->MinTime(0.03)
      ->Repetitions(rounds);
}

void RegisterLayer(const Counted& counted, int threads, int rounds) {
  const Layer layer = counted.layer;
  struct Way {
    const char* name;
    std::function<Program()> make;
    int size;
    bool apart;  // the data gradient is to be had by itself
  };
  std::vector<Way> ways;
  for (const auto& [name, format] : {std::pair("fp16", kFp16), {"bf16", kBf16}, {"fp32", kFp32}})
    ways.push_back({name, [=] { return MakeOurs(layer, format, threads); },
                    static_cast<int>(BytesOf(StorageFor(format))), layer.attention()});
  ways.push_back({"onednn", [=] { return MakeOnednn(layer, threads); }, 4, true});
  for (const Way& way : ways) {
    const auto add = [&](const char* part, std::function<void()> Program::*work) {
      Register(counted, part, work, way.name, way.size, rounds, way.make);
    };
    add("forward", &Program::forward);
    if (!layer.attention()) add("weight gradient", &Program::weight_gradient);
    if (!layer.attention() && !layer.data_gradient) continue;
    if (way.apart)
      add("data gradient", &Program::data_gradient);
    else
      add("both gradients", &Program::both_gradients);
  }
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
  for (const Counted& layer : DistinctLayers(network, std::max(1, std::atoi(argv[3]))))
    RegisterLayer(layer, threads, rounds);
  // In turns, so that a machine whose speed drifts treats all alike.
  std::string flags[] = {argv[0], "--benchmark_format=json",
                         "--benchmark_enable_random_interleaving=true"};
  char* words[] = {flags[0].data(), flags[1].data(), flags[2].data()};
  int count = 3;
  benchmark::Initialize(&count, words);
  benchmark::RunSpecifiedBenchmarks();
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

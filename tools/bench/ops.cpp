// bench_ops CONFIG BATCH THREADS ROUNDS [KEY=VALUE...]: time of each part of every distinct
// convolution, linear layer and attention of a configuration's network, by Google Benchmark, as its
// JSON; the program of tools/bench/op_rows.py. KEY=VALUE: as ada-train's --set.
#include "ops.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "graph/network/shapes.h"
#include "words.h"

namespace ada::bench {

void FillNormal(float* values, std::size_t count, float deviation) {
  const std::size_t period = std::min<std::size_t>(count, 65521);  // no power of two
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < period; ++i) values[i] = deviation * normal(generator);
  for (std::size_t i = period; i < count; ++i) values[i] = values[i - period];
}

std::string Layer::Text() const {
  const auto pair = [](std::int64_t a, std::int64_t b) {
    return std::to_string(a) + "x" + std::to_string(b);
  };
  if (attention())
    return "attention " + pair(heads, x.c / heads) + ' ' + std::to_string(keys) +
           (causal ? " tokens causal" : " tokens");
  return (linear ? "linear " : "conv " + pair(w.h, w.w) + " ") + ToString(x) + " > " + ToString(y);
}
double Layer::Flop(Part part) const {
  const auto results = static_cast<double>(y.numel());
  if (!attention()) return 2.0 * results * static_cast<double>(w.numel() / w.n);
  return (part == Part::kForward ? 4.0 : 8.0) * results * static_cast<double>(keys);
}
double Layer::Bytes(Part part, int size) const {
  const auto values = static_cast<double>(x.numel() + y.numel());
  if (!attention()) return values * size + static_cast<double>(w.numel()) * 4;
  const auto others = static_cast<double>(2 * x.n * keys * kv_heads * (x.c / heads));
  // Backwards everything is read again, and each of the three inputs has a gradient.
  return (part == Part::kForward ? 1 : 2) * (values + others) * size;
}

namespace {

// The node as a layer over `batch` images; nothing: it is no product that is timed.
std::optional<Layer> LayerOf(const graph::Network& network, std::size_t i, int batch) {
  const graph::Node& node = network.nodes[i];
  const config::LayerConfig& config = node.config;
  Layer layer;
  layer.x = node.input, layer.y = node.output;
  layer.x.n = layer.y.n = batch;
  layer.data_gradient = network.NeedsGradient()[node.inputs[0]];
  if (config.kind == "attention") {
    layer.heads = config.heads, layer.kv_heads = config.kv_heads, layer.causal = config.causal;
    layer.x.c = layer.y.c;  // of queries, where keys and values stand in the same tensor
    const Shape& keys = network.shape(node.inputs[node.inputs.size() == 1 ? 0 : 1]);
    layer.keys = keys.h * keys.w;
    return layer;
  }
  layer.linear = config.kind == "linear";
  if (!layer.linear && config.kind != "conv2d") return std::nullopt;
  const int owner = node.weight_owner(static_cast<int>(i));
  layer.w = network.nodes[owner].parameters[0].shape;
  layer.bias = config.bias;
  if (layer.linear) return layer;
  layer.stride = config.stride, layer.padding = config.padding;
  layer.dilation = config.dilation, layer.groups = config.groups;
  return layer;
}

// The distinct layers in the order in which they come first, and how many are like each.
std::vector<std::pair<Layer, int>> DistinctLayers(const graph::Network& network, int batch) {
  std::vector<std::pair<Layer, int>> found;
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    const std::optional<Layer> layer = LayerOf(network, i, batch);
    if (!layer) continue;
    const auto like = std::find_if(found.begin(), found.end(),
                                   [&](const auto& other) { return other.first == *layer; });
    if (like == found.end())
      found.emplace_back(*layer, 1);
    else
      ++like->second;
  }
  return found;
}

// What is timed lives no longer than its measurement: idle threads of one program would take cores
// from the other. The label is "layer|layers|part|program".
void Register(const Layer& layer, int layers, int threads, int rounds) {
  const auto add = [&](Part part, const char* name, const char* program, int size, auto make) {
    const std::string label =
        layer.Text() + '|' + std::to_string(layers) + '|' + name + '|' + program;
    benchmark::RegisterBenchmark(label.c_str(),
                                 [=](benchmark::State& state) {
                                   const Work work = make(layer, part);
                                   work();  // warms up
                                   for (auto _ : state) work();
                                   state.SetLabel(label);
                                   state.counters["flop"] = layer.Flop(part);
                                   state.counters["bytes"] = layer.Bytes(part, size);
                                 })
        ->UseRealTime()
        ->MinTime(0.03)
        ->Repetitions(rounds);
  };
  const auto add_parts = [&](const char* program, int size, bool apart, auto make) {
    add(Part::kForward, "forward", program, size, make);
    if (!layer.attention()) add(Part::kWeightGradient, "weight gradient", program, size, make);
    if (!layer.attention() && !layer.data_gradient) return;
    if (apart || layer.attention())
      add(Part::kDataGradient, "data gradient", program, size, make);
    else
      add(Part::kBothGradients, "both gradients", program, size, make);
  };
  for (const auto& [name, format] : {std::pair("fp16", kFp16), {"bf16", kBf16}, {"fp32", kFp32}})
    add_parts(name, static_cast<int>(BytesOf(StorageFor(format))), false,
              [format = format, threads](const Layer& of, Part part) {
                return MakeOurs(of, part, format, threads);
              });
  add_parts("onednn", 4, true,
            [threads](const Layer& of, Part part) { return MakeOnednn(of, part, threads); });
}

void Run(int count, char** words) {
  Shape image;
  const config::Config config = LoadCompleted(words[1], OverridesFrom(5, count, words), image);
  const graph::Network network = graph::Resolve(config.model, image, config.task);
  const auto number = [&](int word) { return std::max(1, std::atoi(words[word])); };
  for (const auto& [layer, layers] : DistinctLayers(network, number(2)))
    Register(layer, layers, number(3), number(4));
  // In turns, so that a machine whose speed drifts treats all alike.
  std::string flags[] = {words[0], "--benchmark_format=json",
                         "--benchmark_enable_random_interleaving=true"};
  char* pointers[] = {flags[0].data(), flags[1].data(), flags[2].data()};
  int flag_count = 3;
  benchmark::Initialize(&flag_count, pointers);
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace
}  // namespace ada::bench

int main(int count, char** words) {
  return ada::bench::Finish(count >= 5, "bench_ops CONFIG BATCH THREADS ROUNDS [KEY=VALUE...]",
                            [&] { ada::bench::Run(count, words); });
}

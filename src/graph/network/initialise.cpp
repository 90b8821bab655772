// Start values of parameters.
#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string_view>

#include "core/error.h"
#include "core/random.h"
#include "core/run_in_parallel.h"
#include "graph/graph.h"
#include "graph/network/weights_file.h"

namespace ada::graph {
namespace {

using config::InitScheme;

constexpr std::size_t kDrawnTogether = 1 << 16;  // about 3 ms of work

bool EndsWith(std::string_view text, std::string_view tail) {
  return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
}

// Variance of a weight's distribution.
double Variance(const std::vector<std::int64_t>& dims, InitScheme scheme) {
  double window = 1;
  for (std::size_t i = 2; i < dims.size(); ++i) window *= static_cast<double>(dims[i]);
  const double fan_in = static_cast<double>(dims[1]) * window;
  const double fan_out = static_cast<double>(dims[0]) * window;
  const bool he = scheme == InitScheme::kHeNormal || scheme == InitScheme::kHeUniform;
  return 2 / (he ? fan_in : fan_in + fan_out);
}

// Numbers of one part of a tensor; what stands before it has drawn its words, four a normal number.
void DrawWeights(RandomStream random, double variance, bool normal, std::size_t first,
                 std::span<float> values) {
  const double deviation = std::sqrt(variance), bound = std::sqrt(3 * variance);
  random.Seek(first * (normal ? 4 : 1));
  for (float& value : values) {
    value = static_cast<float>(normal ? deviation * random.Normal()
                                      : bound * (2.0 * random.Uniform() - 1));
  }
}

// Large tensors are drawn in parts, in parallel: a number depends on its position alone.
std::vector<float> RandomWeights(const Parameter& parameter, InitScheme scheme,
                                 std::uint64_t seed) {
  const RandomStream random(seed, StreamId(parameter.name));
  const double variance = Variance(parameter.dims, scheme);
  const bool normal = scheme == InitScheme::kHeNormal || scheme == InitScheme::kXavierNormal;
  std::vector<float> values(static_cast<std::size_t>(parameter.numel()));
  std::vector<std::function<void()>> parts;
  for (std::size_t first = 0; first < values.size(); first += kDrawnTogether) {
    const std::size_t count = std::min(kDrawnTogether, values.size() - first);
    const std::span<float> part(values.data() + first, count);
    parts.emplace_back([=] { DrawWeights(random, variance, normal, first, part); });
  }
  RunInParallel(parts);
  return values;
}

void Upload(const Parameter& parameter, const std::vector<float>& values,
            backend::Backend& backend) {
  ADA_CHECK(values.size() * sizeof(float) == parameter.value.bytes());
  backend.Upload(parameter.value.data, values.data(), parameter.value.bytes());
}

}  // namespace

std::vector<float> StartValues(const Parameter& parameter, InitScheme scheme, std::uint64_t seed) {
  if (parameter.dims.size() >= 2) return RandomWeights(parameter, scheme, seed);
  const bool one = EndsWith(parameter.name, ".weight") || EndsWith(parameter.name, ".running_var");
  const auto start = static_cast<float>(parameter.start.value_or(one ? 1 : 0));
  return std::vector<float>(static_cast<std::size_t>(parameter.numel()), start);
}

WeightsCover Initialize(Graph& graph, const config::InitConfig& init, std::uint64_t seed,
                        backend::Backend& backend) {
  for (const Parameter& parameter : graph.parameters()) {
    Upload(parameter, StartValues(parameter, init.scheme, seed), backend);
  }
  if (init.weights.empty()) return {};
  const SafetensorsFile file = OpenWeights(init);
  WeightsCover cover = CoverOf(file, init, graph.parameters());
  for (const Parameter& parameter : graph.parameters()) {
    const bool taken = file.Find(parameter.name) && !IsSkipped(init, parameter.name);
    if (taken) Upload(parameter, file.ReadF32(parameter.name), backend);
  }
  return cover;
}

}  // namespace ada::graph

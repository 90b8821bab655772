// Takes memory for the parameters that the nodes of a network list, and fills them with start
// values.
#include "graph/network/parameters.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "error.h"
#include "graph/network/shapes.h"
#include "io/run_in_parallel.h"
#include "io/text.h"
#include "number/random.h"

namespace ada::graph {
namespace {

// Parameters of one network, layer by layer: MakeParameters calls AddLayer in layer order, which
// fixes the indices of Graph::parameters.
class ParameterMaker {
 public:
  ParameterMaker(bool training, backend::Backend& backend, const std::vector<Parameter>* share)
      : training_(training), backend_(backend), share_(share) {}

  // If a graph shares its parameters, they are looked up in the same order; a different name or
  // shape would be a bug, because both graphs come from one model.
  void Add(const config::LayerConfig& layer, const layers::ParameterSpec& spec) {
    Parameter parameter{NameOf(layer, spec), spec.dims, {}, {}, spec.start, layer.start_factor};
    parameter.value.shape = spec.shape;
    parameter.layer = layer.name;
    parameter.part = spec.name.empty() ? "weight" : spec.name;
    if (share_) {
      const std::vector<Parameter>& others = *share_;
      const std::size_t index = result_.all.size();
      ADA_CHECK(index < others.size() && others[index].name == parameter.name &&
                others[index].dims == parameter.dims);
      parameter.value = others[index].value;
    } else {
      parameter.value.data = backend_.Allocate(parameter.value.bytes());
    }
    if (spec.trained && training_) {
      parameter.gradient = parameter.value;
      parameter.gradient.data = backend_.Allocate(parameter.gradient.bytes());
    }
    result_.all.push_back(std::move(parameter));
  }

  void AddLayer(const Node& node) {
    std::vector<int>& mine = result_.of.emplace_back();
    // The owner comes earlier, so its index is known. A tied weight is named "weight" whatever its
    // owner's kind is.
    if (node.tied_to >= 0) {
      mine.push_back(result_.of[node.tied_to].front());
      Parameter& tied = result_.all[mine.front()];
      tied.other_names.push_back(NameOf(node.config, {"weight", {}, {}}));
      tied.tied_layers.push_back(node.config.name);
    }
    for (const layers::ParameterSpec& spec : node.parameters) {
      mine.push_back(static_cast<int>(result_.all.size()));
      Add(node.config, spec);
    }
  }

  NetworkParameters Take() { return std::move(result_); }

 private:
  // An empty name of the spec says that the parameter is called as the layer is (class_token).
  static std::string NameOf(const config::LayerConfig& layer, const layers::ParameterSpec& spec) {
    if (spec.name.empty()) return layer.name;
    return (layer.parameter_prefix.empty() ? layer.name + "." : layer.parameter_prefix) + spec.name;
  }

  const bool training_;
  backend::Backend& backend_;
  const std::vector<Parameter>* share_;
  NetworkParameters result_;
};

}  // namespace

std::int64_t Parameter::numel() const { return value.shape.numel(); }

NetworkParameters MakeParameters(const Network& network, bool training, backend::Backend& backend,
                                 const std::vector<Parameter>* share) {
  ParameterMaker maker(training, backend, share);
  for (const Node& node : network.nodes) maker.AddLayer(node);
  return maker.Take();
}

namespace {

using config::InitConfig;
using config::InitRule;
using config::InitScheme;

// Also the unit of work of the threads.
constexpr std::size_t kDrawnAtOnce = 1 << 16;  // about 3 ms of work

bool EndsWith(std::string_view text, std::string_view tail) {
  return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
}

bool IsNormal(InitScheme scheme) {
  return scheme == InitScheme::kHeNormal || scheme == InitScheme::kXavierNormal ||
         scheme == InitScheme::kLecunNormal || scheme == InitScheme::kNormal;
}
bool TakesFan(InitScheme scheme) {
  return scheme != InitScheme::kNormal && scheme != InitScheme::kUniform &&
         scheme != InitScheme::kConstant;
}

// Variance of the distribution of a weight with these dims.
// A uniform distribution on [-bound, bound] has the variance bound^2 / 3; DrawWeights turns a
// variance into a bound the same way. One of fans needs dims of at least two.
double Variance(const std::vector<std::int64_t>& dims, const InitRule& rule) {
  if (rule.scheme == InitScheme::kNormal) return rule.std * rule.std;
  if (rule.scheme == InitScheme::kUniform) return rule.bound * rule.bound / 3;
  double window = 1;
  for (std::size_t i = 2; i < dims.size(); ++i) window *= static_cast<double>(dims[i]);
  const double fan_in = static_cast<double>(dims[1]) * window;
  const double fan_out = static_cast<double>(dims[0]) * window;
  const bool he = rule.scheme == InitScheme::kHeNormal || rule.scheme == InitScheme::kHeUniform;
  const bool lecun =
      rule.scheme == InitScheme::kLecunNormal || rule.scheme == InitScheme::kLecunUniform;
  const bool one_fan = he || lecun;
  const double fan = !one_fan                         ? fan_in + fan_out
                     : rule.fan == InitRule::Fan::kIn ? fan_in
                                                      : fan_out;
  if (!rule.gain) return (lecun ? 1 : 2) / fan;
  return *rule.gain * *rule.gain * (one_fan ? 1 / fan : 2 / fan);
}

// Draws one part of a tensor; a normal number uses four random words, also in earlier parts.
void DrawWeights(RandomStream random, double variance, bool normal, std::size_t first,
                 std::span<float> values) {
  const double deviation = std::sqrt(variance), bound = std::sqrt(3 * variance);
  random.Seek(first * (normal ? 4 : 1));
  for (float& value : values) {
    value = static_cast<float>(normal ? deviation * random.Normal()
                                      : bound * (2.0 * random.Uniform() - 1));
  }
}

// Large tensors are drawn in parts, in parallel: a number depends only on its position.
std::vector<float> RandomWeights(const Parameter& parameter, const InitRule& rule,
                                 std::uint64_t seed, double factor = 1) {
  const RandomStream random(seed, StreamId(parameter.name));
  const double variance = factor * factor * Variance(parameter.dims, rule);
  const bool normal = IsNormal(rule.scheme);
  std::vector<float> values(static_cast<std::size_t>(parameter.numel()));
  std::vector<std::function<void()>> parts;
  for (std::size_t first = 0; first < values.size(); first += kDrawnAtOnce) {
    const std::size_t count = std::min(kDrawnAtOnce, values.size() - first);
    const std::span<float> part(values.data() + first, count);
    parts.emplace_back([=] { DrawWeights(random, variance, normal, first, part); });
  }
  RunInParallel(parts);
  return values;
}

std::vector<float> Filled(const Parameter& parameter, float value) {
  return std::vector<float>(static_cast<std::size_t>(parameter.numel()), value);
}

// For a rule that names this parameter: schemes with fans do not change vectors, which have none.
std::vector<float> NamedValues(const Parameter& parameter, const InitRule& rule,
                               std::uint64_t seed) {
  if (rule.scheme == InitScheme::kConstant)
    return Filled(parameter, static_cast<float>(rule.value));
  if (TakesFan(rule.scheme) && parameter.dims.size() < 2) return StartValues(parameter, rule, seed);
  return RandomWeights(parameter, rule, seed);
}

// The last entry that matches wins, as in all lists of the configuration; running statistics are
// matched by none.
std::vector<float> ValuesOf(const Parameter& parameter, const InitConfig& init,
                            const std::set<std::string>& zero_gammas, std::uint64_t seed) {
  const config::InitParametersConfig* named = nullptr;
  for (const config::InitParametersConfig& entry : init.parameters)
    if (parameter.gradient && GlobMatch(entry.match, parameter.name)) named = &entry;
  if (named != nullptr) return NamedValues(parameter, *named, seed);
  if (zero_gammas.contains(parameter.name)) return Filled(parameter, 0);
  return StartValues(parameter, init, seed);
}

void Upload(const Parameter& parameter, const std::vector<float>& values,
            backend::Backend& backend) {
  ADA_CHECK(values.size() * sizeof(float) == parameter.value.bytes());
  backend.Upload(parameter.value.data, values.data(), parameter.value.bytes());
}

}  // namespace

std::vector<float> StartValues(const Parameter& parameter, const InitRule& rule,
                               std::uint64_t seed) {
  if (parameter.dims.size() >= 2) {
    if (rule.scheme == InitScheme::kConstant)
      return Filled(parameter, static_cast<float>(rule.value));
    return RandomWeights(parameter, rule, seed, parameter.start_factor);
  }
  const bool one = EndsWith(parameter.name, ".weight") || EndsWith(parameter.name, ".running_var");
  return Filled(parameter, static_cast<float>(parameter.start.value_or(one ? 1 : 0)));
}

WeightsCover Initialize(std::vector<Parameter>& parameters,
                        const std::vector<std::string>& last_norms, const config::InitConfig& init,
                        std::uint64_t seed, backend::Backend& backend) {
  std::set<std::string> zero_gammas;
  if (init.zero_gamma)
    for (const std::string& layer : last_norms) zero_gammas.insert(layer + ".weight");
  for (const Parameter& parameter : parameters) {
    Upload(parameter, ValuesOf(parameter, init, zero_gammas, seed), backend);
  }
  if (init.weights.empty()) return {};
  const SafetensorsFile file = OpenWeights(init);
  WeightsCover cover = CoverOf(file, init, parameters);
  // This comes last: a file's values replace the drawn ones, and a tensor that the file lacks
  // starts as it would without the file.
  for (const Parameter& parameter : parameters) {
    const std::string name = NameInFile(file, parameter);
    const bool taken = !name.empty() && !IsSkipped(init, parameter.name);
    if (taken) Upload(parameter, file.ReadF32(name), backend);
  }
  return cover;
}

namespace {

// The number of layers on the longest path from the input to each value.
std::vector<int> Depths(const Network& network) {
  std::vector<int> depths = {0};
  for (const Node& node : network.nodes) {
    int depth = 0;
    for (const int input : node.inputs)
      depth = std::max(depth, depths[static_cast<std::size_t>(input)]);
    depths.push_back(depth + 1);
  }
  return depths;
}

}  // namespace

std::vector<std::string> LastNorms(const Network& network) {
  const std::vector<int> depths = Depths(network);
  std::vector<std::string> names;
  for (const Node& node : network.nodes) {
    if (node.kind->chain != layers::ChainPart::kSum) continue;
    const int deepest =
        *std::max_element(node.inputs.begin(), node.inputs.end(), [&](int a, int b) {
          return depths[static_cast<std::size_t>(a)] < depths[static_cast<std::size_t>(b)];
        });
    // What is added is the network's input itself, so no layer ends the branch.
    if (deepest == 0) continue;
    const Node& from = network.nodes[static_cast<std::size_t>(deepest - 1)];
    if (from.kind->chain == layers::ChainPart::kNorm) names.push_back(from.config.name);
  }
  return names;
}

}  // namespace ada::graph

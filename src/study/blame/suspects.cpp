// What a fork can put into fp32, how its configuration says so, and how far two forks end apart.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>

#include "step/specs.h"
#include "study/blame/findings.h"

namespace ada::study {
namespace {

const std::string kAll = "all";

// Everything before the last dot: the block of `stage1.block2.conv1`; a layer without a dot is its
// own.
std::string BlockOf(const std::string& layer) {
  const std::size_t dot = layer.rfind('.');
  return dot == std::string::npos ? layer : layer.substr(0, dot);
}

// One suspect a kind of tensor in the whole network, with those of the update that have formats.
std::vector<Suspect> ByTensor(const config::Config& config,
                              const std::vector<run::ForkLayer>& layers) {
  const config::PrecisionConfig& precision = config.precision;
  const backend::UpdateRule rule = step::UpdateRuleOf(config.optimizer, precision);
  const bool rounds =
      std::any_of(layers.begin(), layers.end(), [](const auto& layer) { return layer.rounds; });
  std::vector<Suspect> suspects;
  for (const char* const tensor : {"activations", "weights", "gradients"})
    suspects.push_back({kAll, tensor, {}, rounds});
  suspects.push_back({kAll, "masters", {}, precision.masters.format != kFp32});
  suspects.push_back({kAll, "state", {}, rule.states != nullptr || rule.state.format != kFp32});
  const bool sums = precision.accumulated_gradients.format != kFp32 && config.train.accumulate > 1;
  suspects.push_back({kAll, "accumulated", {}, sums});
  return suspects;
}

// Sums of squares over the parameters of one layer, of two forks and of their difference.
// Relative to the larger of the two norms, so that the distance lies between 0 and 2 and does not
// depend on which fork comes first.
struct LayerSquares {
  double a = 0, b = 0, difference = 0;
  void Add(const std::vector<float>& of_a, const std::vector<float>& of_b) {
    for (std::size_t i = 0; i < of_a.size(); ++i) {
      const auto x = static_cast<double>(of_a[i]), y = static_cast<double>(of_b[i]);
      a += x * x;
      b += y * y;
      difference += (x - y) * (x - y);
    }
  }
  // Two that are both no numbers are alike.
  double Distance() const {
    if (!std::isfinite(a) || !std::isfinite(b))
      return std::isfinite(a) == std::isfinite(b) ? 0 : INFINITY;
    const double largest = std::max(a, b);
    return largest == 0 ? 0 : std::sqrt(difference / largest);
  }
};

// Two numbers that are no numbers are alike.
double Difference(double a, double b) {
  if (!std::isfinite(a) && !std::isfinite(b)) return 0;
  return std::isfinite(a) && std::isfinite(b) ? a - b : INFINITY;
}

double RootMeanSquare(const std::vector<double>& values) {
  double square = 0;
  for (const double v : values) square += v * v;
  return values.empty() ? 0 : std::sqrt(square / static_cast<double>(values.size()));
}

}  // namespace

// Layers of a block are found by name and need not be consecutive.
std::vector<Suspect> Suspects(const run::ForkSource& source, BlameOptions::By by) {
  const std::vector<run::ForkLayer> layers = source.Layers(source.config().precision);
  if (by == BlameOptions::By::kTensor) return ByTensor(source.config(), layers);
  std::vector<Suspect> suspects;
  for (const run::ForkLayer& layer : layers) {
    const std::string name = by == BlameOptions::By::kBlock ? BlockOf(layer.name) : layer.name;
    const auto same = std::find_if(suspects.begin(), suspects.end(),
                                   [&](const Suspect& s) { return s.layer == name; });
    if (same == suspects.end()) {
      suspects.push_back({name, kAll, {layer.name}, layer.rounds});
      continue;
    }
    same->layers.push_back(layer.name);
    same->rounds = same->rounds || layer.rounds;
  }
  return suspects;
}

// Entries go to the end of precision.layers, where they win. An operand that is set to no format is
// taken as it is stored, that is in fp32 then; sums of a layer are fp32's, too.
config::PrecisionConfig Freed(const config::PrecisionConfig& precision, const Suspect& suspect) {
  using enum Operand;
  config::PrecisionConfig freed = precision;
  const auto take = [](config::LayerPrecisionConfig& entry, std::initializer_list<Operand> taken) {
    for (const Operand operand : taken)
      entry.operands.by_operand[IndexOf(operand)] = config::OperandConfig();
  };
  const auto take_attention = [](config::LayerPrecisionConfig& entry,
                                 std::initializer_list<AttentionTensor> taken) {
    for (const AttentionTensor tensor : taken)
      entry.operands.attention[static_cast<std::size_t>(tensor)] = config::OperandConfig();
  };
  const bool accumulates = precision.accumulate.given() ||
                           std::any_of(precision.layers.begin(), precision.layers.end(),
                                       [](const auto& entry) { return entry.accumulate.given(); });
  for (const std::string& layer : suspect.layers) {
    config::LayerPrecisionConfig& entry = freed.layers.emplace_back();
    entry.match = layer;
    entry.activations = entry.weights = entry.gradients = entry.weight_gradients = kFp32;
    entry.operands.by_operand.fill(config::OperandConfig());
    entry.operands.attention.fill(config::OperandConfig());
    if (accumulates) entry.accumulate.by_matmul.fill(config::AccumulateConfig());
  }
  if (!suspect.layers.empty()) return freed;
  if (suspect.tensor == "masters") freed.masters = {};
  if (suspect.tensor == "state") freed.optimizer_state = {};
  if (suspect.tensor == "accumulated") freed.accumulated_gradients = {};
  config::LayerPrecisionConfig entry;
  entry.match = "*";
  if (suspect.tensor == "activations") {
    entry.activations = kFp32;
    take(entry, {kForwardX, kDwX});
    take_attention(entry, {AttentionTensor::kQ, AttentionTensor::kK, AttentionTensor::kV,
                           AttentionTensor::kP});
  }
  if (suspect.tensor == "weights") {
    entry.weights = kFp32;
    take(entry, {kForwardW, kDxW});
  }
  if (suspect.tensor == "gradients") {
    entry.gradients = entry.weight_gradients = kFp32;
    take(entry, {kDxDy, kDwDy});
    take_attention(entry, {AttentionTensor::kDy, AttentionTensor::kDs});
  }
  freed.layers.push_back(entry);
  return freed;
}

double Distance(const run::ForkResult& a, const run::ForkResult& b) {
  std::vector<double> parts;
  if (a.gradients.empty()) {
    for (std::size_t i = 0; i < a.losses.size(); ++i)
      parts.push_back(Difference(a.losses[i], b.losses[i]));
    return RootMeanSquare(parts);
  }
  std::map<std::string, LayerSquares> layers;
  for (std::size_t i = 0; i < a.gradients.size(); ++i)
    layers[a.layers[i]].Add(a.gradients[i], b.gradients[i]);
  for (const auto& [name, squares] : layers) parts.push_back(squares.Distance());
  return RootMeanSquare(parts);
}

}  // namespace ada::study

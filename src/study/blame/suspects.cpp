#include <algorithm>
#include <cmath>

#include "study/blame/parts.h"

namespace ada::study {
namespace {

const std::string kAll = "all";

// Everything before the last dot: the block of `stage1.block2.conv1`; a layer without a dot is its
// own.
std::string BlockOf(const std::string& layer) {
  const std::size_t dot = layer.rfind('.');
  return dot == std::string::npos ? layer : layer.substr(0, dot);
}

std::vector<Suspect> ByTensor(const config::PrecisionConfig& precision,
                              const std::vector<train::ForkLayer>& layers) {
  const bool rounds =
      std::any_of(layers.begin(), layers.end(), [](const auto& layer) { return layer.rounds; });
  std::vector<Suspect> suspects;
  for (const char* const tensor : {"activations", "weights", "gradients"})
    suspects.push_back({kAll, tensor, {}, rounds});
  suspects.push_back({kAll, "masters", {}, precision.masters.format != kFp32});
  suspects.push_back({kAll, "state", {}, precision.optimizer_state.format != kFp32});
  return suspects;
}

double Norm(const std::vector<float>& values) {
  double square = 0;
  for (const float v : values) square += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(square);
}

// `largest`: the larger one of their norms.
double RelativeDistance(const std::vector<float>& a, const std::vector<float>& b, double largest) {
  double square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    square += d * d;
  }
  return largest == 0 ? 0 : std::sqrt(square) / largest;
}

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

std::vector<Suspect> Suspects(const train::ForkSource& source, BlameOptions::By by) {
  const std::vector<train::ForkLayer> layers = source.Layers();
  if (by == BlameOptions::By::kTensor) return ByTensor(source.config().precision, layers);
  std::vector<Suspect> suspects;
  for (const train::ForkLayer& layer : layers) {
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

config::PrecisionConfig Freed(const config::PrecisionConfig& precision, const Suspect& suspect) {
  config::PrecisionConfig freed = precision;
  for (const std::string& layer : suspect.layers) {
    config::LayerPrecisionConfig& entry = freed.layers.emplace_back();
    entry.match = layer;
    entry.activations = entry.weights = entry.gradients = entry.weight_gradients = kFp32;
  }
  if (!suspect.layers.empty()) return freed;
  if (suspect.tensor == "masters") freed.masters = {};
  if (suspect.tensor == "state") freed.optimizer_state = {};
  config::LayerPrecisionConfig entry;
  entry.match = "*";
  if (suspect.tensor == "activations") entry.activations = kFp32;
  if (suspect.tensor == "weights") entry.weights = kFp32;
  if (suspect.tensor == "gradients") entry.gradients = entry.weight_gradients = kFp32;
  freed.layers.push_back(entry);
  return freed;
}

double Distance(const train::ForkResult& a, const train::ForkResult& b) {
  std::vector<double> parts;
  if (a.gradients.empty()) {
    for (std::size_t i = 0; i < a.losses.size(); ++i)
      parts.push_back(Difference(a.losses[i], b.losses[i]));
    return RootMeanSquare(parts);
  }
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    const double norms[] = {Norm(a.gradients[i]), Norm(b.gradients[i])};
    const bool finite[] = {std::isfinite(norms[0]), std::isfinite(norms[1])};
    if (finite[0] && finite[1])
      parts.push_back(
          RelativeDistance(a.gradients[i], b.gradients[i], std::max(norms[0], norms[1])));
    else
      parts.push_back(finite[0] == finite[1] ? 0 : INFINITY);
  }
  return RootMeanSquare(parts);
}

}  // namespace ada::study

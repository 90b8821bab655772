// See layer_overflow.h.
#include "train/layer_overflow.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>

namespace ada::train {
namespace {

// The largest magnitude that stays finite when it is rounded.
float LargestThatStays(const NumberFormat& format) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (std::isfinite(RoundTo(format, kInf))) return kInf;
  const bool saturates = std::isfinite(RoundTo(format, std::numeric_limits<float>::max()));
  return std::nextafter(saturates ? kInf : OverflowThreshold(format), 0.0f);
}

// By rounding: the layer that its overflow counts for, empty for none.
std::vector<std::string> Owners(const graph::Graph& graph) {
  std::map<std::string, bool> has_scale;
  std::string last;  // of the forward order
  for (const graph::ScalePoint& point : graph.scales()) {
    if (point.scaler == nullptr) continue;
    if (last.empty()) last = point.layer;
    has_scale[point.layer] = true;
  }
  std::vector<std::string> owners;
  for (const graph::RoundingPoint& p : graph.roundings()) {
    const std::string& layer = p.layer == "loss" ? last : p.layer;
    const bool counts = (p.tensor == "dx" || p.tensor == "dw") && has_scale.count(layer) > 0;
    owners.push_back(counts ? layer : "");
  }
  return owners;
}

}  // namespace

std::vector<backend::WatchedRounding> WatchedRoundings(const graph::Graph& graph) {
  const std::vector<std::string> owners = Owners(graph);
  std::vector<backend::WatchedRounding> watched;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const graph::RoundingPoint& point = graph.roundings()[i];
    if (!owners[i].empty())
      watched.push_back({point.backend_stats, LargestThatStays(point.format)});
  }
  return watched;
}

void NoteLayerOverflow(const graph::Graph& graph,
                       const std::function<const TensorStats&(std::size_t)>& stats_of,
                       scaling::Attempt& attempt) {
  for (const graph::ScalePoint& point : graph.scales())
    if (point.scaler != nullptr) attempt.layer_overflow[point.layer] = false;
  const std::vector<std::string> owners = Owners(graph);
  bool any = false;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (owners[i].empty()) continue;
    const float most = LargestThatStays(graph.roundings()[i].format);
    if (!(stats_of(i).max_abs <= most)) attempt.layer_overflow[owners[i]] = any = true;
  }
  if (!attempt.overflow || any) return;
  for (auto& layer : attempt.layer_overflow) layer.second = true;
}

}  // namespace ada::train

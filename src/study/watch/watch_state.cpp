#include "study/watch/watch_state.h"

#include <algorithm>

namespace ada::study {

double WatchedLayer::mean_pct() const {
  double sum = 0;
  int count = 0;
  for (const double pct : history) {
    if (std::isnan(pct)) continue;
    sum += pct;
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

WatchedLayer& WatchState::Layer(const std::string& layer) {
  const auto [at, added] = index_.try_emplace(layer, layers.size());
  if (added) layers.emplace_back().name = layer;
  return layers[at->second];
}

void WatchState::Add(const telemetry::StepRow& row) {
  step = row;
  skipped += row.skipped;
}

void WatchState::Add(const TensorRow& row) {
  logged_step = std::max(logged_step, row.step);
  if (row.tensor != "dx") return;
  WatchedLayer& layer = Layer(row.layer);
  layer.scale = row.scale;
  layer.underflow_pct = row.underflow_pct_nonzero;
  layer.history.push_back(row.underflow_pct_nonzero);
  if (layer.history.size() > WatchedLayer::kHistory) layer.history.pop_front();
}

void WatchState::Add(const ScaleRow& row) {
  logged_step = std::max(logged_step, row.step);
  if (row.branch()) return;
  WatchedLayer& layer = Layer(row.layer);
  layer.limit = row.limit;
  if (layer.history.empty()) layer.scale = row.scale_out;  // dx is not logged
}

}  // namespace ada::study

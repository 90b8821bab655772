// All counts have been fetched from the backend and joined over the processes when these functions
// are called: they only read.
#include "train/attempt/attempt_facts.h"

#include <cmath>

#include "core/tensor_names.h"

namespace ada::train {

AttemptFacts::AttemptFacts(const graph::Graph& graph, const BatchCounts& counts)
    : graph_(graph), counts_(counts), layer_roundings_(LayerRoundings(graph)) {}

void AttemptFacts::Fill(const scaling::StatsRequest& request, scaling::StepOutcome& attempt) const {
  const auto& points = graph_.roundings();
  for (std::size_t i = 0; request.edge > 0 && i < points.size(); ++i) {
    if (!IsDx(points[i].tensor)) continue;
    const TensorStats& s = counts_.StatsOf(i);
    attempt.above += s.above_edge;
    attempt.below += s.numel - s.above_edge;
  }
  if (request.layers) FillLayerOverflow(graph_, layer_roundings_, counts_, attempt);
}

// A largest magnitude may be finite and become infinite when it is rounded to the tensor's format:
// such a tensor is the cause of the overflow, and so the first that is looked for. Where a
// per-tensor scale was too large for it, it has outgrown its scale.
NotFiniteTensor AttemptFacts::FirstNotFinite() const {
  const auto& points = graph_.roundings();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const float largest = counts_.StatsOf(i).max_abs;
    if (!std::isfinite(RoundTo(points[i].format, largest)))
      return {points[i].layer, points[i].tensor, largest, counts_.LargestAt(i),
              points[i].per_tensor_scale != nullptr && std::isfinite(largest)};
  }
  return {};
}

std::string AttemptFacts::DecisionErrors() const {
  for (const graph::ScalePoint& point : graph_.scales()) {
    const scaling::DecisionError error = point.decision->error;
    if (error == scaling::DecisionError::kNone) continue;
    return "layer " + point.layer + ": " + scaling::DecisionErrorText(error) +
           " (scaling.reference: true ends the run there, as the original does)";
  }
  return "";
}

}  // namespace ada::train

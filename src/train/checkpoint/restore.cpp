#include "train/checkpoint/restore.h"

#include "core/error.h"
#include "scaling/rules/state_text.h"

namespace ada::train {

std::string OfProcess(const std::string& layer, int rank) {
  return layer + "@" + std::to_string(rank);
}

void RestoreParts(const ResumePoint& from, int rank, bool switched, graph::Graph& graph,
                  optim::Optimizer& optimizer, scaling::Policy& policy, backend::Backend& backend) {
  const CheckpointState& s = from.state;
  LoadCheckpointTensors(from.stem, graph, &optimizer, backend);
  LoadTensorScales(from.stem, s, graph, switched);
  optimizer.set_updates(s.updates);
  policy.LoadState(s.policy);
  for (const graph::ScalePoint& point : graph.scales()) {
    if (point.scaler == nullptr) continue;
    auto found = s.layers.find(point.layer);
    // A process that decides on its own has a state of its own; where the checkpoint has none,
    // since it was written by fewer processes or with common decisions, it begins with that of the
    // first.
    if (rank > 0) {
      const auto own = s.layers.find(OfProcess(point.layer, rank));
      if (own != s.layers.end()) found = own;
    }
    if (found == s.layers.end())
      throw DataError(from.stem + ".json: no state of layer " + point.layer +
                      "; this checkpoint cannot be used");
    point.scaler->state = scaling::LoadLayerState(found->second, point.layer);
  }
  graph.SendLayerScalers();
}

}  // namespace ada::train

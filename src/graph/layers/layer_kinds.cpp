#include <algorithm>

#include "core/error.h"
#include "graph/layers/layer_kind.h"

namespace ada::graph {

const std::vector<LayerKind>& LayerKinds() {
  static const std::vector<LayerKind> kinds = [] {
    std::vector<LayerKind> all;
    for (const auto& family :
         {ProductKinds(), NormKinds(), ActivationKinds(), PoolKinds(), JoinKinds(), OtherKinds()}) {
      all.insert(all.end(), family.begin(), family.end());
    }
    return all;
  }();
  return kinds;
}

const LayerKind* FindLayerKind(const std::string& name) {
  const std::vector<LayerKind>& kinds = LayerKinds();
  const auto found = std::find_if(kinds.begin(), kinds.end(),
                                  [&](const LayerKind& kind) { return name == kind.name; });
  return found == kinds.end() ? nullptr : &*found;
}

void KeepShape(LayerKeys&, LayerShapes& shapes) { shapes.output = shapes.input(); }

void Require(bool condition, const std::string& message) {
  if (!condition) throw ConfigError(message);
}

}  // namespace ada::graph

// Joins the tables of all families of layer kinds into one, and has the checks that they share.
#include <algorithm>

#include "error.h"
#include "io/text.h"
#include "layers/layer_kind.h"

namespace ada::layers {

const std::vector<LayerKind>& LayerKinds() {
  static const std::vector<LayerKind> kinds = [] {
    std::vector<LayerKind> all;
    for (const auto& family : {MatmulKinds(), NormKinds(), ActivationKinds(), PoolKinds(),
                               JoinKinds(), SequenceKinds(), OtherKinds()}) {
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

void RequireSize(const Shape& shape, const std::string& tensor) {
  // A double, because a product of 64-bit sizes could overflow before it is compared.
  constexpr double kMost = 0x1p40;
  const double values = static_cast<double>(shape.n) * static_cast<double>(shape.h) *
                        static_cast<double>(shape.w) * static_cast<double>(shape.c);
  Require(values <= kMost, tensor + " would have " + ShortestText(values) +
                               " values, expected at most 2^40; use fewer channels or features, or "
                               "smaller images");
}

}  // namespace ada::layers

// Layers that normalise: batch_norm.
#include "graph/layers/layer_kind.h"

namespace ada::graph {
namespace {

std::vector<ParameterSpec> BatchNormParameters(const LayerKeys&, const LayerShapes& shapes) {
  const std::int64_t channels = shapes.output.c;
  const Shape vector{1, 1, 1, channels};
  return {{"weight", {channels}, vector},
          {"bias", {channels}, vector},
          {"running_mean", {channels}, vector, false},
          {"running_var", {channels}, vector, false}};
}

backend::OpSpec BatchNormSpecOf(const OpParts& op) {
  auto spec = SpecOf<backend::BatchNormSpec>(op);
  spec.out = op.y;
  spec.gamma = op.parameters[0].value;
  spec.dgamma = op.parameters[0].gradient;
  spec.beta = op.parameters[1].value;
  spec.dbeta = op.parameters[1].gradient;
  spec.running_mean = op.parameters[2].value;
  spec.running_var = op.parameters[3].value;
  spec.addend = op.addend;
  spec.sum_stats = op.sum.stats;
  spec.sum_style = op.sum.style;
  spec.relu = op.relu;
  spec.recomputed = op.recomputed;
  spec.eps = static_cast<float>(op.keys.eps);
  spec.momentum = static_cast<float>(op.keys.momentum);
  spec.x_moments = op.x_moments;
  spec.y_format = op.rounded_y.format;
  return spec;
}

}  // namespace

std::vector<LayerKind> NormKinds() {
  return {
      {.name = backend::BatchNormSpec::kKind,
       .keys = {"eps", "momentum"},
       .infer = KeepShape,
       .parameters = BatchNormParameters,
       .may_choose_scale = true,
       .keeps_input = true,
       .dx_in_place = true,
       .chain = ChainPart::kNorm,
       .spec = BatchNormSpecOf},
  };
}

}  // namespace ada::graph

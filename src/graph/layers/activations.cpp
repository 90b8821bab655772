// Functions of each value alone: relu, relu6, hardtanh, leaky_relu, sigmoid, tanh, silu,
// hardsigmoid, hardswish, gelu.
#include "core/text.h"
#include "graph/layers/layer_kind.h"

namespace ada::graph {
namespace {

using backend::ActivationSpec;

// The row of a function, without keys.
template <class Function>
LayerKind FunctionKind(
    backend::OpSpec (*spec)(const OpParts&) = PlainSpec<ActivationSpec<Function>>) {
  LayerKind kind{.name = Function::kKind,
                 .infer = KeepShape,
                 .keeps_input = true,
                 .dx_in_place = true,
                 .spec = spec};
  if (backend::kPassesDy<Function>) kind.rounds_gradient = [](const LayerKeys&) { return false; };
  return kind;
}
template <class Function>
LayerKind WithKeys(std::vector<std::string> keys, backend::OpSpec (*spec)(const OpParts&)) {
  LayerKind kind = FunctionKind<Function>(spec);
  kind.keys = std::move(keys);
  return kind;
}

backend::OpSpec HardtanhSpecOf(const OpParts& op) {
  auto spec = SpecOf<ActivationSpec<backend::Hardtanh>>(op);
  spec.function = {static_cast<float>(op.keys.min), static_cast<float>(op.keys.max)};
  return spec;
}
backend::OpSpec LeakyReluSpecOf(const OpParts& op) {
  auto spec = SpecOf<ActivationSpec<backend::LeakyRelu>>(op);
  spec.function.slope = static_cast<float>(op.keys.slope);
  return spec;
}
backend::OpSpec GeluSpecOf(const OpParts& op) {
  if (op.keys.approximate == "tanh") return SpecOf<ActivationSpec<backend::GeluTanh>>(op);
  return SpecOf<ActivationSpec<backend::Gelu>>(op);
}

KeyProblem CheckBounds(const LayerKeys& keys) {
  if (keys.min < keys.max) return {};
  return {"max", "must be above min, " + ShortestText(keys.min)};
}

}  // namespace

std::vector<LayerKind> ActivationKinds() {
  LayerKind hardtanh = WithKeys<backend::Hardtanh>({"min", "max"}, HardtanhSpecOf);
  hardtanh.check = CheckBounds;
  return {
      {.name = backend::ReluSpec::kKind,
       .infer = KeepShape,
       .rounds_output = false,
       .keeps_output = true,  // as the mask of its gradient
       .dx_in_place = true,
       .chain = ChainPart::kMask,
       .spec = PlainSpec<backend::ReluSpec>},
      FunctionKind<backend::Relu6>(),
      hardtanh,
      WithKeys<backend::LeakyRelu>({"slope"}, LeakyReluSpecOf),
      FunctionKind<backend::Sigmoid>(),
      FunctionKind<backend::Tanh>(),
      FunctionKind<backend::Silu>(),
      FunctionKind<backend::Hardsigmoid>(),
      FunctionKind<backend::Hardswish>(),
      WithKeys<backend::Gelu>({"approximate"}, GeluSpecOf),
  };
}

}  // namespace ada::graph

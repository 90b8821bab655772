// Functions of each value alone: relu, sigmoid, silu.
#include "graph/layers/layer_kind.h"

namespace ada::graph {

std::vector<LayerKind> ActivationKinds() {
  return {
      {.name = backend::ReluSpec::kKind,
       .infer = KeepShape,
       .rounds_output = false,
       .keeps_output = true,  // as the mask of its gradient
       .dx_in_place = true,
       .chain = ChainPart::kMask,
       .spec = PlainSpec<backend::ReluSpec>},
      {.name = backend::SigmoidSpec::kKind,
       .infer = KeepShape,
       .keeps_input = true,
       .dx_in_place = true,
       .spec = PlainSpec<backend::SigmoidSpec>},
      {.name = backend::SiluSpec::kKind,
       .infer = KeepShape,
       .keeps_input = true,
       .dx_in_place = true,
       .spec = PlainSpec<backend::SiluSpec>},
  };
}

}  // namespace ada::graph

// The losses as a fake backend sees them: pairs of an output and its gradient.
#pragma once
#include <variant>
#include <vector>

#include "backend/layer_specs.h"
#include "graph/symbols.h"

namespace ada::graph::test {

struct LossEnd {
  Tensor output;
  backend::Gradient gradient;
};
inline std::vector<LossEnd> EndsOf(const backend::MultiboxLossSpec& s) {
  return {{s.locations, s.dlocations}, {s.scores, s.dscores}};
}
template <class Spec>
std::vector<LossEnd> EndsOf(const Spec& s) {
  return {{s.logits, s.dlogits}};
}
inline std::vector<LossEnd> EndsOf(const backend::LossSpec& spec) {
  return std::visit([](const auto& s) { return EndsOf(s); }, spec);
}

// What the loss reads of the outputs. The gradient of each depends on all of them.
inline Symbol LossSymbol(const std::vector<Symbol>& outputs) {
  return outputs.size() == 1 ? outputs[0] : Hash("outputs", outputs);
}
inline Symbol LossGradient(const std::vector<Symbol>& outputs, std::size_t index) {
  return outputs.size() == 1 ? Hash("loss", outputs)
                             : Hash("loss " + std::to_string(index), outputs);
}

}  // namespace ada::graph::test

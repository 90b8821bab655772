// The names of a layer's tensors in logs: y, w, dx, dw, dy; dx2, the gradient by the second input
// of a layer that rounds one for each; of attention p, the probabilities, ds, the gradient of the
// scores, and dq, dk, dv, those of queries, keys and values; the operands of products
// (core/operands.h), forward.x to dw.dy; update, what an update asked to change; master and state,
// what it keeps; sent, gradients between processes. Where a layer has several parameters, or a
// parameter several states, each part has a name of its own: update.weight, state.exp_avg.
#pragma once
#include <string_view>

#include "core/operands.h"

namespace ada {

inline bool IsOperand(std::string_view tensor) { return OperandNamed(tensor).has_value(); }
// Tensors of attention, each with a scale decision of its own: LAYER.ds.
inline bool IsOfAttention(std::string_view tensor) {
  return tensor == "ds" || tensor == "dq" || tensor == "dk" || tensor == "dv";
}
inline bool IsDx(std::string_view tensor) {
  return tensor == "dx" || tensor == "dx2" || IsOfAttention(tensor);
}
// Whether it is a gradient of the loss, by a tensor of the batch or by a weight.
inline bool IsGradient(std::string_view tensor) {
  return IsDx(tensor) || tensor == "dy" || tensor == "dw";
}
// The tensor that a part belongs to: "update" of "update.weight".
inline std::string_view WholeTensor(std::string_view tensor) {
  return tensor.substr(0, tensor.find('.'));
}
// Whether it is of the update, not of a pass through the network.
inline bool IsOfUpdate(std::string_view tensor) {
  const std::string_view whole = WholeTensor(tensor);
  return whole == "update" || whole == "master" || whole == "state";
}
// Whether it carries S.
inline bool CarriesS(std::string_view tensor) {
  return IsDx(tensor) || tensor == "dy" || tensor == "dx.dy" || tensor == "dw.dy";
}
// Whether it is the same for every part of a batch: a weight, or the sum of its gradients.
inline bool IsOfWholeBatch(std::string_view tensor) {
  return tensor == "w" || tensor == "dw" || tensor == "forward.w" || tensor == "dx.w";
}
// The word of `log.statistics` that it is counted under.
inline std::string_view StatisticOf(std::string_view tensor) {
  if (IsOperand(tensor)) return "operands";
  if (tensor == "p") return "y";
  return IsDx(tensor) ? "dx" : WholeTensor(tensor);
}

}  // namespace ada

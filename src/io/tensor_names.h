// The names of a layer's tensors in logs: y, w, dx, dw, dy; dx2, the gradient with respect to the
// second input of a layer that rounds one for each; in attention p, the probabilities, ds, the
// gradient of the scores, and dq, dk, dv, those of queries, keys and values; operands of matmuls,
// forward.x to dw.dy, and of attention's products, s.q to dk.q; update, the requested changes of an
// update; master and state, what an update stores; ns and orthogonality, Newton-Schulz's matrices
// and what its result lacks; accumulated, the sums of micro-batches; sent, gradients between
// processes. If a layer has several parameters, or a parameter several states, each part has its
// own name: update.weight, state.exp_avg.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ada {

// The operands of the three matmuls of a linear layer or convolution, y = x w, dx = dy w and dw = x
// dy: each matmul has two operands, so that each tensor is an operand of two matmuls.
enum class Operand : std::uint8_t { kForwardX, kForwardW, kDxDy, kDxW, kDwX, kDwDy };
inline constexpr std::size_t kOperands = 6;
// Their names in logs, in the order of the enumeration.
inline constexpr std::array<const char*, kOperands> kOperandNames = {
    "forward.x", "forward.w", "dx.dy", "dx.w", "dw.x", "dw.dy"};

constexpr std::size_t IndexOf(Operand operand) { return static_cast<std::size_t>(operand); }
constexpr const char* NameOf(Operand operand) { return kOperandNames[IndexOf(operand)]; }
// Whether the operand is computed from the weights.
constexpr bool IsWeight(Operand operand) {
  return operand == Operand::kForwardW || operand == Operand::kDxW;
}
// Whether its matmul sums over channels, so that its blocks run along them; for w that is the
// second axis in PyTorch's order. `transposed`: for a transposed convolution, whose axes of w are
// exchanged.
constexpr bool AlongChannels(Operand operand, bool transposed) {
  if (IsWeight(operand)) return (operand == Operand::kForwardW) != transposed;
  return operand == Operand::kForwardX || operand == Operand::kDxDy;
}
// The operand with this name in logs; nullopt: there is none.
constexpr std::optional<Operand> OperandNamed(std::string_view name) {
  for (std::size_t i = 0; i < kOperands; ++i)
    if (name == kOperandNames[i]) return static_cast<Operand>(i);
  return std::nullopt;
}

// What the products of attention take: s = q k^T, y = p v, dv = p^T dy, dp = dy v^T, dq = ds k and
// dk = ds^T q. Each of the six tensors is an operand of two products.
enum class AttentionTensor : std::uint8_t { kQ, kK, kV, kP, kDy, kDs };
inline constexpr std::size_t kAttentionTensors = 6;
enum class AttentionOperand : std::uint8_t {
  kSQ,
  kSK,
  kYP,
  kYV,
  kDvP,
  kDvDy,
  kDpDy,
  kDpV,
  kDqDs,
  kDqK,
  kDkDs,
  kDkQ
};
inline constexpr std::size_t kAttentionOperands = 12;
// Their names in logs, in the order of the enumeration.
inline constexpr std::array<const char*, kAttentionOperands> kAttentionOperandNames = {
    "s.q", "s.k", "y.p", "y.v", "dv.p", "dv.dy", "dp.dy", "dp.v", "dq.ds", "dq.k", "dk.ds", "dk.q"};

constexpr std::size_t IndexOf(AttentionOperand operand) {
  return static_cast<std::size_t>(operand);
}
constexpr const char* NameOf(AttentionOperand operand) {
  return kAttentionOperandNames[IndexOf(operand)];
}
constexpr AttentionTensor TensorOf(AttentionOperand operand) {
  using enum AttentionTensor;
  constexpr std::array<AttentionTensor, kAttentionOperands> kTensors = {kQ,  kK, kP,  kV, kP,  kDy,
                                                                        kDy, kV, kDs, kK, kDs, kQ};
  return kTensors[IndexOf(operand)];
}
inline bool IsAttentionOperand(std::string_view name) {
  return std::find(kAttentionOperandNames.begin(), kAttentionOperandNames.end(), name) !=
         kAttentionOperandNames.end();
}
inline bool IsOperand(std::string_view tensor) {
  return OperandNamed(tensor).has_value() || IsAttentionOperand(tensor);
}
// Tensors of attention, each with a scale decision of its own: LAYER.ds.
inline bool IsOfAttention(std::string_view tensor) {
  return tensor == "ds" || tensor == "dq" || tensor == "dk" || tensor == "dv";
}
// The name of the decision about a tensor's scale: LAYER.ds within attention, else its layer's.
inline std::string DecisionOf(std::string_view layer, std::string_view tensor) {
  std::string name(layer);
  return IsOfAttention(tensor) ? name.append(".").append(tensor) : name;
}
// Layer and tensor of a decision within attention; the tensor of any other is empty.
struct DecisionParts {
  std::string_view layer, tensor;
};
inline DecisionParts PartsOfDecision(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  const bool within = dot != std::string_view::npos && IsOfAttention(name.substr(dot + 1));
  return within ? DecisionParts{name.substr(0, dot), name.substr(dot + 1)}
                : DecisionParts{name, {}};
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
  for (const char* const own : {"update", "master", "state", "accumulated", "ns", "orthogonality"})
    if (whole == own) return true;
  return false;
}
// Whether it carries S.
inline bool CarriesS(std::string_view tensor) {
  return IsDx(tensor) || tensor == "dy" ||
         (IsOperand(tensor) && (tensor.ends_with(".dy") || tensor.ends_with(".ds")));
}
// Whether it is the same in every part of a batch: a weight, or a sum of its gradients.
inline bool IsOfWholeBatch(std::string_view tensor) {
  return tensor == "w" || tensor == "dw" || tensor == "forward.w" || tensor == "dx.w";
}
// The word of `log.statistics` under which it is counted.
inline std::string_view StatisticOf(std::string_view tensor) {
  if (IsOperand(tensor)) return "operands";
  if (tensor == "p") return "y";
  return IsDx(tensor) ? "dx" : WholeTensor(tensor);
}

}  // namespace ada

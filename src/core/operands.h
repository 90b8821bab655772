// The operands of the three products of a linear layer or convolution, y = x w, dx = dy w and
// dw = x dy: each product takes two, so that a tensor is an operand twice.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ada {

enum class Operand : std::uint8_t { kForwardX, kForwardW, kDxDy, kDxW, kDwX, kDwDy };
inline constexpr std::size_t kOperands = 6;
// As logs call them, in the order of the enumeration.
inline constexpr std::array<const char*, kOperands> kOperandNames = {
    "forward.x", "forward.w", "dx.dy", "dx.w", "dw.x", "dw.dy"};

constexpr std::size_t IndexOf(Operand operand) { return static_cast<std::size_t>(operand); }
constexpr const char* NameOf(Operand operand) { return kOperandNames[IndexOf(operand)]; }
// Whether it is made of the weights.
constexpr bool IsWeight(Operand operand) {
  return operand == Operand::kForwardW || operand == Operand::kDxW;
}
// Whether its product sums over channels, along which its blocks then lie; for w over the second
// axis that PyTorch's order has. `transposed`: of a transposed convolution, whose axes of w are
// exchanged.
constexpr bool AlongChannels(Operand operand, bool transposed) {
  if (IsWeight(operand)) return (operand == Operand::kForwardW) != transposed;
  return operand == Operand::kForwardX || operand == Operand::kDxDy;
}
// The operand that logs call so; none of another name.
constexpr std::optional<Operand> OperandNamed(std::string_view name) {
  for (std::size_t i = 0; i < kOperands; ++i)
    if (name == kOperandNames[i]) return static_cast<Operand>(i);
  return std::nullopt;
}

}  // namespace ada

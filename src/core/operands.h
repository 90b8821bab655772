// The operands of the three products of a linear layer or convolution, y = x w, dx = dy w and
// dw = x dy: each product takes two, so that a tensor is an operand twice.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

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

}  // namespace ada

// What rounding an operand of a layer's products loses, from the tensors themselves: a histogram
// does not know blocks and rows. An operand is rounded as precision.operands has it, with scales of
// blocks, rows or tensors and after a Hadamard transform, or to a format as it is.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "graph/network/precision.h"
#include "io/tensor_names.h"
#include "number/blocks/block_format.h"
#include "telemetry/block_figures.h"

namespace ada::judge {

// A tensor as it is stored, row-major, in PyTorch's layout; empty dims: it is not there.
struct StoredTensor {
  std::vector<float> values;
  std::vector<std::int64_t> dims;
  bool bf16 = false;  // it is kept as bf16
  NumberFormat format = kFp32;
  double scale = 1;  // S that its values carry
  explicit operator bool() const { return !dims.empty(); }
};

// A linear layer or convolution: x and dy [n, channels, pixels...] (of a linear layer all values of
// an image are its features), w [out, in / groups, taps...] or, of a transposed convolution, [in,
// out / groups, taps...].
struct MatmulTensors {
  std::string layer;
  bool linear = true, transposed = false;
  std::int64_t groups = 1;
  bool has_dx = true;
  // In a convolution each pixel of x meets one of dy alone, as with a kernel of 1 and a stride of
  // 1, or with tokens.
  bool pointwise = false;
  StoredTensor x, w, dy;

  // What an operand is rounded from.
  const StoredTensor& Of(Operand operand) const {
    if (IsWeight(operand)) return w;
    return operand == Operand::kForwardX || operand == Operand::kDwX ? x : dy;
  }
};

// Why the shapes do not belong to one layer, or nothing.
std::string RefuseShapes(const MatmulTensors& tensors);

// A row of what-if --dump.
struct OperandRow : telemetry::BlockFigures {
  std::string layer, tensor, format;  // tensor: forward.x, dw.dy ...
  double scale = 1;                   // S that the values carry
  // Why most is lost; empty: nothing is. "saturated": more was cut off at the largest element.
  // Plain formats: "row" or "tensor", where values lie too far below the largest one of their
  // scale, "fixed scale", "no scale". Blocks have the causes of BlockCounts: "block"
  // (beside_largest), "scale rounding", "scale floor", "tensor scale".
  std::string cause;

  static constexpr auto Columns() {
    using enum telemetry::ColumnTraits;
    return telemetry::Joined(std::to_array<telemetry::Column<OperandRow>>({
                                 {"layer", &OperandRow::layer},
                                 {"tensor", &OperandRow::tensor},
                                 {"format", &OperandRow::format},
                                 {"scale", &OperandRow::scale, kExact | kPlain},
                             }),
                             telemetry::BlockColumns<OperandRow>());
  }
};

// The rule that rounds an operand to a format as it is.
graph::OperandRule PlainRule(const AnyFormat& format);

// Returns what `rule` would lose of an operand; nothing where it rounds nothing, or the operand's
// tensor is not there. y = x w sums over input channels, dx = dy w over output channels, dw = x dy
// over images and pixels; blocks run along what is summed over, in one group, for weights within
// one tap. Square tiles lie in the plane of both. Rounding is to nearest where a training draws,
// signs of a transform are those of one draw. A scale from earlier steps is taken as that of this
// one, which it follows. SQNR is that of the rounding alone: a transform keeps the sum of squares.
// The shapes must fit (RefuseShapes).
std::optional<OperandRow> JudgeOperand(const MatmulTensors& layer, Operand operand,
                                       const graph::OperandRule& rule);

// The layers with weights of a network, in its order, which says what a recipe spares. A recorded
// run also has layers of another kind (`external`) whose weights were dumped.
std::vector<std::string> JudgedLayers(const config::ModelConfig& model,
                                      const std::vector<std::string>& dumped);

}  // namespace ada::judge

// What a format would lose of the operands of a layer's products, from the tensors themselves: for
// block-scaled formats a histogram does not say enough.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

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
};

// Returns a row for each operand whose tensor is there: y = x w sums over input channels, dx = dy w
// over output channels, dw = x dy over images and pixels; blocks run along what is summed over, in
// one group, for weights within one tap. Square tiles lie in the plane of both. A plain format is
// rounded to as it is: it has no blocks, and what it loses has no cause. The shapes must fit.
std::vector<OperandRow> JudgeOperands(const MatmulTensors& tensors, const AnyFormat& format);

}  // namespace ada::judge

namespace ada::telemetry {

template <>
inline constexpr auto kColumns<judge::OperandRow> =
    Joined(std::to_array<Column<judge::OperandRow>>({
               {"layer", &judge::OperandRow::layer},
               {"tensor", &judge::OperandRow::tensor},
               {"format", &judge::OperandRow::format},
               {"scale", &judge::OperandRow::scale, kExact | kPlain},
           }),
           BlockColumns<judge::OperandRow>());

}  // namespace ada::telemetry

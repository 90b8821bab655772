// What a training would keep of the operands: decoded values, scales and codes.
#include <optional>

#include "number/number_format.h"
#include "number/tables/table_format.h"
#include "study/convert/block_tensor.h"
#include "study/matmul/matmul_rows.h"

namespace ada::study {
namespace {

using run::OperandMatrix;

std::vector<float> DecodedOperand(const OperandMatrix& operand) {
  std::vector<float> values = operand.values;
  if (operand.factor == 1) return values;
  for (float& x : values) x = static_cast<float>(static_cast<double>(x) * operand.factor);
  return values;
}

// The leading axes of a tensor that was read as a matrix.
std::vector<std::int64_t> WithLast(std::vector<std::int64_t> shape, std::int64_t columns) {
  shape.back() = columns;
  return shape;
}

// --- Plain formats ---

// The element by the rule of all backends; a value that was divided by its scale does not tell it
// where that is 0.
float ElementOf(const OperandMatrix& operand, const NumberFormat& format, std::size_t i) {
  const float encode = operand.scales.empty() ? 1 : operand.scale_at(i).encode;
  const float scaled = operand.before[i] * encode;
  if (!operand.words) return RoundTo(format, scaled);
  return RoundStochastically(format, scaled, operand.words->At(i));
}

void AddPlainScales(const std::string& name, const OperandMatrix& operand, TensorList& to) {
  std::vector<float> scales;
  for (const scaling::RowScale& scale : operand.scales)
    scales.push_back(operand.multiplies_back ? scale.decode : scale.encode);
  std::vector<std::int64_t> shape = {1};
  if (operand.by_row)
    shape = operand.laid_across ? std::vector<std::int64_t>{operand.rows, 1}
                                : std::vector<std::int64_t>{1, operand.columns};
  to.Add(name + kScaleEnding, std::move(shape), std::move(scales));
}

// Whole numbers are their own codes.
void AddPlain(const std::string& name, const OperandMatrix& operand, const NumberFormat& format,
              const std::vector<std::int64_t>& shape, TensorList& to) {
  if (!operand.scales.empty()) AddPlainScales(name, operand, to);
  const std::optional<TableFormat> table = TableFormatNamed(FormatName(format));
  const int bits = table ? table->bits : 1 + format.exponent_bits + format.mantissa_bits;
  if (bits > 16) return;
  const std::size_t bytes = bits > 8 ? 2 : 1;
  std::vector<std::byte> codes;
  codes.reserve(bytes * operand.values.size());
  for (std::size_t i = 0; i < operand.values.size(); ++i) {
    const float element = ElementOf(operand, format, i);
    const std::uint32_t code = IsInteger(format)
                                   ? static_cast<std::uint32_t>(static_cast<int>(element))
                               : table ? table->CodeOf(static_cast<double>(element), {})
                                       : CodeOf(format, element);
    for (std::size_t k = 0; k < bytes; ++k) codes.push_back(static_cast<std::byte>(code >> 8 * k));
  }
  to.Add(name + kCodesEnding,
         bytes == 2          ? DType::kU16
         : IsInteger(format) ? DType::kI8
                             : DType::kU8,
         shape, std::move(codes));
}

// --- Block-scaled formats ---

BlockTensor BlocksOf(const OperandMatrix& operand, const BlockFormat& format,
                     const std::vector<std::int64_t>& shape) {
  BlockTensor tensor;
  tensor.shape = operand.laid_across && !format.square
                     ? shape
                     : std::vector<std::int64_t>{operand.rows, operand.columns};
  tensor.axis = operand.laid_across ? tensor.shape.size() - 1 : 0;
  tensor.layout = BlockLayoutOf(tensor.shape, tensor.axis, format.square);
  tensor.values = operand.before;
  tensor.amax = AmaxOf(tensor.values) / operand.power;
  tensor.bf16 = operand.bf16;
  return tensor;
}

void AddBlocks(const std::string& name, const OperandMatrix& operand, const BlockFormat& format,
               const std::vector<std::int64_t>& shape, TensorList& to) {
  const ScaledBlocks blocks = QuantizeTensor(BlocksOf(operand, format, shape), format,
                                             operand.words ? &*operand.words : nullptr);
  AddParts(name, format, blocks, shape, to);
}

void AddOperand(Operand operand, const OperandMatrix& matrix,
                const std::vector<std::int64_t>& shape, TensorList& to) {
  const std::string name = NameOf(operand);
  to.Add(name, shape, DecodedOperand(matrix));
  if (!matrix.rounds) return;
  if (const auto* blocks = std::get_if<BlockFormat>(&matrix.format))
    AddBlocks(name, matrix, *blocks, shape, to);
  else
    AddPlain(name, matrix, std::get<NumberFormat>(matrix.format), shape, to);
}

}  // namespace

void WriteMatmuls(const run::LinearMatmuls& m, const std::vector<std::int64_t>& x_shape,
                  bool operands, const std::string& path) {
  TensorList tensors;
  const std::vector<std::int64_t> w_shape = {m.stored.w.rows, m.stored.w.columns};
  const std::vector<std::int64_t> y_shape = WithLast(x_shape, m.stored.w.rows);
  tensors.Add("y", y_shape, m.y.values);
  if (m.stored.dy) {
    tensors.Add("dx", x_shape, m.dx.values);
    tensors.Add("dw", w_shape, m.dw.values);
  }
  for (std::size_t i = 0; operands && i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const bool is_x = operand == Operand::kForwardX || operand == Operand::kDwX;
    if (m.operands[i].rows > 0)
      AddOperand(operand, m.operands[i],
                 IsWeight(operand) ? w_shape
                 : is_x            ? x_shape
                                   : y_shape,
                 tensors);
  }
  SafetensorsWriter writer;
  tensors.GoTo(writer);
  writer.WriteAtomically(path);
}

}  // namespace ada::study

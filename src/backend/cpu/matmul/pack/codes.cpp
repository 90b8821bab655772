// A value is its code times a power of two: what a per-tensor scale multiplied is divided out of
// sums.
#include "backend/cpu/matmul/pack/codes.h"

#include <algorithm>

#include "backend/cpu/matmul/pack/block_rounding.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "error.h"
#include "number/number_grid.h"

namespace ada::backend::cpu {
namespace {

// Values in fp32 whose format needs less may carry a scale that is not known here; a format with a
// table of its values is always kept in fp32.
CodesOf CodesOfTensor(const Tensor& tensor, const scaling::TensorScaler* scale) {
  const bool unknown =
      tensor.storage == Storage::kF32 && scale == nullptr && tensor.format.table == 0;
  return {unknown ? kFp32 : tensor.format, scale};
}

// The tensor that an operand is made of, where it is not rounded once more.
CodesOf Stored(const MatmulSpec& spec, Operand operand) {
  if (IsWeight(operand)) return {spec.w_format, spec.w_style.per_tensor_scale};
  if (operand == Operand::kForwardX || operand == Operand::kDwX)
    return CodesOfTensor(spec.x, spec.x_per_tensor_scale);
  return CodesOfTensor(spec.dy.tensor, spec.dy.style.per_tensor_scale);
}

}  // namespace

int CodesOf::least() const { return std::max(LowestExponentOf(format), -126); }

// Decoded values of blocks are numbers of bf16 with any exponent where their scales are powers of
// two or fp8 numbers.
CodesOf CodesOfOperand(const MatmulSpec& spec, Operand operand) {
  const OperandRounding& rounding = spec.operands[IndexOf(operand)];
  if (!rounding.rounds) return Stored(spec, operand);
  if (rounding.block) {
    const BlockFormat& format = *rounding.block;
    const bool of_tensor = format.tensor_scale && !BlockRounding::LeavesFactor(format);
    if (format.row_scaled || of_tensor)
      throw ConfigError("precision.accumulate: layer " + spec.layer + ": " + NameOf(operand) +
                        " is in " + FormatName(AnyFormat(format)) +
                        ", whose rows or tensors have scales that are no powers of two; an "
                        "accumulator adds codes, and of such blocks these are not kept");
    if (format.scale == BlockScale::kFp32) return {format.element, nullptr, format.block};
    return {kBf16, nullptr};
  }
  if (rounding.row_scaled) return {rounding.format, nullptr, CodesOf::kLine};
  return {rounding.format, rounding.style.per_tensor_scale};
}

bool KeepsScales(const MatmulSpec& spec, Operand operand) {
  const OperandRounding& rounding = spec.operands[IndexOf(operand)];
  const bool blocks = rounding.block && rounding.block->scale == BlockScale::kFp32;
  if (!blocks && !rounding.row_scaled) return false;
  const ProductSums& sums = spec.sums[IndexOf(operand) / 2];  // each product has two operands
  return sums.rule.has_value() || !sums.judged.empty();
}

// A product is below 4 times the power of its exponent; sums of k of them, and promotions, stay
// below 2^125.
bool FitVectors(const CodesOf& a, const CodesOf& b, int largest_a, int largest_b, std::int64_t k) {
  const int digits = a.format.mantissa_bits + b.format.mantissa_bits + 2;
  const int length = k > 1 ? 64 - __builtin_clzll(static_cast<unsigned long long>(k - 1)) : 0;
  return digits <= 24 && largest_a < 128 && largest_b < 128 &&
         largest_a + largest_b + 2 + length <= 124;
}

int ToCodes(const Context& context, const CodesOf& codes, TensorSpan from, std::int64_t n,
            float* values, std::int16_t* exponents, const float* scales) {
  const Kernels& kernels = context.kernels;
  kernels.widen(from, values, n);
  if (codes.scale != nullptr)
    kernels.round(values, codes.scale->scale, {values, Storage::kF32}, n, RoundOnly(codes.format));
  if (scales != nullptr) {
    for (std::int64_t i = 0; i < n; ++i) values[i] = scales[i] != 0 ? values[i] / scales[i] : 0.0f;
    kernels.round(values, 1.0f, {values, Storage::kF32}, n, RoundOnly(codes.format));
  }
  return AccumulateKernelsOf(kernels).exponents(values, n, codes.least(), exponents);
}

}  // namespace ada::backend::cpu

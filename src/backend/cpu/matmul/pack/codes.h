// Operands as codes: what an accumulator adds. Values of a tensor with a per-tensor scale are
// multiplied by it, which brings them back to numbers of their format; its inverse is a factor of
// the sums.
#pragma once
#include <cstdint>

#include "backend/cpu/accumulate_kernels.h"
#include "backend/cpu/context.h"
#include "number/number_format.h"

namespace ada::backend::cpu {

// How the codes of one operand follow from its values as they are multiplied.
struct CodesOf {
  NumberFormat format = kFp32;                   // of the codes
  const scaling::TensorScaler* scale = nullptr;  // null: values are codes
  // Values along the sum that share a scale, which is no power of two (fp32); 0: there is none.
  // kLine: all that lie in one tap, or in dw the whole sum.
  std::int64_t block = 0;
  static constexpr std::int64_t kLine = std::int64_t{1} << 40;
  bool in_blocks() const { return block != 0 && block != kLine; }

  int least() const;  // the exponent of the smallest normal code
  // The factor that brings a code back to its value.
  float inverse() const { return scale != nullptr ? 1 / scale->scale : 1; }
};
// Whether the scales of an operand's blocks or rows have to be kept: its product adds codes, and
// the scales may be no powers of two.
bool KeepsScales(const MatmulSpec& spec, Operand operand);
// Returns those of an operand of `spec`, as its matmuls read it.
CodesOf CodesOfOperand(const MatmulSpec& spec, Operand operand);

// Whether kernels for vectors may add products of codes whose exponents are at most so large.
bool FitVectors(const CodesOf& a, const CodesOf& b, int largest_a, int largest_b, std::int64_t k);

// n values of any storage as codes in fp32, with their exponents; returns the largest exponent.
// scales: of each value, where codes have blocks.
int ToCodes(const Context& context, const CodesOf& codes, TensorSpan from, std::int64_t n,
            float* values, std::int16_t* exponents, const float* scales = nullptr);

}  // namespace ada::backend::cpu

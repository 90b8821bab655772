// What is done to an operand besides its rounding: the Hadamard transform (backend/hadamard.h),
// scales of its rows, and codes, which an accumulator adds.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/communicators.h"
#include "backend/cpu/accumulate_kernels.h"
#include "backend/cpu/context.h"
#include "backend/cpu/kernels.h"
#include "backend/operand_rows.h"
#include "backend/spec_parts.h"
#include "number/blocks/block_quantizer.h"
#include "number/number_format.h"

namespace ada::backend::cpu {

// As HadamardOfLines, with the same bits.
void TransformLines(const Kernels& kernels, const std::vector<float>& signs,
                    const BlockLayout& layout, float* values);

// One for each operand with such scales. Measure comes first in every pass; Round may then be
// called by all workers.
class RowScales {
 public:
  // bf16: the values are stored as bf16.
  RowScales(const Context& context, const OperandRounding& operand, const OperandRows& rows,
            bool bf16);
  // rows: of `from`. shared: who else has parts of rows that run down the batch; null: nobody.
  void Measure(TensorSpan from, std::int64_t rows, parallel::Communicator* shared);
  // Each Round fills its part of `to` with the factor that brings each value's code back.
  void KeepScales(float* to) { kept_ = to; }
  // The bytes of memory that Round needs for `values` values.
  static std::size_t Bytes(std::size_t values) { return 2 * WholeLines(values * sizeof(float)); }
  // Rounds the `n` values from number `first` on, in fp32, as `rounding` says but for its scale,
  // and counts as for a tensor with a scale: extremes and moments without it. `to` is fp32 too.
  void Round(std::int64_t first, std::int64_t n, const float* from, const Rounding& rounding,
             std::byte* memory, float* to) const;

  // Rounds `n` values, each under the scale that is given for it, as Round does.
  static void RoundEach(const Kernels& kernels, const scaling::TensorScaleRule& rule,
                        const float* encodes, const float* decodes, std::int64_t n,
                        const float* from, const Rounding& rounding, float* to);

 private:
  void Spread(std::int64_t first, std::int64_t n, float* encodes, float* decodes) const;
  std::int64_t LineOf(std::int64_t row, std::int64_t column) const;

  Context context_;
  scaling::TensorScaleRule rule_;
  OperandRows rows_;
  bool bf16_;
  float* kept_ = nullptr;
  std::int64_t step_;                      // rows that one worker measures at once
  std::vector<scaling::RowScale> scales_;  // by LineOf
};

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

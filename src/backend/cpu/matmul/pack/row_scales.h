// A scale for each row of an operand along the matmul's sum (kind `row`): found in one pass over
// the values; then each value is rounded under that of its row.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/communicators.h"
#include "backend/cpu/context.h"
#include "backend/operand_rows.h"
#include "backend/spec_parts.h"

namespace ada::backend::cpu {

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

}  // namespace ada::backend::cpu

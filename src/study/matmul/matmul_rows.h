// The parts of the command matmul: what its rows say, and what it writes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"
#include "run/matmuls/linear_matmuls.h"
#include "study/commands.h"
#include "telemetry/block_figures.h"

namespace ada::study {

// One operand of a matmul, or (tensor y, dx or dw) its result.
// A value of a result is lost if it is zero and its exact sum is not, and saturated if it is not
// finite and that is. Blocks and scales are of operands.
struct MatmulRow : telemetry::BlockFigures {
  std::string matmul, tensor, format;  // forward, x, fp8_e4m3
  std::int64_t rows = 0, columns = 0;
  std::int64_t terms = 0;  // of one sum
  // Results alone have these, in decibels: exact sums of the operands as they were taken against
  // exact sums of what is stored; and the result against exact sums of the operands as they were
  // taken.
  double operands_sqnr_db = NAN, sums_sqnr_db = NAN;
  double max_rel = NAN;  // the largest error of the sums, over the sum of magnitudes
  double bias = NAN;     // the mean of their signed errors over the mean magnitude of exact sums
  // A result says how its sums were made, and how many products other than zero there were and an
  // accumulator cut to zero.
  std::string accumulator;
  std::int64_t products = 0, swallowed = 0;
  double swallowed_pct = NAN;
  bool is_result = false;

  static constexpr auto Columns() {
    using enum telemetry::ColumnTraits;
    return telemetry::Joined(
        telemetry::Joined(std::to_array<telemetry::Column<MatmulRow>>({
                              {"matmul", &MatmulRow::matmul},
                              {"tensor", &MatmulRow::tensor},
                              {"format", &MatmulRow::format},
                              {"rows", &MatmulRow::rows},
                              {"columns", &MatmulRow::columns},
                              {"terms", &MatmulRow::terms},
                          }),
                          telemetry::BlockColumns<MatmulRow>()),
        std::to_array<telemetry::Column<MatmulRow>>({
            {"operands_sqnr_db", &MatmulRow::operands_sqnr_db, kPlain | kEmptyNan},
            {"sums_sqnr_db", &MatmulRow::sums_sqnr_db, kPlain | kEmptyNan},
            {"max_rel", &MatmulRow::max_rel, kPlain | kEmptyNan},
            {"bias", &MatmulRow::bias, kPlain | kEmptyNan},
            {"accumulator", &MatmulRow::accumulator},
            {"products", &MatmulRow::products},
            {"swallowed", &MatmulRow::swallowed},
            {"swallowed_pct", &MatmulRow::swallowed_pct, kPlain | kEmptyNan},
        }));
  }
};

// The rows of each matmul: its operands, then its result. Exact sums are double: products of two
// fp32 values are exact in it, and sums err by 2^-53 of the sum of magnitudes for each addition.
std::vector<MatmulRow> RowsOf(const run::LinearMatmuls& matmuls);

// Writes y, dx and dw, and with `operands` what each matmul took, as MatmulOptions says.
// x_shape: that of the file's x, whose leading axes y and dx have.
void WriteMatmuls(const run::LinearMatmuls& matmuls, const std::vector<std::int64_t>& x_shape,
                  bool operands, const std::string& path);

}  // namespace ada::study

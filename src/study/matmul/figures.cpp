// What operands and sums of a matmul lose, beside exact sums.
#include <algorithm>
#include <cmath>

#include "io/run_in_parallel.h"
#include "judge/serving.h"
#include "study/matmul/matmul_rows.h"

namespace ada::study {
namespace {

using run::OperandMatrix;
using run::StoredMatrix;

// One matmul as the layer computed it: result [m, n] = sum over k of a b, where a and b are the
// operands with rows m and n and columns k.
struct MatmulView {
  const char* name;         // forward
  const char* tensors[2];   // x, w
  const char* result_name;  // y
  const OperandMatrix *a, *b;
  const StoredMatrix *stored_a, *stored_b, *result;
  const run::MatmulSums* sums;
};

// A matrix in double whose columns are the terms of the sums.
struct Terms {
  std::vector<double> values;
  std::int64_t rows = 0, terms = 0;
  const double* row(std::int64_t i) const { return values.data() + i * terms; }
};

// across: the sums run along the columns of `values`; else along its rows.
Terms TermsOf(const std::vector<float>& values, std::int64_t rows, std::int64_t columns,
              bool across) {
  Terms to{{}, across ? rows : columns, across ? columns : rows};
  to.values.resize(values.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      to.values[static_cast<std::size_t>(across ? r * columns + c : c * rows + r)] =
          static_cast<double>(values[static_cast<std::size_t>(r * columns + c)]);
  return to;
}
Terms TermsOf(const OperandMatrix& matrix) {
  return TermsOf(matrix.values, matrix.rows, matrix.columns, matrix.across);
}

struct ExactSums {
  std::vector<double> sums, magnitudes;  // [rows of a, rows of b]; the sums of |a b|
};

// Terms are added in their order, four sums at once: a compiler may not reorder them. The factor
// comes last, so that products are exact and sums that are zero are so.
ExactSums MultiplyExactly(const Terms& a, const Terms& b, double factor = 1) {
  constexpr std::int64_t kRows = 4;
  ExactSums to;
  to.sums.resize(static_cast<std::size_t>(a.rows * b.rows));
  to.magnitudes.resize(to.sums.size());
  RunRangesInParallel(a.rows, kRows, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t n = 0; n < b.rows; ++n) {
      const double* y = b.row(n);
      double sums[kRows] = {}, magnitudes[kRows] = {};
      for (std::int64_t k = 0; k < a.terms; ++k)
        for (std::int64_t m = first; m < last; ++m) {
          const double product = a.row(m)[k] * y[k];
          sums[m - first] += product, magnitudes[m - first] += std::fabs(product);
        }
      for (std::int64_t m = first; m < last; ++m) {
        const auto at = static_cast<std::size_t>(m * b.rows + n);
        to.sums[at] = sums[m - first] * factor, to.magnitudes[at] = magnitudes[m - first] * factor;
      }
    }
  });
  return to;
}

// Places where either is not finite are left out: they are counted by themselves.
template <class Values, class Exact>
double SqnrOf(const Values& values, const Exact& exact) {
  double signal = 0, noise = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto is = static_cast<double>(values[i]), wanted = static_cast<double>(exact[i]);
    if (!std::isfinite(is) || !std::isfinite(wanted)) continue;
    signal += wanted * wanted, noise += (is - wanted) * (is - wanted);
  }
  return judge::DecibelsOf(signal, noise);
}

// Takes what the rounding to a plain format counted, and the scales where it has such.
void TakePlain(const OperandMatrix& operand, telemetry::BlockFigures& figures) {
  const TensorStats& stats = operand.stats;
  figures.numel = static_cast<std::int64_t>(operand.before.size());
  if (operand.rounds) {
    figures.zeros = stats.zeros_before, figures.inf = stats.inf, figures.nan = stats.nan;
    figures.lost = stats.underflow, figures.saturated = stats.overflow;
  } else {
    for (const float x : operand.before)
      figures.zeros += x == 0, figures.inf += std::isinf(x), figures.nan += std::isnan(x);
  }
  figures.lost_pct_nonzero = PercentOf(figures.lost, figures.numel - figures.zeros);
  double sum = 0, square = 0;
  std::int64_t count = 0;
  for (const scaling::RowScale& scale : operand.scales) {
    const double log2 = std::log2(static_cast<double>(scale.decode));
    if (!std::isfinite(log2)) continue;
    figures.scale_log2_min = count == 0 ? log2 : std::min(figures.scale_log2_min, log2);
    figures.scale_log2_max = count == 0 ? log2 : std::max(figures.scale_log2_max, log2);
    sum += log2, square += log2 * log2, ++count;
  }
  if (count == 0) return;
  const double mean = sum / static_cast<double>(count);
  figures.scale_log2_mean = mean;
  figures.scale_log2_std =
      std::sqrt(std::max(0.0, square / static_cast<double>(count) - mean * mean));
}

MatmulRow RowOf(const MatmulView& view, const char* tensor, const OperandMatrix& operand) {
  MatmulRow row;
  row.matmul = view.name, row.tensor = tensor, row.format = FormatName(operand.format);
  row.rows = operand.rows, row.columns = operand.columns;
  row.terms = operand.across ? operand.columns : operand.rows;
  if (std::holds_alternative<BlockFormat>(operand.format))
    row.Take(operand.blocks);
  else
    TakePlain(operand, row);
  std::vector<double> values(operand.values.begin(), operand.values.end());
  for (double& x : values) x *= operand.factor;
  row.sqnr_db = SqnrOf(values, operand.before);
  return row;
}

// What the sums lost of `exact`, and what they and the operands lost of `stored`.
MatmulRow ResultRow(const MatmulView& view, const ExactSums& exact, const ExactSums& stored) {
  const StoredMatrix& result = *view.result;
  MatmulRow row;
  row.matmul = view.name, row.tensor = view.result_name, row.format = FormatName(result.format);
  row.rows = result.rows, row.columns = result.columns;
  row.terms = view.a->across ? view.a->columns : view.a->rows;
  row.is_result = true;
  row.numel = static_cast<std::int64_t>(result.values.size());
  double errors = 0, magnitudes = 0, largest = NAN;
  for (std::size_t i = 0; i < result.values.size(); ++i) {
    const auto is = static_cast<double>(result.values[i]);
    row.zeros += exact.sums[i] == 0, row.inf += std::isinf(is), row.nan += std::isnan(is);
    if (!std::isfinite(exact.sums[i])) continue;
    row.lost += is == 0 && exact.sums[i] != 0;
    row.saturated += !std::isfinite(is);
    if (!std::isfinite(is)) continue;
    const double error = is - exact.sums[i];
    errors += error, magnitudes += std::fabs(exact.sums[i]);
    if (exact.magnitudes[i] > 0)
      largest = std::fmax(largest, std::fabs(error) / exact.magnitudes[i]);
  }
  row.lost_pct_nonzero = PercentOf(row.lost, row.numel - row.zeros);
  row.max_rel = largest;
  if (magnitudes > 0) row.bias = errors / magnitudes;
  row.operands_sqnr_db = SqnrOf(exact.sums, stored.sums);
  row.sums_sqnr_db = SqnrOf(result.values, exact.sums);
  row.sqnr_db = SqnrOf(result.values, stored.sums);
  row.accumulator = view.sums->rule ? scaling::AccumulatorText(*view.sums->rule) : "fp32";
  if (!view.sums->rule) return row;
  const scaling::AccumulatorCounts& counts = view.sums->counts;
  row.products = counts.products, row.swallowed = counts.swallowed;
  row.swallowed_pct = counts.swallowed_pct();
  return row;
}

void AddRows(const MatmulView& view, std::vector<MatmulRow>& to) {
  const auto of_stored = [](const StoredMatrix& matrix, bool across) {
    return TermsOf(matrix.values, matrix.rows, matrix.columns, across);
  };
  const ExactSums exact =
      MultiplyExactly(TermsOf(*view.a), TermsOf(*view.b), view.a->factor * view.b->factor);
  const ExactSums stored = MultiplyExactly(of_stored(*view.stored_a, view.a->across),
                                           of_stored(*view.stored_b, view.b->across));
  to.push_back(RowOf(view, view.tensors[0], *view.a));
  to.push_back(RowOf(view, view.tensors[1], *view.b));
  to.push_back(ResultRow(view, exact, stored));
}

}  // namespace

std::vector<MatmulRow> RowsOf(const run::LinearMatmuls& m) {
  const auto of = [&](Operand operand) { return &m.operands[IndexOf(operand)]; };
  using enum Operand;
  const run::StoredMatrix *x = &m.stored.x, *w = &m.stored.w, *dy = &m.stored.dy;
  std::vector<MatmulRow> rows;
  AddRows({"forward", {"x", "w"}, "y", of(kForwardX), of(kForwardW), x, w, &m.y, &m.sums[0]}, rows);
  if (!*dy) return rows;
  AddRows({"dx", {"dy", "w"}, "dx", of(kDxDy), of(kDxW), dy, w, &m.dx, &m.sums[1]}, rows);
  AddRows({"dw", {"dy", "x"}, "dw", of(kDwDy), of(kDwX), dy, x, &m.dw, &m.sums[2]}, rows);
  return rows;
}

}  // namespace ada::study

// Rows and columns are summed in fixed blocks, so any number of threads gives the same bytes.
#include "backend/cpu/ops/matrix_updates.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/sequence_kernels.h"

namespace ada::backend::cpu {
namespace {

// The sum of body(i) over n values, in double and in segments whose sums are added in their order.
template <class Body>
double SumOf(const Context& context, std::int64_t n, const Body& body) {
  std::vector<double> sums(static_cast<std::size_t>(Segments(n)));
  context.pool.For(Segments(n), [&](std::int64_t segment, int) {
    double sum = 0;
    const std::int64_t end = std::min(n, (segment + 1) * kSegment);
    for (std::int64_t i = segment * kSegment; i < end; ++i) sum += body(i);
    sums[static_cast<std::size_t>(segment)] = sum;
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}
template <class Body>
void ForAll(const Context& context, std::int64_t n, const Body& body) {
  context.pool.For(Segments(n), [&](std::int64_t segment, int) {
    const std::int64_t end = std::min(n, (segment + 1) * kSegment);
    for (std::int64_t i = segment * kSegment; i < end; ++i) body(i);
  });
}
double Square(float x) { return static_cast<double>(x) * static_cast<double>(x); }
float Lerp(float from, float to, float share) { return Unrounded().Lerp(from, to, share); }

// The mean squares of rows and of columns, and the averages of them that the next steps start from.
void AverageRowsAndColumns(const Context& context, const MatrixUpdate& u, float factor,
                           float share) {
  const MatrixShape& m = u.slot->matrix;
  const float* gradient = u.slot->gradient.f32();
  const auto at = [&](std::int64_t i) { return Square(gradient[i] * factor); };
  float *rows = u.slot->state1.f32(), *columns = u.slot->state2.f32();
  context.pool.For(m.count * m.rows, [&](std::int64_t row, int) {
    double sum = 0;
    for (std::int64_t c = 0; c < m.columns; ++c) sum += at(row * m.columns + c);
    rows[row] = Lerp(rows[row], static_cast<float>(sum / static_cast<double>(m.columns)), share);
  });
  // A worker takes a strip of columns, down all rows.
  constexpr std::int64_t kStrip = 64;
  const std::int64_t strips = (m.columns + kStrip - 1) / kStrip;
  context.pool.For(m.count * strips, [&](std::int64_t item, int) {
    const std::int64_t matrix = item / strips, begin = item % strips * kStrip;
    const std::int64_t end = std::min(begin + kStrip, m.columns);
    double sums[kStrip] = {};
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t c = begin; c < end; ++c)
        sums[c - begin] += at((matrix * m.rows + r) * m.columns + c);
    for (std::int64_t c = begin; c < end; ++c) {
      float& average = columns[matrix * m.columns + c];
      average =
          Lerp(average, static_cast<float>(sums[c - begin] / static_cast<double>(m.rows)), share);
    }
  });
}

// The estimated mean square of each gradient goes to u.change.
void EstimateSquares(const Context& context, const MatrixUpdate& u, float factor, float share) {
  const std::int64_t n = u.slot->value.shape.numel();
  const MatrixShape& m = u.slot->matrix;
  const float* gradient = u.slot->gradient.f32();
  if (m.rows == 0) {
    float* average = u.slot->state1.f32();
    ForAll(context, n, [&](std::int64_t i) {
      const float g = gradient[i] * factor;
      u.change[i] = average[i] = Lerp(average[i], g * g, share);
    });
    return;
  }
  AverageRowsAndColumns(context, u, factor, share);
  const float *rows = u.slot->state1.f32(), *columns = u.slot->state2.f32();
  std::vector<float> means(static_cast<std::size_t>(m.count));
  for (std::int64_t matrix = 0; matrix < m.count; ++matrix) {
    double sum = 0;
    for (std::int64_t r = 0; r < m.rows; ++r) sum += static_cast<double>(rows[matrix * m.rows + r]);
    means[static_cast<std::size_t>(matrix)] =
        std::max(static_cast<float>(sum / static_cast<double>(m.rows)), FLT_EPSILON);
  }
  context.pool.For(m.count * m.rows, [&](std::int64_t row, int) {
    const std::int64_t matrix = row / m.rows;
    const float mean = means[static_cast<std::size_t>(matrix)];
    for (std::int64_t c = 0; c < m.columns; ++c)
      u.change[row * m.columns + c] = rows[row] * columns[matrix * m.columns + c] / mean;
  });
}

}  // namespace

void Adafactor(const Context& context, const MatrixUpdate& u) {
  constexpr float kLeastSquare = FLT_EPSILON * FLT_EPSILON;
  constexpr double kLeastScale = 1e-3;  // torch's second epsilon
  const std::int64_t n = u.slot->value.shape.numel();
  const auto values = static_cast<double>(n), count = static_cast<double>(u.step.count);
  const double root_mean_square =
      std::sqrt(SumOf(context, n, [&](std::int64_t i) { return Square(u.master[i]); }) / values);
  const double rate =
      std::max(kLeastScale, root_mean_square) * std::min(u.step.lr, 1 / std::sqrt(count));
  const UpdateScalars s = MakeUpdateScalars(*u.rule, u.step);
  EstimateSquares(context, u, s.gradient_factor,
                  static_cast<float>(std::pow(count, u.rule->beta2_decay)));
  const float* gradient = u.slot->gradient.f32();
  ForAll(context, n, [&](std::int64_t i) {
    const float square = std::max(u.change[i], kLeastSquare);
    u.change[i] = gradient[i] * s.gradient_factor / std::sqrt(square);
    u.base[i] = u.master[i] * s.keep;
  });
  const double norm =
      std::sqrt(SumOf(context, n, [&](std::int64_t i) { return Square(u.change[i]); }));
  const double denominator = std::max(1.0, norm / (std::sqrt(values) * u.rule->clip));
  const float factor = static_cast<float>(-rate / denominator);
  ForAll(context, n, [&](std::int64_t i) { u.change[i] *= factor; });
}

namespace {

constexpr std::int64_t kWide = 16;  // columns come in so many
std::int64_t Padded(std::int64_t columns) { return (columns + kWide - 1) / kWide * kWide; }

// c [rows, columns] = a [rows, terms] b [terms, columns]; rows lie Padded apart. Workers take
// blocks of rows and strips of columns; each sum is one worker's, in the order of terms. symmetric:
// c is, and what lies below the diagonal is copied from above it, where the same products are
// added.
void Product(const Context& context, const float* a, const float* b, float* c, std::int64_t rows,
             std::int64_t columns, std::int64_t terms, bool symmetric = false) {
  constexpr std::int64_t kRows = 48, kColumns = 192;
  const std::int64_t a_row = Padded(terms), c_row = Padded(columns);
  const std::int64_t across = (c_row + kColumns - 1) / kColumns;
  const SequenceKernels& kernels = SequenceKernelsOf(context.kernels);
  context.pool.For((rows + kRows - 1) / kRows * across, [&](std::int64_t item, int) {
    const std::int64_t row = item / across * kRows, column = item % across * kColumns;
    if (symmetric && column + kColumns <= row) return;
    MatrixArgs args;
    args.a = a + row * a_row, args.b = b + column, args.c = c + row * c_row + column;
    args.rows = std::min(kRows, rows - row);
    args.columns = std::min(kColumns, c_row - column);
    args.terms = terms, args.a_row = a_row, args.b_term = c_row, args.c_row = c_row;
    kernels.matrix(args);
  });
  if (!symmetric) return;
  context.pool.For(rows, [&](std::int64_t row, int) {
    for (std::int64_t column = 0; column < row; ++column)
      c[row * c_row + column] = c[column * c_row + row];
  });
}

}  // namespace

void NewtonSchulz(const Context& context, const UpdateRule& rule, std::int64_t rows,
                  std::int64_t columns, float* matrix, NewtonSchulzMemory& memory) {
  const RoundedTo round{GridOf(rule.ns_format)};
  const bool tall = rows > columns;
  const std::int64_t m = std::min(rows, columns), n = std::max(rows, columns);
  const std::int64_t wide = Padded(n), narrow = Padded(m);
  const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  memory.x.assign(size(m, wide), 0), memory.product.assign(size(m, wide), 0);
  memory.transposed.assign(size(n, narrow), 0);
  memory.gram.assign(size(m, narrow), 0), memory.polynomial.assign(size(m, narrow), 0);
  float *x = memory.x.data(), *product = memory.product.data();
  float *gram = memory.gram.data(), *polynomial = memory.polynomial.data();
  const auto at = [&](std::int64_t r, std::int64_t c) -> float& {
    return matrix[tall ? c * columns + r : r * columns + c];
  };
  for (std::int64_t r = 0; r < m; ++r)
    for (std::int64_t c = 0; c < n; ++c) x[r * wide + c] = round(at(r, c));
  const double square = SumOf(context, m * wide, [&](std::int64_t i) { return Square(x[i]); });
  const float epsilon = static_cast<float>(rule.epsilon);
  const float norm = std::max(round(static_cast<float>(std::sqrt(square))), round(epsilon));
  ForAll(context, m * wide, [&](std::int64_t i) { x[i] = round(x[i] / norm); });
  const auto [a, b, c] = rule.ns_coefficients;
  const float linear = static_cast<float>(a), cubic = static_cast<float>(b),
              quintic = static_cast<float>(c);
  const SequenceKernels& kernels = SequenceKernelsOf(context.kernels);
  for (int step = 0; step < rule.ns_steps; ++step) {
    kernels.transpose(x, m, n, wide, memory.transposed.data(), narrow);
    Product(context, x, memory.transposed.data(), gram, m, m, n, /*symmetric=*/true);
    ForAll(context, m * narrow, [&](std::int64_t i) { gram[i] = round(gram[i]); });
    Product(context, gram, gram, polynomial, m, m, m, /*symmetric=*/true);
    ForAll(context, m * narrow, [&](std::int64_t i) {
      polynomial[i] = round(cubic * gram[i] + quintic * polynomial[i]);
    });
    Product(context, polynomial, x, product, m, n, m);
    ForAll(context, m * wide, [&](std::int64_t i) { x[i] = round(linear * x[i] + product[i]); });
  }
  for (std::int64_t r = 0; r < m; ++r)
    for (std::int64_t c = 0; c < n; ++c) at(r, c) = x[r * wide + c];
}

namespace {

// The factor of the rate by the shape of the matrix (torch/optim/_muon.py, _adjust_lr).
double ShapeFactor(const UpdateRule& rule, const MatrixShape& matrix) {
  const auto rows = static_cast<double>(matrix.rows), columns = static_cast<double>(matrix.columns);
  switch (rule.adjust_lr) {
    case UpdateRule::AdjustLr::kMatchRmsAdamW:
      return 0.2 * std::sqrt(std::max(rows, columns));
    case UpdateRule::AdjustLr::kSpectralUnclamped:
      return std::sqrt(rows / columns);
    default:
      return std::sqrt(std::max(1.0, rows / columns));
  }
}

template <class R>
void MuonUpdate(const Context& context, const MatrixUpdate& u, const R& r,
                NewtonSchulzMemory& memory) {
  const std::int64_t n = u.slot->value.shape.numel();
  const UpdateScalars s = MakeUpdateScalars(*u.rule, u.step);
  const float* gradient = u.slot->gradient.f32();
  const float* buffer = u.slot->state1.f32();
  const auto share = static_cast<float>(1 - u.rule->momentum);
  ForAll(context, n, [&](std::int64_t i) {
    const float g = r(gradient[i] * s.gradient_factor);
    u.state[i] = r.Lerp(buffer[i], g, share);
    u.change[i] = s.nesterov ? r.Lerp(g, u.state[i], s.momentum) : u.state[i];
  });
  NewtonSchulz(context, *u.rule, u.slot->matrix.rows, u.slot->matrix.columns, u.change, memory);
  const auto factor = static_cast<float>(-u.step.lr * ShapeFactor(*u.rule, u.slot->matrix));
  ForAll(context, n, [&](std::int64_t i) {
    u.change[i] = r.Factor(factor) * u.change[i];
    u.base[i] = s.keep != 1 ? r(u.master[i] * s.keep) : u.master[i];
  });
}

}  // namespace

void Muon(const Context& context, const MatrixUpdate& u, NewtonSchulzMemory& memory) {
  if (u.arithmetic != nullptr) return MuonUpdate(context, u, RoundedTo{*u.arithmetic}, memory);
  MuonUpdate(context, u, Unrounded(), memory);
}

}  // namespace ada::backend::cpu

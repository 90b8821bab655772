// See matrix_updates.h.
#include "backend/cpu/ops/matrix_updates.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <vector>

#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/update_args.h"

namespace ada::backend::cpu {
namespace {

double Square(float x) { return static_cast<double>(x) * static_cast<double>(x); }
float Lerp(float from, float to, float share) { return Unrounded().Lerp(from, to, share); }
// The sum of body(i) over n values, in double.
template <class Body>
double SumOf(const Context& context, std::int64_t n, const Body& body) {
  return SumOfSegments(context, n, [&](std::int64_t first, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = first; i < first + count; ++i) sum += body(i);
    return sum;
  });
}

// The averages of mean squares of gradients, by row and by column; the next steps start from them.
void AverageRowsAndColumns(const Context& context, const MatrixUpdate& u, const float* gradient,
                           float share) {
  const MatrixShape& m = u.slot->matrix;
  float *rows = u.slot->state1.f32(), *columns = u.slot->state2.f32();
  context.pool.For(m.count * m.rows, [&](std::int64_t row, int) {
    const double sum = context.kernels.sum_squares(gradient + row * m.columns, m.columns);
    rows[row] = Lerp(rows[row], static_cast<float>(sum / static_cast<double>(m.columns)), share);
  });
  // A worker takes a strip of columns, down all rows.
  constexpr std::int64_t kStrip = 128;
  const std::int64_t strips = (m.columns + kStrip - 1) / kStrip;
  context.pool.For(m.count * strips, [&](std::int64_t item, int) {
    const std::int64_t matrix = item / strips, begin = item % strips * kStrip;
    const std::int64_t count = std::min(kStrip, m.columns - begin);
    double sums[kStrip] = {};
    context.kernels.column_squares(gradient + matrix * m.rows * m.columns + begin, m.rows, count,
                                   m.columns, sums);
    for (std::int64_t c = 0; c < count; ++c) {
      float& average = columns[matrix * m.columns + begin + c];
      average = Lerp(average, static_cast<float>(sums[c] / static_cast<double>(m.rows)), share);
    }
  });
}

// u.change = gradient / root of the estimated mean square. Gives the sum of squares of it.
double DivideByEstimates(const Context& context, const MatrixUpdate& u, const float* gradient,
                         float share, float least) {
  const MatrixShape& m = u.slot->matrix;
  const std::int64_t n = u.slot->value.shape.numel();
  if (m.rows == 0) {
    float* average = u.slot->state1.f32();
    return SumOfSegments(context, n, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = first; i < first + count; ++i) {
        average[i] = Lerp(average[i], gradient[i] * gradient[i], share);
        u.change[i] = gradient[i] / std::sqrt(std::max(average[i], least));
      }
      return context.kernels.sum_squares(u.change + first, count);
    });
  }
  AverageRowsAndColumns(context, u, gradient, share);
  const float *rows = u.slot->state1.f32(), *columns = u.slot->state2.f32();
  std::vector<float> shares(columns, columns + m.count * m.columns);
  for (std::int64_t matrix = 0; matrix < m.count; ++matrix) {
    double sum = 0;
    for (std::int64_t r = 0; r < m.rows; ++r) sum += static_cast<double>(rows[matrix * m.rows + r]);
    const float mean = std::max(static_cast<float>(sum / static_cast<double>(m.rows)), FLT_EPSILON);
    for (std::int64_t c = 0; c < m.columns; ++c)
      shares[static_cast<std::size_t>(matrix * m.columns + c)] /= mean;
  }
  return SumOfSegments(context, n, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first, end = first + count; i < end;) {
      const std::int64_t row = i / m.columns, column = i % m.columns;
      const std::int64_t part = std::min(m.columns - column, end - i);
      context.kernels.divide_by_roots(gradient + i, rows[row],
                                      shares.data() + row / m.rows * m.columns + column, least,
                                      u.change + i, part);
      i += part;
    }
    return context.kernels.sum_squares(u.change + first, count);
  });
}

}  // namespace

void Adafactor(const Context& context, MatrixUpdate& u) {
  constexpr float kLeastSquare = FLT_EPSILON * FLT_EPSILON;
  constexpr double kLeastScale = 1e-3;  // torch's second epsilon
  const std::int64_t n = u.slot->value.shape.numel();
  const auto values = static_cast<double>(n), count = static_cast<double>(u.step.count);
  const double root_mean_square = std::sqrt(SumOfSquares(context, u.base, n) / values);
  const double rate =
      std::max(kLeastScale, root_mean_square) * std::min(u.step.lr, 1 / std::sqrt(count));
  const UpdateScalars s = MakeUpdateScalars(*u.rule, u.step);
  const float* gradient = u.slot->gradient.f32();
  if (s.gradient_factor != 1) {
    ForSegments(context, n, [&](std::int64_t first, std::int64_t of, std::int64_t, int) {
      context.kernels.round(gradient + first, s.gradient_factor, {u.state + first, Storage::kF32},
                            of, RoundOnly(kFp32));
    });
    gradient = u.state;
  }
  const auto share = static_cast<float>(std::pow(count, u.rule->beta2_decay));
  const double norm = std::sqrt(DivideByEstimates(context, u, gradient, share, kLeastSquare));
  const double denominator = std::max(1.0, norm / (std::sqrt(values) * u.rule->clip));
  u.keep = s.keep, u.factor = static_cast<float>(-rate / denominator);
}

void ScaleDirection(const Context& context, const float* squares, MatrixUpdate& u) {
  const std::int64_t n = u.slot->value.shape.numel();
  const UpdateScalars s = MakeUpdateScalars(*u.rule, u.step);
  const auto norm = [&](const float* x) { return std::sqrt(SumOfSquares(context, x, n)); };
  double rate = u.step.lr;
  if (u.rule->kind == UpdateRule::Kind::kLamb) {
    constexpr double kMostNorm = 10;  // pytorch-optimizer's `clamp`
    const double weights = std::min(norm(u.base), kMostNorm), direction = norm(u.change);
    rate /= 1 - std::pow(u.rule->beta1, static_cast<double>(u.step.count));
    if (weights > 0 && direction > 0) rate *= weights / (direction + u.rule->epsilon);
  } else {
    const float least = static_cast<float>(u.rule->epsilon * u.rule->epsilon);
    const float* gradient = u.slot->gradient.f32();
    const double sum = SumOf(context, n, [&](std::int64_t i) {
      const float g = gradient[i] * s.gradient_factor;
      return static_cast<double>(g * g / std::max(squares[i], least));
    });
    rate /= std::max(1.0, std::sqrt(sum / static_cast<double>(n)));
    u.keep = static_cast<float>(1 - rate * u.rule->weight_decay);
  }
  u.factor = static_cast<float>(-rate);
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

// Makes the direction in u.change orthogonal. Where its error is asked for, in fp32 as well.
void Orthogonalize(const Context& context, const MatrixUpdate& u, NewtonSchulzMemory& memory,
                   NewtonSchulzStats* stats) {
  const MatrixShape& matrix = u.slot->matrix;
  const std::int64_t n = u.slot->value.shape.numel();
  if (stats != nullptr) {
    *stats = {};
    UpdateRule wide = *u.rule;
    wide.ns_format = kFp32;
    wide.ns_sums.reset();
    memory.reference.assign(u.change, u.change + n);
    NewtonSchulz(context, wide, matrix.rows, matrix.columns, memory.reference.data(), memory);
  }
  NewtonSchulz(context, *u.rule, matrix.rows, matrix.columns, u.change, memory, stats);
  if (stats == nullptr) return;
  const float* reference = memory.reference.data();
  const double signal = SumOfSquares(context, reference, n);
  const double noise =
      SumOf(context, n, [&](std::int64_t i) { return Square(u.change[i] - reference[i]); });
  stats->mse = noise / static_cast<double>(n);
  stats->sqnr_db = 10 * std::log10(signal / noise);
}

}  // namespace

void Muon(const Context& context, MatrixUpdate& u, NewtonSchulzMemory& memory,
          NewtonSchulzStats* stats) {
  UpdateArgs args;
  args.kind = UpdateRule::Kind::kMuon;
  args.scalars = MakeUpdateScalars(*u.rule, u.step), args.arithmetic = u.arithmetic;
  ForSegments(context, u.slot->value.shape.numel(),
              [&](std::int64_t first, std::int64_t count, std::int64_t, int) {
                UpdateArgs part = args;
                part.gradient = u.slot->gradient.f32() + first, part.n = count;
                part.states[0] = u.state + first, part.step = u.change + first;
                context.kernels.update(part);
              });
  Orthogonalize(context, u, memory, stats);
  const auto rate = static_cast<float>(-u.step.lr * ShapeFactor(*u.rule, u.slot->matrix));
  u.keep = args.scalars.keep;
  u.rounds_base = u.arithmetic != nullptr && u.keep != 1;
  u.factor = u.arithmetic != nullptr ? RoundedTo{{*u.arithmetic}}.Factor(rate) : rate;
  // torch adds a tall matrix, whose result is a transpose, value by value: there the product is
  // rounded before it is added.
  u.rounds_change = u.arithmetic != nullptr && u.slot->matrix.rows > u.slot->matrix.columns;
}

}  // namespace ada::backend::cpu

// Rows and columns are summed in fixed blocks, so any number of threads gives the same bytes.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/matmul/pack/operand_steps.h"
#include "backend/cpu/matmul/plan/panel_sums.h"
#include "backend/cpu/ops/stored_update.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/sequence_kernels.h"
#include "backend/cpu/update_args.h"

namespace ada::backend::cpu {
namespace {

// The sum of what of_segment(first, count) gives for each, in their order.
template <class OfSegment>
double SumOfSegments(const Context& context, std::int64_t n, const OfSegment& of_segment) {
  std::vector<double> sums(static_cast<std::size_t>(Segments(n)));
  ForSegments(context, n, [&](std::int64_t first, std::int64_t count, std::int64_t segment, int) {
    sums[static_cast<std::size_t>(segment)] = of_segment(first, count);
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}
// The sum of body(i) over n values, in double.
template <class Body>
double SumOf(const Context& context, std::int64_t n, const Body& body) {
  return SumOfSegments(context, n, [&](std::int64_t first, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = first; i < first + count; ++i) sum += body(i);
    return sum;
  });
}
double SumOfSquares(const Context& context, const float* x, std::int64_t n) {
  return SumOfSegments(context, n, [&](std::int64_t first, std::int64_t count) {
    return context.kernels.sum_squares(x + first, count);
  });
}
template <class Body>
void ForAll(const Context& context, std::int64_t n, const Body& body) {
  ForSegments(context, n, [&](std::int64_t first, std::int64_t count, std::int64_t, int) {
    for (std::int64_t i = first; i < first + count; ++i) body(i);
  });
}
// factor * x + y, rounded once: a product of two fp32 values is exact in double.
float FusedSum(float factor, float x, float y) {
  return static_cast<float>(static_cast<double>(factor) * static_cast<double>(x) +
                            static_cast<double>(y));
}
double Square(float x) { return static_cast<double>(x) * static_cast<double>(x); }
float Lerp(float from, float to, float share) { return Unrounded().Lerp(from, to, share); }

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
  constexpr std::int64_t kStrip = 64;
  const std::int64_t strips = (m.columns + kStrip - 1) / kStrip;
  context.pool.For(m.count * strips, [&](std::int64_t item, int) {
    const std::int64_t matrix = item / strips, begin = item % strips * kStrip;
    const std::int64_t end = std::min(begin + kStrip, m.columns);
    double sums[kStrip] = {};
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t c = begin; c < end; ++c)
        sums[c - begin] += Square(gradient[(matrix * m.rows + r) * m.columns + c]);
    for (std::int64_t c = begin; c < end; ++c) {
      float& average = columns[matrix * m.columns + c];
      average =
          Lerp(average, static_cast<float>(sums[c - begin] / static_cast<double>(m.rows)), share);
    }
  });
}

// u.change = gradient / root of the estimated mean square, by the kernel of RMSprop, whose average
// is given and stays what it is.
void DivideByRoots(const Context& context, const MatrixUpdate& u, const float* gradient,
                   float* squares, std::int64_t first, std::int64_t n) {
  UpdateArgs args;
  args.kind = UpdateRule::Kind::kRmsprop;
  args.scalars.gradient_factor = args.scalars.beta2 = args.scalars.minus_lr = 1;
  args.n = n;
  args.value = u.base + first, args.step = u.change + first;
  args.gradient = gradient + first, args.states[0] = squares;
  context.kernels.update(args);
}

void DivideByEstimates(const Context& context, const MatrixUpdate& u, const float* gradient,
                       float share, float least) {
  const MatrixShape& m = u.slot->matrix;
  if (m.rows == 0) {
    const std::int64_t n = u.slot->value.shape.numel();
    float* average = u.slot->state1.f32();
    std::vector<float> squares(static_cast<std::size_t>(n));
    ForAll(context, n, [&](std::int64_t i) {
      average[i] = Lerp(average[i], gradient[i] * gradient[i], share);
      squares[static_cast<std::size_t>(i)] = std::max(average[i], least);
    });
    return DivideByRoots(context, u, gradient, squares.data(), 0, n);
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
  context.pool.For(m.count * m.rows, [&](std::int64_t row, int) {
    thread_local std::vector<float> squares;
    squares.resize(static_cast<std::size_t>(m.columns));
    const float *of_columns = shares.data() + row / m.rows * m.columns, of_row = rows[row];
    for (std::int64_t c = 0; c < m.columns; ++c)
      squares[static_cast<std::size_t>(c)] = std::max(of_row * of_columns[c], least);
    DivideByRoots(context, u, gradient, squares.data(), row * m.columns, m.columns);
  });
}

}  // namespace

void Adafactor(const Context& context, const MatrixUpdate& u) {
  constexpr float kLeastSquare = FLT_EPSILON * FLT_EPSILON;
  constexpr double kLeastScale = 1e-3;  // torch's second epsilon
  const std::int64_t n = u.slot->value.shape.numel();
  const auto values = static_cast<double>(n), count = static_cast<double>(u.step.count);
  const double root_mean_square = std::sqrt(SumOfSquares(context, u.master, n) / values);
  const double rate =
      std::max(kLeastScale, root_mean_square) * std::min(u.step.lr, 1 / std::sqrt(count));
  const UpdateScalars s = MakeUpdateScalars(*u.rule, u.step);
  std::vector<float> scaled(static_cast<std::size_t>(s.gradient_factor != 1 ? n : 0));
  const float* gradient = u.slot->gradient.f32();
  float* const to = scaled.data();
  ForAll(context, static_cast<std::int64_t>(scaled.size()),
         [&](std::int64_t i) { to[i] = gradient[i] * s.gradient_factor; });
  if (!scaled.empty()) gradient = to;
  ForAll(context, n, [&](std::int64_t i) { u.base[i] = u.master[i] * s.keep; });
  DivideByEstimates(context, u, gradient, static_cast<float>(std::pow(count, u.rule->beta2_decay)),
                    kLeastSquare);
  const double norm = std::sqrt(SumOfSquares(context, u.change, n));
  const double denominator = std::max(1.0, norm / (std::sqrt(values) * u.rule->clip));
  const float factor = static_cast<float>(-rate / denominator);
  ForAll(context, n, [&](std::int64_t i) { u.change[i] *= factor; });
}

void ScaleDirection(const Context& context, const MatrixUpdate& u, const float* squares) {
  const std::int64_t n = u.slot->value.shape.numel();
  const UpdateScalars s = MakeUpdateScalars(*u.rule, u.step);
  const auto norm = [&](const float* x) { return std::sqrt(SumOfSquares(context, x, n)); };
  double rate = u.step.lr;
  float keep = 1;
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
    keep = static_cast<float>(1 - rate * u.rule->weight_decay);
  }
  const auto factor = static_cast<float>(-rate);
  ForAll(context, n, [&](std::int64_t i) { u.change[i] *= factor, u.base[i] *= keep; });
}

namespace {

constexpr std::int64_t kWide = 16;  // columns come in so many
std::int64_t Padded(std::int64_t columns) { return (columns + kWide - 1) / kWide * kWide; }

// A product of few terms as torch's CPU loop makes it (aten/src/ATen/native/cpu/BlasKernel.cpp):
// each sum is of four sums, of every fourth term. Whether it does, for this many products:
constexpr std::int64_t kFewProducts = 4096;
void SmallProduct(const float* a, const float* b, float* c, std::int64_t rows, std::int64_t columns,
                  std::int64_t terms) {
  const std::int64_t a_row = Padded(terms), c_row = Padded(columns), whole = terms / 4 * 4;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column) {
      float sums[4] = {};
      for (std::int64_t t = 0; t < terms; ++t)
        sums[t < whole ? t % 4 : 0] += a[row * a_row + t] * b[t * c_row + column];
      c[row * c_row + column] = sums[0] + sums[1] + sums[2] + sums[3];
    }
}

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

// Whether this processor has products of bf16 values.
bool HasBf16Products() {
  static const bool has = [] {
    const std::vector<MatmulKernels> kinds = SelectMatmulKernels();
    return std::any_of(kinds.begin(), kinds.end(),
                       [](const MatmulKernels& of) { return !of.on_fp32(); });
  }();
  return has;
}

// The same of bf16 values. Workers take blocks of rows; sums are in oneDNN's order.
void Bf16Product(const Context& context, const float* a, const float* b, float* c,
                 std::int64_t rows, std::int64_t columns, std::int64_t terms,
                 NewtonSchulzMemory& memory) {
  constexpr std::int64_t kRows = 256;
  const std::int64_t a_row = Padded(terms), c_row = Padded(columns);
  const auto narrow = [&](const float* from, std::int64_t n, std::vector<std::uint16_t>& to) {
    to.resize(static_cast<std::size_t>(n));
    ForSegments(context, n, [&](std::int64_t first, std::int64_t count, std::int64_t, int) {
      context.kernels.round(from + first, 1.0f, {to.data() + first, Storage::kBF16}, count,
                            RoundOnly(kBf16));
    });
  };
  narrow(a, rows * a_row, memory.a_bf16);
  if (a != b) narrow(b, terms * c_row, memory.b_bf16);
  const std::uint16_t* const right = (a == b ? memory.a_bf16 : memory.b_bf16).data();
  const std::int64_t blocks = (rows + kRows - 1) / kRows, last = rows - (blocks - 1) * kRows;
  // Made once for each shape, before the workers begin.
  const auto made = [&](std::int64_t of_rows) -> const Bf16Matmul& {
    auto& matmul = memory.bf16_matmuls[{of_rows, c_row, terms}];
    if (matmul == nullptr) matmul = Bf16Matmul::Make(of_rows, c_row, terms, a_row);
    return *matmul;
  };
  const Bf16Matmul &rest = made(last), &whole = blocks > 1 ? made(kRows) : rest;
  context.pool.For(blocks, [&](std::int64_t block, int) {
    const Bf16Matmul& matmul = block + 1 < blocks ? whole : rest;
    matmul.Run(memory.a_bf16.data() + block * kRows * a_row, right, c + block * kRows * c_row);
  });
}

// The same as an accumulator makes the sums, of two matrices whose values are of `format`. Workers
// take blocks of rows and panels of columns. counts: null, or where they are added, in the order of
// blocks and panels.
void AccumulatedMatrix(const Context& context, const scaling::Accumulator& rule,
                       const NumberFormat& format, const float* a, const float* b, float* c,
                       std::int64_t rows, std::int64_t columns, std::int64_t terms,
                       NewtonSchulzMemory& memory, scaling::AccumulatorCounts* counts) {
  constexpr std::int64_t kRows = 48;
  const std::int64_t a_row = Padded(terms), c_row = Padded(columns);
  const AccumulateKernels& kernels = AccumulateKernelsOf(context.kernels);
  const CodesOf codes{format};
  memory.a_exponents.resize(static_cast<std::size_t>(rows * a_row));
  memory.b_exponents.resize(static_cast<std::size_t>(terms * c_row));
  const int largest_a =
      kernels.exponents(a, rows * a_row, codes.least(), memory.a_exponents.data());
  const int largest_b =
      kernels.exponents(b, terms * c_row, codes.least(), memory.b_exponents.data());
  const bool vectors = FitVectors(codes, codes, largest_a, largest_b, terms);
  const std::int64_t panels = c_row / kPanel, blocks = (rows + kRows - 1) / kRows;
  std::vector<scaling::AccumulatorCounts> parts(
      static_cast<std::size_t>(counts != nullptr ? blocks * panels : 0));
  context.pool.For(blocks * panels, [&](std::int64_t item, int) {
    const std::int64_t row = item / panels * kRows, column = item % panels * kPanel;
    const std::int64_t count = std::min(kRows, rows - row);
    std::vector<double> running(PanelSums::bytes(count) / sizeof(double));
    PanelSums sums(rule, reinterpret_cast<std::byte*>(running.data()), count, counts != nullptr,
                   /*blocks=*/false);
    sums.Begin();
    AccumulateArgs args = sums.Args(0, terms, vectors);
    args.a = a + row * a_row, args.a_exponents = memory.a_exponents.data() + row * a_row;
    args.a_row = a_row;
    args.b = b + column, args.b_exponents = memory.b_exponents.data() + column;
    args.b_step = c_row;
    kernels.accumulate(args);
    sums.End(
        std::min<std::int64_t>(kPanel, columns - column),
        counts != nullptr ? &parts[static_cast<std::size_t>(item)] : nullptr,
        [](std::int64_t, std::int64_t) { return 1.0f; },
        [&](std::int64_t r, std::int64_t lane, float sum) {
          c[(row + r) * c_row + column + lane] = sum;
        });
  });
  for (const scaling::AccumulatorCounts& part : parts) counts->Add(part);
}

// One matrix on its way through the iteration, with the shorter side as rows.
class Iteration {
 public:
  Iteration(const Context& context, const UpdateRule& rule, std::int64_t rows, std::int64_t columns,
            NewtonSchulzMemory& memory, NewtonSchulzStats* stats)
      : context_(context),
        kernels_(SequenceKernelsOf(context.kernels)),
        rule_(rule),
        tall_(rows > columns),
        m_(std::min(rows, columns)),
        n_(std::max(rows, columns)),
        wide_(Padded(n_)),
        narrow_(Padded(m_)),
        memory_(memory),
        stats_(stats) {
    const auto size = [](std::int64_t a, std::int64_t b) {
      return static_cast<std::size_t>(a * b);
    };
    memory.x.assign(size(m_, wide_), 0), memory.product.assign(size(m_, wide_), 0);
    memory.transposed.assign(size(n_, narrow_), 0);
    memory.gram.assign(size(m_, narrow_), 0), memory.polynomial.assign(size(m_, narrow_), 0);
    memory.blocks.resize(static_cast<std::size_t>(m_));
    x_ = memory.x.data(), product_ = memory.product.data();
    gram_ = memory.gram.data(), polynomial_ = memory.polynomial.data();
  }

  void Run(float* matrix) {
    const auto at = [&](std::int64_t r, std::int64_t c) -> float& {
      return matrix[tall_ ? c * m_ + r : r * n_ + c];
    };
    ForRows([&](std::int64_t r) {
      for (std::int64_t c = 0; c < n_; ++c) x_[r * wide_ + c] = at(r, c);
    });
    Round(x_, wide_, n_);
    Normalize();
    for (int step = 0; step < rule_.ns_steps; ++step) Step(step == 0);
    if (stats_ != nullptr) MeasureIdentity();
    ForRows([&](std::int64_t r) {
      for (std::int64_t c = 0; c < n_; ++c) at(r, c) = x_[r * wide_ + c];
    });
  }

 private:
  template <class Body>
  void ForRows(const Body& body) {
    context_.pool.For(m_, [&](std::int64_t row, int) { body(row); });
  }
  // values[i] = value(i) for all rows, padding too.
  template <class Value>
  void Fill(float* values, std::int64_t row_size, const Value& value) {
    ForRows([&](std::int64_t row) {
      const std::int64_t end = (row + 1) * row_size;
      for (std::int64_t i = row * row_size; i < end; ++i) values[i] = value(i);
    });
  }
  // Rounds rows of `columns` values and counts them.
  void Round(float* values, std::int64_t row_size, std::int64_t columns) {
    if (rule_.ns_format == kFp32) return;
    ForRows([&](std::int64_t row) { RoundRow(rule_.ns_format, values, row, row_size, columns); });
    if (stats_ == nullptr) return;
    const TensorStats counted = MergeStats(memory_.blocks.data(), m_, /*full=*/true);
    stats_->products =
        stats_->products.numel == 0 ? counted : CombinedStats(stats_->products, counted);
  }
  void RoundRow(const NumberFormat& format, float* values, std::int64_t row, std::int64_t row_size,
                std::int64_t columns) {
    Rounding rounding = RoundOnly(format);
    rounding.count = stats_ != nullptr;
    if (rounding.count) rounding.stats = &memory_.blocks[static_cast<std::size_t>(row)];
    float* const at = values + row * row_size;
    context_.kernels.round(at, 1.0f, {at, Storage::kF32}, columns, rounding);
  }

  void Normalize() {
    const RoundedTo round{GridOf(rule_.ns_format)};
    const double square = SumOfSquares(context_, x_, m_ * wide_);
    const float least = round(static_cast<float>(rule_.epsilon));
    const float norm = std::max(round(static_cast<float>(std::sqrt(square))), least);
    Fill(x_, wide_, [&](std::int64_t i) { return x_[i] / norm; });
    Round(x_, wide_, n_);
  }

  // True if an accumulator makes the sums of this product.
  bool Accumulates(const float* a, const float* b, float* c, std::int64_t columns,
                   std::int64_t terms) {
    if (!rule_.ns_sums) return false;
    AccumulatedMatrix(context_, *rule_.ns_sums, rule_.ns_format, a, b, c, m_, columns, terms,
                      memory_, stats_ != nullptr ? &stats_->sums : nullptr);
    return true;
  }

  // c [m, columns] = a [m, m] b; few: as torch's loop for few products has it.
  void Multiply(const float* a, const float* b, float* c, std::int64_t columns, bool symmetric,
                bool few) {
    if (Accumulates(a, b, c, columns, m_)) return;
    if (few) return SmallProduct(a, b, c, m_, columns, m_);
    Make(a, b, c, columns, m_, symmetric);
  }

  void Make(const float* a, const float* b, float* c, std::int64_t columns, std::int64_t terms,
            bool symmetric) {
    constexpr std::int64_t kLeast = 64;  // rows that are worth the way to bf16
    if (rule_.ns_format == kBf16 && m_ >= kLeast && HasBf16Products())
      return Bf16Product(context_, a, b, c, m_, columns, terms, memory_);
    Product(context_, a, b, c, m_, columns, terms, symmetric);
  }

  void Step(bool first) {
    const auto [a, b, c] = rule_.ns_coefficients;
    const float linear = static_cast<float>(a), cubic = static_cast<float>(b),
                quintic = static_cast<float>(c);
    Transpose();
    if (!Accumulates(x_, memory_.transposed.data(), gram_, m_, n_)) Gram();
    Round(gram_, narrow_, m_);
    Multiply(gram_, gram_, polynomial_, m_, /*symmetric=*/true, m_ * m_ * m_ <= kFewProducts);
    Fill(polynomial_, narrow_,
         [&](std::int64_t i) { return FusedSum(cubic, gram_[i], quintic * polynomial_[i]); });
    Round(polynomial_, narrow_, m_);
    // torch reads the transpose of a tall matrix in the first step, by another loop.
    Multiply(polynomial_, x_, product_, n_, /*symmetric=*/false,
             m_ * n_ * m_ <= kFewProducts && !(tall_ && first));
    Fill(x_, wide_, [&](std::int64_t i) { return FusedSum(linear, x_[i], product_[i]); });
    Round(x_, wide_, n_);
  }
  void Transpose() { kernels_.transpose(x_, m_, n_, wide_, memory_.transposed.data(), narrow_); }
  void Gram() { Make(x_, memory_.transposed.data(), gram_, m_, n_, /*symmetric=*/true); }
  void MeasureIdentity() {
    Transpose();
    Gram();
    ForRows([&](std::int64_t row) {
      gram_[row * narrow_ + row] -= 1;
      RoundRow(kFp32, gram_, row, narrow_, m_);
    });
    stats_->identity = MergeStats(memory_.blocks.data(), m_, /*full=*/true);
  }

  const Context& context_;
  const SequenceKernels& kernels_;
  const UpdateRule& rule_;
  const bool tall_;
  const std::int64_t m_, n_, wide_, narrow_;
  NewtonSchulzMemory& memory_;
  NewtonSchulzStats* const stats_;
  float *x_, *product_, *gram_, *polynomial_;
};

}  // namespace

void NewtonSchulz(const Context& context, const UpdateRule& rule, std::int64_t rows,
                  std::int64_t columns, float* matrix, NewtonSchulzMemory& memory,
                  NewtonSchulzStats* stats) {
  Iteration(context, rule, rows, columns, memory, stats).Run(matrix);
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

// Makes the direction in u.change orthogonal. Where it is counted, in fp32 as well.
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

template <class R>
void MuonUpdate(const Context& context, const MatrixUpdate& u, const R& r,
                NewtonSchulzMemory& memory, NewtonSchulzStats* stats) {
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
  Orthogonalize(context, u, memory, stats);
  const auto factor =
      r.Factor(static_cast<float>(-u.step.lr * ShapeFactor(*u.rule, u.slot->matrix)));
  // torch adds a tall matrix, whose result is a transpose, value by value: there the product is
  // rounded before it is added.
  const bool apart = u.slot->matrix.rows > u.slot->matrix.columns;
  ForAll(context, n, [&](std::int64_t i) {
    const float change = factor * u.change[i];
    u.change[i] = apart ? r(change) : change;
    u.base[i] = s.keep != 1 ? r(u.master[i] * s.keep) : u.master[i];
  });
}

}  // namespace

void Muon(const Context& context, const MatrixUpdate& u, NewtonSchulzMemory& memory,
          NewtonSchulzStats* stats) {
  if (u.arithmetic != nullptr)
    return MuonUpdate(context, u, RoundedTo{*u.arithmetic}, memory, stats);
  MuonUpdate(context, u, Unrounded(), memory, stats);
}

}  // namespace ada::backend::cpu

// Matrices lie with their shorter side as rows. Rows and columns are summed in fixed blocks, so any
// number of threads gives the same bytes.
#include "backend/cpu/ops/newton_schulz.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/matmul/pack/operand_steps.h"
#include "backend/cpu/matmul/plan/panel_sums.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/sequence_kernels.h"

namespace ada::backend::cpu {
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
             std::int64_t columns, std::int64_t terms, bool symmetric) {
  // A strip of so many terms stays in a core's own cache while all rows of a block take it.
  constexpr std::int64_t kRows = 48, kColumns = 192, kTerms = 256;
  const std::int64_t a_row = Padded(terms), c_row = Padded(columns);
  const std::int64_t across = (c_row + kColumns - 1) / kColumns;
  const SequenceKernels& kernels = SequenceKernelsOf(context.kernels);
  context.pool.For((rows + kRows - 1) / kRows * across, [&](std::int64_t item, int) {
    const std::int64_t row = item / across * kRows, column = item % across * kColumns;
    if (symmetric && column + kColumns <= row) return;
    MatrixArgs args;
    args.c = c + row * c_row + column;
    args.rows = std::min(kRows, rows - row);
    args.columns = std::min(kColumns, c_row - column);
    args.a_row = a_row, args.b_term = c_row, args.c_row = c_row;
    for (std::int64_t term = 0; term < terms; term += kTerms) {
      args.a = a + row * a_row + term, args.b = b + term * c_row + column;
      args.terms = std::min(kTerms, terms - term), args.add = term > 0;
      kernels.matrix(args);
    }
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

// The same of bf16 values; transposed: b lies as [columns, terms]. Workers take blocks of rows;
// sums are in oneDNN's order.
void Bf16Product(const Context& context, const std::uint16_t* a, const std::uint16_t* b, float* c,
                 std::int64_t rows, std::int64_t columns, std::int64_t terms, bool transposed,
                 NewtonSchulzMemory& memory) {
  // Few threads share them evenly, and each block is worth the packing of b.
  constexpr std::int64_t kLeast = 32, kMost = 256, kShares = 4;
  const std::int64_t share = (rows / kShares + kLeast - 1) / kLeast * kLeast;
  const std::int64_t block_rows = std::clamp(share, kLeast, kMost);
  const std::int64_t a_row = Padded(terms), c_row = Padded(columns);
  const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
  // Made once for each shape, before the workers begin.
  const auto made = [&](std::int64_t of_rows) -> const Bf16Matmul& {
    auto& matmul = memory.bf16_matmuls[{of_rows, columns, terms, transposed}];
    if (matmul == nullptr)
      matmul = Bf16Matmul::Make({.rows = of_rows,
                                 .columns = columns,
                                 .terms = terms,
                                 .a_row = a_row,
                                 .b_row = transposed ? a_row : c_row,
                                 .c_row = c_row,
                                 .transposed = transposed});
    return *matmul;
  };
  const Bf16Matmul& rest = made(rows - (blocks - 1) * block_rows);
  const Bf16Matmul& whole = blocks > 1 ? made(block_rows) : rest;
  context.pool.For(blocks, [&](std::int64_t block, int) {
    const Bf16Matmul& matmul = block + 1 < blocks ? whole : rest;
    matmul.Run(a + block * block_rows * a_row, b, c + block * block_rows * c_row);
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

// A matrix as it is rounded: rows of `columns` values, `step` apart, zeros between them.
struct RoundedMatrix {
  TensorSpan values;
  std::int64_t columns = 0, step = 0;
  TensorSpan row(std::int64_t r) const { return Advance(values, r * step); }
  const float* f32() const { return static_cast<const float*>(values.data); }
  const std::uint16_t* codes() const { return static_cast<const std::uint16_t*>(values.data); }
};

// One matrix on its way through the iteration.
class Iteration {
 public:
  Iteration(const Context& context, const UpdateRule& rule, std::int64_t rows, std::int64_t columns,
            NewtonSchulzMemory& memory, NewtonSchulzStats* stats)
      : context_(context),
        sequence_(SequenceKernelsOf(context.kernels)),
        rule_(rule),
        tall_(rows > columns),
        m_(std::min(rows, columns)),
        n_(std::max(rows, columns)),
        // A matrix of fewer rows is not worth the way to bf16.
        codes_(rule.ns_format == kBf16 && m_ >= 64 && !rule.ns_sums && HasBf16Products()),
        memory_(memory),
        stats_(stats),
        counts_(stats != nullptr && rule.ns_format != kFp32),
        x_(Make(n_, memory.x)),
        gram_(Make(m_, memory.gram)),
        polynomial_(Make(m_, memory.polynomial)) {
    const auto size = static_cast<std::size_t>(m_ * x_.step);
    if (memory.sums.size() < size) memory.sums.resize(size);
    memory.blocks.resize(static_cast<std::size_t>(m_));
    sums_ = memory.sums.data();
    if (!codes_) memory.transposed.assign(static_cast<std::size_t>(n_ * gram_.step), 0);
  }

  void Run(float* matrix) {
    Load(matrix);
    for (int step = 0; step < rule_.ns_steps; ++step) Step(step == 0);
    if (stats_ != nullptr) MeasureIdentity();
    Store(matrix);
  }

 private:
  RoundedMatrix Make(std::int64_t columns, std::vector<std::byte>& memory) const {
    RoundedMatrix made;
    made.columns = columns, made.step = Padded(columns);
    made.values.storage = codes_ ? Storage::kBF16 : Storage::kF32;
    const std::size_t bytes =
        static_cast<std::size_t>(m_ * made.step) * BytesOf(made.values.storage);
    // What lies between rows has to be zeros; all else is written before it is read.
    if (made.step != columns) memory.assign(bytes, std::byte{});
    if (memory.size() < bytes) memory.resize(bytes);
    made.values.data = memory.data();
    return made;
  }
  // The sums of x, which has the longest rows, as fp32.
  float* SumsOfRow(const RoundedMatrix& to, std::int64_t row) const {
    return sums_ + row * to.step;
  }
  // body(first row, rows) for strips of 16 rows.
  template <class Body>
  void ForStrips(const Body& body) {
    context_.pool.For((m_ + kWide - 1) / kWide, [&](std::int64_t strip, int) {
      body(strip * kWide, std::min(kWide, m_ - strip * kWide));
    });
  }

  // The rounded values of the sums, counted.
  template <class Change>
  void RoundSums(const RoundedMatrix& to, const Change& change) {
    context_.pool.For(m_, [&](std::int64_t row, int) {
      float* const sums = SumsOfRow(to, row);
      change(row, sums);
      RoundRow(rule_.ns_format, sums, row, to.columns, to.row(row), counts_);
    });
    Count();
  }
  void RoundRow(const NumberFormat& format, const float* values, std::int64_t row,
                std::int64_t columns, TensorSpan to, bool counts) {
    Rounding rounding = RoundOnly(format);
    rounding.count = counts;
    if (counts) rounding.stats = &memory_.blocks[static_cast<std::size_t>(row)];
    context_.kernels.round(values, 1.0f, to, columns, rounding);
  }
  // Adds what the rows of the last rounding lost.
  void Count() {
    if (!counts_) return;
    const TensorStats counted = MergeStats(memory_.blocks.data(), m_, /*full=*/true);
    stats_->products =
        stats_->products.numel == 0 ? counted : CombinedStats(stats_->products, counted);
  }

  // x = the matrix over its norm.
  void Load(const float* matrix) {
    ForStrips([&](std::int64_t first, std::int64_t rows) {
      float* const to = SumsOfRow(x_, first);
      if (tall_)
        sequence_.transpose(matrix + first, n_, rows, m_, to, x_.step);
      else
        for (std::int64_t r = 0; r < rows; ++r)
          std::copy_n(matrix + (first + r) * n_, n_, to + r * x_.step);
      for (std::int64_t r = 0; r < rows; ++r) {
        float* const row = to + r * x_.step;
        std::fill(row + n_, row + x_.step, 0.0f);
        RoundRow(rule_.ns_format, row, first + r, n_, {row, Storage::kF32}, counts_);
      }
    });
    Count();
    const RoundedTo round{GridOf(rule_.ns_format)};
    const double square = SumOfSquares(context_, sums_, m_ * x_.step);
    const float least = round(static_cast<float>(rule_.epsilon));
    const float norm = std::max(round(static_cast<float>(std::sqrt(square))), least);
    RoundSums(x_, [&](std::int64_t, float* sums) {
      context_.kernels.unscale(sums, norm, /*add=*/false, sums, n_);
    });
  }
  void Store(float* matrix) {
    ForStrips([&](std::int64_t first, std::int64_t rows) {
      for (std::int64_t r = 0; r < rows; ++r)
        context_.kernels.widen(x_.row(first + r),
                               tall_ ? SumsOfRow(x_, first + r) : matrix + (first + r) * n_, n_);
      if (tall_) sequence_.transpose(SumsOfRow(x_, first), rows, n_, x_.step, matrix + first, m_);
    });
  }

  void Step(bool first) {
    const auto [a, b, c] = rule_.ns_coefficients;
    const float linear = static_cast<float>(a), cubic = static_cast<float>(b),
                quintic = static_cast<float>(c);
    Gram(/*accumulates=*/true);
    RoundSums(gram_, [](std::int64_t, float*) {});
    Multiply(gram_, gram_, /*symmetric=*/true, m_ * m_ * m_ <= kFewProducts);
    RoundSums(polynomial_, [&](std::int64_t row, float* sums) {
      context_.kernels.combine(cubic, gram_.row(row), quintic, sums, m_);
    });
    // torch reads the transpose of a tall matrix in the first step, by another loop.
    Multiply(polynomial_, x_, /*symmetric=*/false,
             m_ * n_ * m_ <= kFewProducts && !(tall_ && first));
    RoundSums(x_, [&](std::int64_t row, float* sums) {
      context_.kernels.combine(linear, x_.row(row), 1, sums, n_);
    });
  }

  // True if an accumulator makes the sums of this product.
  bool Accumulates(const float* a, const float* b, std::int64_t columns, std::int64_t terms) {
    if (!rule_.ns_sums) return false;
    AccumulatedMatrix(context_, *rule_.ns_sums, rule_.ns_format, a, b, sums_, m_, columns, terms,
                      memory_, stats_ != nullptr ? &stats_->sums : nullptr);
    return true;
  }
  // The sums of a [m, m] b; few: as torch's loop for few products has it.
  void Multiply(const RoundedMatrix& a, const RoundedMatrix& b, bool symmetric, bool few) {
    if (codes_)
      return Bf16Product(context_, a.codes(), b.codes(), sums_, m_, b.columns, m_,
                         /*transposed=*/false, memory_);
    if (Accumulates(a.f32(), b.f32(), b.columns, m_)) return;
    if (few) return SmallProduct(a.f32(), b.f32(), sums_, m_, b.columns, m_);
    Product(context_, a.f32(), b.f32(), sums_, m_, b.columns, m_, symmetric);
  }
  // The sums of x x^T.
  void Gram(bool accumulates) {
    if (codes_)
      return Bf16Product(context_, x_.codes(), x_.codes(), sums_, m_, m_, n_, /*transposed=*/true,
                         memory_);
    float* const transposed = memory_.transposed.data();
    ForStrips([&](std::int64_t first, std::int64_t rows) {
      sequence_.transpose(x_.f32() + first * x_.step, rows, n_, x_.step, transposed + first,
                          gram_.step);
    });
    if (accumulates && Accumulates(x_.f32(), transposed, m_, n_)) return;
    Product(context_, x_.f32(), transposed, sums_, m_, m_, n_, /*symmetric=*/true);
  }
  void MeasureIdentity() {
    Gram(/*accumulates=*/false);
    context_.pool.For(m_, [&](std::int64_t row, int) {
      float* const sums = SumsOfRow(gram_, row);
      sums[row] -= 1;
      RoundRow(kFp32, sums, row, m_, {sums, Storage::kF32}, /*counts=*/true);
    });
    stats_->identity = MergeStats(memory_.blocks.data(), m_, /*full=*/true);
  }

  const Context& context_;
  const SequenceKernels& sequence_;
  const UpdateRule& rule_;
  const bool tall_;
  const std::int64_t m_, n_;
  const bool codes_;  // rounded matrices are kept as codes of bf16
  NewtonSchulzMemory& memory_;
  NewtonSchulzStats* const stats_;
  const bool counts_;  // what roundings lose
  RoundedMatrix x_, gram_, polynomial_;
  float* sums_ = nullptr;  // of the last product, as the matrix that it becomes lies
};

}  // namespace

void NewtonSchulz(const Context& context, const UpdateRule& rule, std::int64_t rows,
                  std::int64_t columns, float* matrix, NewtonSchulzMemory& memory,
                  NewtonSchulzStats* stats) {
  Iteration(context, rule, rows, columns, memory, stats).Run(matrix);
}

}  // namespace ada::backend::cpu

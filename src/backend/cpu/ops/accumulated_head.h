// Products of attention whose sums an accumulator makes (AttentionSpec::sums), head by head; or is
// judged by, which makes them in addition and counts alone. Sums
// run over the values of a head (scores, and the gradient of probabilities), over keys (y, dq) and
// over the queries of one query head (dk, dv; of a group of heads they are then added in fp32).
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/cpu/accumulate_kernels.h"
#include "backend/cpu/context.h"
#include "backend/cpu/sequence_kernels.h"

namespace ada::backend::cpu {

// Sums that go on from one block of queries to the next: [panels, rows, kPanel].
struct RunningSums {
  float *part, *main;
  double *exact, *magnitudes;
  double *exact_total, *magnitude_total;  // of complete blocks, with their scales
};
// A worker's memory for such sums. The counts are null where nobody asks for them.
struct SumMemory {
  std::int16_t *a_exponents = nullptr, *b_exponents = nullptr;
  RunningSums once{}, dk{}, dv{};
  scaling::AccumulatorCounts *forward = nullptr, *dx = nullptr;
  // The factors of an operand's rows along the sum, where codes have such; else null. Those of the
  // next block of fp32 scales lie `lines_step` further.
  std::array<const float*, kAttentionOperands> lines{};
  std::int64_t lines_step = 0;
  float *a_codes = nullptr, *b_codes = nullptr, *sink = nullptr;  // of judged sums
};

// Whether an accumulator makes the sums of its matmul, which are of codes then.
bool AddsCodes(const AttentionSpec& spec, AttentionOperand operand);
// Whether the factors of its lines are kept: a scale of rows, blocks or tensors that is no power of
// two, in a matmul that an accumulator adds or is judged by.
bool KeepsLines(const AttentionSpec& spec, AttentionOperand operand);
// The values of such blocks along the sum; 0: there are none.
std::int64_t BlockOfLines(const AttentionSpec& spec, AttentionOperand operand);

class HeadSums {
 public:
  // largest: values of the largest matrices: of a (a block's rows) and of b, and rows of dk and dv.
  struct Sizes {
    std::int64_t a = 0, b = 0, block_rows = 0, keys = 0, columns = 0;
  };
  // judged: a rule of MatmulSums::judged; -1: the sums themselves. Throws ConfigError where a
  // group does not divide a block of queries.
  HeadSums(const Context& context, const AttentionSpec& spec, const Sizes& sizes, int judged = -1);
  bool Makes(scaling::LayerMatmul matmul) const {
    return sums_[scaling::IndexOf(matmul)].rule.has_value();
  }
  bool any() const { return AnyAccumulates(sums_); }
  // The bytes that a worker needs, and its parts.
  std::size_t bytes() const;
  SumMemory Cut(std::byte* memory) const;

  // c = a b. columns: those of c that are not padding. first: the number of c's first row in a.
  void Multiply(scaling::LayerMatmul matmul, AttentionOperand a, AttentionOperand b,
                const MatrixArgs& args, std::int64_t columns, std::int64_t first,
                const SumMemory& m) const;
  // The same of a block of queries, for the sums of `running`, whose first `first` products were of
  // earlier blocks; `last`: the sums are complete and are added to c.
  void Add(AttentionOperand a, AttentionOperand b, const MatrixArgs& args, std::int64_t columns,
           std::int64_t first, bool last, const RunningSums& running, const SumMemory& m) const;

 private:
  struct Codes {
    NumberFormat format;
    int least = 0, digits = 0;
    const scaling::TensorScaler* scale = nullptr;  // that codes carry
    std::int64_t block = 0;                        // of fp32 scales, along the sum
    bool given = true;   // false: what is given are values, with their scales
    bool lines = false;  // rows or blocks have scales, not the tensor alone
  };
  // By what a sum is multiplied: the inverse scales of both operands.
  struct Factor {
    float all;
    const float *rows, *columns;  // null: 1
    float At(std::int64_t row, std::int64_t column) const {
      const float of_row = rows != nullptr ? rows[row] : 1.0f;
      return all * (columns != nullptr ? of_row * columns[column] : of_row);
    }
  };
  // block: the number of the operands' blocks.
  Factor FactorOf(AttentionOperand a, AttentionOperand b, std::int64_t first, std::int64_t block,
                  const SumMemory& m) const;
  static Codes CodesOf(const AttentionSpec& spec, AttentionOperand operand, bool judges);
  // Where lines of memory are terms of the sum, its rows are their values.
  struct Lines {
    std::int64_t count, values, step;
    bool terms;
    std::int64_t first_row, first_term;
  };
  const float* CodesIn(AttentionOperand operand, const float* values, const Lines& lines,
                       const SumMemory& m, float* to) const;
  RunningSums CutSums(std::byte*& memory, std::int64_t rows, std::int64_t columns) const;
  void Begin(const RunningSums& running, std::int64_t values) const;
  // first_row, first: those of the matrix a and of the sum.
  AccumulateArgs Describe(const scaling::Accumulator& rule, AttentionOperand a, AttentionOperand b,
                          const MatrixArgs& args, std::int64_t first_row, std::int64_t first,
                          const SumMemory& m) const;
  AccumulateArgs PanelOf(const AccumulateArgs& all, const RunningSums& running, std::int64_t panel,
                         std::int64_t rows, scaling::AccumulatorCounts* counts) const;
  // Adds the terms from number `first` on to the sums of a panel; by blocks also their scales.
  void AddPanel(AttentionOperand a, AttentionOperand b, const AccumulateArgs& panel,
                std::int64_t first_row, std::int64_t first_column, std::int64_t first, bool last,
                const RunningSums& running, std::int64_t at, const SumMemory& m) const;
  void End(AttentionOperand a, AttentionOperand b, const scaling::Accumulator& rule,
           std::int64_t first_row, std::int64_t panel, std::int64_t rows, std::int64_t columns,
           const RunningSums& running, std::int64_t at, scaling::AccumulatorCounts* counts,
           const SumMemory& m, const MatrixArgs& args) const;
  std::int64_t BlockOf(AttentionOperand a, AttentionOperand b) const {
    return std::max(Of(a).block, Of(b).block);
  }
  const Codes& Of(AttentionOperand operand) const { return codes_[IndexOf(operand)]; }

  const Kernels& round_;
  const AccumulateKernels& kernels_;
  SumsOfMatmuls sums_;
  Sizes sizes_;
  std::array<Codes, kAttentionOperands> codes_;
  bool counts_, judges_, converts_ = false;
};

}  // namespace ada::backend::cpu

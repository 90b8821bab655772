// Products of attention whose sums an accumulator makes (AttentionSpec::sums), head by head. Sums
// run over the values of a head (scores, and the gradient of probabilities), over keys (y, dq) and
// over the queries of one query head (dk, dv; of a group of heads they are then added in fp32).
#pragma once
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
};
// A worker's memory for such sums. The counts are null where nobody asks for them.
struct SumMemory {
  std::int16_t *a_exponents = nullptr, *b_exponents = nullptr;
  RunningSums once{}, dk{}, dv{};
  scaling::AccumulatorCounts *forward = nullptr, *dx = nullptr;
  // The factors of an operand's rows along the sum, where they have scales of their own; else null.
  std::array<const float*, kAttentionOperands> lines{};
};

// Whether an accumulator makes the sums of its product, which are of codes then.
bool AddsCodes(const AttentionSpec& spec, AttentionOperand operand);

class HeadSums {
 public:
  // largest: values of the largest matrices: of a (a block's rows) and of b, and rows of dk and dv.
  struct Sizes {
    std::int64_t a = 0, b = 0, block_rows = 0, keys = 0, columns = 0;
  };
  // Throws ConfigError where a group does not divide a block of queries.
  HeadSums(const Context& context, const AttentionSpec& spec, const Sizes& sizes);
  bool Makes(scaling::Product product) const {
    return sums_[scaling::IndexOf(product)].rule.has_value();
  }
  bool any() const { return AnyAccumulates(sums_); }
  // The bytes that a worker needs, and its parts.
  std::size_t bytes() const;
  SumMemory Cut(std::byte* memory) const;

  // c = a b. columns: those of c that are not padding. first: the number of c's first row in a.
  void Multiply(scaling::Product product, AttentionOperand a, AttentionOperand b,
                const MatrixArgs& args, std::int64_t columns, std::int64_t first,
                const SumMemory& m) const;
  // The same of a block of queries, for the sums of `running`, whose first `first` products were of
  // earlier blocks; `last`: the sums are complete and are added to c.
  void Add(AttentionOperand a, AttentionOperand b, const MatrixArgs& args, std::int64_t columns,
           std::int64_t first, bool last, const RunningSums& running, const SumMemory& m) const;

 private:
  struct Codes {
    int least = 0, digits = 0;
    const scaling::TensorScaler* scale = nullptr;  // that codes carry
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
  Factor FactorOf(AttentionOperand a, AttentionOperand b, std::int64_t first,
                  const SumMemory& m) const;
  static Codes CodesOf(const AttentionSpec& spec, AttentionOperand operand);
  RunningSums CutSums(std::byte*& memory, std::int64_t rows, std::int64_t columns) const;
  void Begin(const RunningSums& running, std::int64_t values) const;
  AccumulateArgs Describe(const scaling::Accumulator& rule, AttentionOperand a, AttentionOperand b,
                          const MatrixArgs& args, std::int64_t length, const SumMemory& m) const;
  AccumulateArgs PanelOf(const AccumulateArgs& all, const RunningSums& running, std::int64_t panel,
                         std::int64_t rows, scaling::AccumulatorCounts* counts) const;
  const Codes& Of(AttentionOperand operand) const { return codes_[IndexOf(operand)]; }

  const AccumulateKernels& kernels_;
  SumsOfProducts sums_;
  Sizes sizes_;
  std::array<Codes, kAttentionOperands> codes_;
  bool counts_;
};

}  // namespace ada::backend::cpu

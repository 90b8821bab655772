// Operands of attention's products, rounded once more (AttentionSpec::attention_operands), or
// judged in other formats: a whole matrix of a head at a time, so that rows and blocks may run down
// it.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/ops/attention_head.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "number/blocks/block_rules_inline.h"

namespace ada::backend::cpu {

// A head's matrix in a worker's memory: rows of `columns` values, `step` apart.
struct HeadMatrix {
  const float* values;
  std::int64_t rows, columns, step;
};

// One for each attention op. Workers call Round at the same time, for different heads.
class HeadOperands {
 public:
  HeadOperands(const Context& context, const AttentionSpec& spec, const AttentionSizes& sizes);
  bool any() const { return any_; }
  bool Rounds(AttentionOperand operand) const { return Of(operand).rounding.rounds; }
  // Whether its scale, or that of its blocks, comes from the largest magnitude of all heads, which
  // then has to be set before Round.
  bool AsksLargest(const Pass& pass, AttentionOperand operand) const;
  void SetLargest(AttentionOperand operand, float largest);

  // to = round(from), laid out as `from`; values beyond its columns become zero. head: of queries,
  // or of keys where the operand is of these. memory: HeadMemory::work. Where an accumulator adds
  // codes, `to` is these; `lines` gets the factors that KeepsLines asks for: of rows along the sum,
  // those of each block `step` after the one before. counts: false where the same head was counted
  // before.
  struct Lines {
    float* factors;
    std::int64_t step;
  };
  void Round(const Pass& pass, AttentionOperand operand, std::int64_t image, std::int64_t head,
             const HeadMatrix& from, float* to, float* memory, const Lines& lines, bool counts);
  // Whether AttentionSpec::judged_operands are counted in this pass.
  bool Judges(const Pass& pass) const { return pass.bins && !judged_.empty(); }
  // Counts what each of these formats would do to a matrix; it and its head as of Round.
  void Judge(AttentionOperand operand, std::int64_t image, std::int64_t head,
             const HeadMatrix& from, float* memory);
  // Joins what the heads of a call counted, of these operands.
  void Finish(const Pass& pass, AttentionOperand first, AttentionOperand last) {
    for (std::size_t i = IndexOf(first); i <= IndexOf(last); ++i) {
      Finish(pass, all_[i]);
      if (Judges(pass)) FinishJudged(pass, i);
    }
  }

 private:
  struct Part {
    BlockCounts counts;
    std::int64_t subnormal = 0;
  };
  struct One {
    OperandRounding rounding;
    RoundingStats stats;
    std::int64_t heads = 1;
    bool down = false;   // the product sums over the matrix's rows
    bool codes = false;  // an accumulator adds them
    bool lines = false;  // KeepsLines
    bool bf16 = false;   // the values to round are stored as bf16
    BlockGrid grid{};    // of blocks
    float largest = 0;
    // A tensor's scale beside those of blocks: what codes carry of it (0: all), what sums are left.
    float tensor_part = 0, factor = 1;
    std::vector<Part> parts;          // of blocks, by image and head
    std::vector<BlockCounts> judged;  // by image and head, then by format
  };
  const One& Of(AttentionOperand operand) const { return all_[IndexOf(operand)]; }
  void Finish(const Pass& pass, One& one);
  void FinishJudged(const Pass& pass, std::size_t operand);
  static BlockLayout LayoutOf(const One& one, const BlockFormat& format, const HeadMatrix& flat);
  // The largest magnitudes that scales of blocks take: of the tensor, or of each row.
  static std::vector<float> AmaxesOf(const One& one, const BlockFormat& format,
                                     const BlockLayout& layout, const HeadMatrix& flat);
  Pass PassOfHeads(const Pass& pass, const One& one) const;
  void RoundRows(const One& one, const Rounding& rounding, const HeadMatrix& flat, float* to,
                 float* memory, float* lines) const;
  void RoundInBlocks(const Pass& pass, One& one, std::int64_t number, const HeadMatrix& flat,
                     float* to, const Lines& lines, bool counts);
  void KeepBlockScales(const One& one, const BlockLayout& layout, const HeadMatrix& flat, float* to,
                       const Lines& lines) const;

  Context context_;
  std::array<One, kAttentionOperands> all_;
  std::vector<JudgedOperands> judged_;
  bool any_;
};

}  // namespace ada::backend::cpu

// Sums by accumulators of operands whose rows or blocks have scales that are no powers of two: with
// an accumulator that loses nothing they are the products of what the operands say, under windows,
// in groups, transposed and of linear layers; with one that does, they stay near.
#include <doctest/doctest.h>

#include "backend/naive_matmul.h"
#include "number/number_format.h"
#include "scaling/rules/accumulator.h"

namespace ada::backend::test {
namespace {

using enum Operand;

struct AccumulatedBench {
  AccumulatedBench(const MatmulCase& c, const OperandRounding& rule, const char* accumulator)
      : p(bench, c, kFp32, 4, 1) {
    for (MatmulSums& sums : p.spec.sums) {
      sums.rule = *scaling::AccumulatorNamed(accumulator);
      sums.counts = &counts[static_cast<std::size_t>(&sums - p.spec.sums.data())];
    }
    for (std::size_t i = 0; i < kOperands; ++i) {
      const auto operand = static_cast<Operand>(i);
      const bool is_x = operand == kForwardX || operand == kDwX;
      const Shape& shape = IsWeight(operand) ? p.spec.w.shape
                           : is_x            ? p.spec.x.shape
                                             : p.spec.dy.tensor.shape;
      values[i].resize(static_cast<std::size_t>(shape.numel()));
      captured[i].values = values[i].data();
      OperandRounding& rounding = p.spec.operands[i];
      rounding = rule;
      rounding.stats = bench.Stats(), rounding.block_counts = &blocks[i];
      rounding.captured = &captured[i];
    }
    op = p.MakeOp(bench);
    p.Step(*op, MakePass(static_cast<int>(c.x.n)));
  }
  // The products of what the operands say.
  NaiveMatmul Exactly() const {
    const MatmulCase& c = p.product;
    const Values b = c.bias ? Bench::Get(p.spec.b) : Values();
    const auto of = [&](Operand operand) { return values[IndexOf(operand)]; };
    NaiveMatmul all = ComputeNaively(c, c.x.n, of(kForwardX), of(kForwardW), b, of(kDxDy));
    all.dx = ComputeNaively(c, c.x.n, of(kForwardX), of(kDxW), b, of(kDxDy)).dx;
    all.dw = ComputeNaively(c, c.x.n, of(kDwX), of(kForwardW), b, of(kDwDy)).dw;
    for (Exact& sum : all.dw) sum *= 0.25;  // dw carries no S
    return all;
  }

  Bench bench;
  MatmulBench p;
  std::array<Values, kOperands> values;
  std::array<CapturedOperand, kOperands> captured;
  std::array<BlockCounts, kOperands> blocks;
  std::array<scaling::AccumulatorCounts, scaling::kLayerMatmuls> counts;
  std::unique_ptr<Op> op;
};

OperandRounding Rows(const NumberFormat& format) {
  OperandRounding rounding;
  rounding.rounds = rounding.row_scaled = true;
  rounding.format = format, rounding.format.saturate = true;
  rounding.rule.format_max = format.largest();
  return rounding;
}
OperandRounding Blocks(int block) {
  OperandRounding rounding;
  rounding.rounds = true;
  rounding.block = DefaultBlockFormat(kFp8E4M3, BlockScale::kFp32);
  rounding.block->block = block;
  rounding.format = kFp8E4M3, rounding.format.saturate = true;
  return rounding;
}

// A code times its scales is within some roundings of the value that was captured.
constexpr double kError = 0x1p-20;

void CheckAll(const OperandRounding& rule) {
  for (const MatmulCase& c : AllMatmuls()) {
    CAPTURE(c.name);
    const AccumulatedBench exact(c, rule, "fma_fp32");
    const NaiveMatmul want = exact.Exactly();
    CheckTensor(exact.p.spec.y, want.y, kError);
    CheckTensor(exact.p.spec.dx.tensor, want.dx, kError);
    CheckTensor(exact.p.spec.dw, want.dw, kError);
    const AccumulatedBench cut(c, rule, "hopper_fp8_promote128");
    CheckTensor(cut.p.spec.y, want.y, 0x1p-7);
    CheckTensor(cut.p.spec.dx.tensor, want.dx, 0x1p-7);
    CheckTensor(cut.p.spec.dw, want.dw, 0x1p-7);
    for (const scaling::AccumulatorCounts& counts : cut.counts) {
      CHECK(counts.sums > 0);
      CHECK(counts.noise <= 1e-4 * counts.signal);
    }
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("accumulators: rows with scales") {
    CheckAll(Rows(kFp8E4M3));
    CheckAll(Rows(kInt8));
  }
  TEST_CASE(
      "accumulators: blocks with scales in fp32, as short as a pixel's neighbors and longer") {
    for (const int block : {3, 16, 128}) CheckAll(Blocks(block));
  }
}

}  // namespace
}  // namespace ada::backend::test

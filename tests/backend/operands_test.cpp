// Products whose operands are rounded once more: against loops in double over operands that are
// rounded value by value, and what is counted of them.
#include <doctest/doctest.h>

#include "backend/naive_count.h"
#include "backend/naive_matmul.h"

namespace ada::backend::test {
namespace {

using enum Operand;

// Six formats that differ, so that operands that are taken for one another would show.
const std::array<NumberFormat, kOperands>& SixFormats() {
  static const std::array<NumberFormat, kOperands> formats = {kFp8E4M3,
                                                              NumberFormat{3, 2, 3, false, false},
                                                              kFp8E5M2,
                                                              kFp8E4M3,
                                                              NumberFormat{4, 4, 7},
                                                              NumberFormat{5, 3, 15}};
  return formats;
}

struct OperandBench {
  OperandBench(const MatmulCase& c, const NumberFormat& stored, float scale, double alpha)
      : p(bench, c, stored, scale, alpha) {}
  void Round(Operand operand, const NumberFormat& format) {
    OperandRounding& rounding = p.spec.operands[IndexOf(operand)];
    rounding.rounds = true, rounding.format = format;
    rounding.stats = bench.Stats();
  }
  const TensorStats& StatsOf(Operand operand) const {
    return *p.spec.operands[IndexOf(operand)].stats;
  }
  Values Stored(Operand operand) const {
    if (operand == kForwardX || operand == kDwX) return Bench::Get(p.spec.x);
    if (!IsWeight(operand)) return Bench::Get(p.spec.dy.tensor);
    Values w = Bench::Get(p.spec.w);
    for (float& v : w) v = RoundTo(p.spec.w_format, v);
    return w;
  }
  // What the product multiplies; scale: the operand's own.
  Values ValuesOf(Operand operand) const {
    const OperandRounding& rounding = p.spec.operands[IndexOf(operand)];
    Values values = Stored(operand);
    if (!rounding.rounds) return values;
    const float scale =
        rounding.style.per_tensor_scale ? rounding.style.per_tensor_scale->scale : 1;
    for (float& v : values) v = RoundTo(rounding.format, v * scale) / scale;
    return values;
  }
  void Check(int rows, float scale, float alpha) const {
    const MatmulCase& c = p.product;
    const Values b = p.spec.b ? Bench::Get(p.spec.b) : Values{};
    const Values dy = Stored(kDwDy);
    NaiveMatmul y = ComputeNaively(c, rows, ValuesOf(kForwardX), ValuesOf(kForwardW), b, dy);
    NaiveMatmul dx = ComputeNaively(c, rows, Stored(kDwX), ValuesOf(kDxW), b, ValuesOf(kDxDy));
    NaiveMatmul dw = ComputeNaively(c, rows, ValuesOf(kDwX), ValuesOf(kDxW), b, ValuesOf(kDwDy));
    for (Exact& sum : dx.dx) sum *= static_cast<double>(alpha);
    for (Exact& sum : dw.dw) sum *= 1 / static_cast<double>(scale);
    for (Exact& sum : y.db) sum *= 1 / static_cast<double>(scale);
    CheckTensor(p.spec.y, y.y);
    if (p.spec.dx) CheckTensor(p.spec.dx.tensor, dx.dx);
    CheckTensor(p.spec.dw, dw.dw);
    if (c.bias) CheckTensor(p.spec.db, y.db);  // of dy as it is stored
  }
  Bench bench;
  MatmulBench p;
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("operands: each product takes its own, of every kind of layer") {
    for (const MatmulCase& c : AllMatmuls()) {
      for (const NumberFormat& stored : {kBf16, kFp16, kFp32}) {
        CAPTURE(c.name);
        CAPTURE(FormatName(stored));
        OperandBench o(c, stored, 8, 4);
        for (std::size_t i = 0; i < kOperands; ++i)
          o.Round(static_cast<Operand>(i), SixFormats()[i]);
        const std::unique_ptr<Op> op = o.p.MakeOp(o.bench);
        const int rows = static_cast<int>(c.x.n);
        o.p.Step(*op, MakePass(rows));
        o.Check(rows, 8, 4);
      }
    }
  }

  TEST_CASE("operands: one product's alone leaves the others as they are") {
    for (const std::size_t index : {1u, 2u, 13u, 15u, 20u, 24u}) {
      const MatmulCase c = SmallMatmuls()[index];
      CAPTURE(c.name);
      for (std::size_t i = 0; i < kOperands; ++i) {
        CAPTURE(kOperandNames[i]);
        OperandBench o(c, kBf16, 2, 1);
        o.Round(static_cast<Operand>(i), kFp8E4M3);
        const std::unique_ptr<Op> op = o.p.MakeOp(o.bench);
        o.p.Step(*op, MakePass(static_cast<int>(c.x.n)));
        o.Check(static_cast<int>(c.x.n), 2, 1);
      }
    }
  }

  TEST_CASE("operands: every choice of those that are rounded, with every scale and storage") {
    enum class Scaling { kNone, kCurrent, kDelayed };
    NumberFormat format = kFp8E4M3;
    format.saturate = true;
    for (const std::size_t index : {2u, 20u}) {
      const MatmulCase c = SmallMatmuls()[index];
      for (const NumberFormat& stored : {kBf16, kFp16, kFp32, kFp8E5M2}) {
        for (const Scaling scaling : {Scaling::kNone, Scaling::kCurrent, Scaling::kDelayed}) {
          for (unsigned chosen = 1; chosen < 1u << kOperands; ++chosen) {
            for (const bool first_layer : {false, true}) {
              CAPTURE(c.name);
              CAPTURE(FormatName(stored));
              CAPTURE(static_cast<int>(scaling));
              CAPTURE(chosen);
              CAPTURE(first_layer);
              OperandBench o(c, stored, 2, 1);
              if (first_layer) o.p.spec.dx = {};
              std::array<scaling::TensorScaler, kOperands> scales;
              for (std::size_t i = 0; i < kOperands; ++i) {
                if ((chosen >> i & 1) == 0) continue;
                o.Round(static_cast<Operand>(i), format);
                OperandRounding& rounding = o.p.spec.operands[i];
                scales[i].scale = 3;  // not a power of two: its products need fp32
                if (scaling != Scaling::kNone) rounding.style.per_tensor_scale = &scales[i];
                if (scaling == Scaling::kCurrent) rounding.current = &scales[i];
              }
              const std::unique_ptr<Op> op = o.p.MakeOp(o.bench);
              const int rows = static_cast<int>(c.x.n);
              o.p.Step(*op, MakePass(rows));
              o.Check(rows, 2, 1);
            }
          }
        }
      }
    }
  }

  TEST_CASE("operands: a current scale is that of the values of this pass") {
    const MatmulCase c = SmallMatmuls()[2];
    OperandBench o(c, kBf16, 4, 1);
    std::array<scaling::TensorScaler, kOperands> scales;
    NumberFormat format = kFp8E4M3;
    format.saturate = true;
    for (std::size_t i = 0; i < kOperands; ++i) {
      o.Round(static_cast<Operand>(i), format);
      OperandRounding& rounding = o.p.spec.operands[i];
      rounding.style.per_tensor_scale = rounding.current = &scales[i];
      rounding.rule.power_of_two = i % 2 == 1;
    }
    const std::unique_ptr<Op> op = o.p.MakeOp(o.bench);
    for (const float factor : {1.0f, 0x1p-20f, 0x1p9f}) {
      CAPTURE(factor);
      Values x = Bench::Get(o.p.spec.x);
      for (float& v : x) v *= factor;
      Bench::Set(o.p.spec.x, x);
      o.p.Step(*op, MakePass(static_cast<int>(c.x.n)));
      for (std::size_t i = 0; i < kOperands; ++i) {
        float amax = 0;
        for (const float v : o.Stored(static_cast<Operand>(i))) amax = std::max(amax, std::fabs(v));
        float want = 448.0f / amax;
        if (i % 2 == 1) want = std::exp2(std::floor(std::log2(want)));
        CHECK(scales[i].scale == want);
      }
      o.Check(static_cast<int>(c.x.n), 4, 1);
    }
  }

  TEST_CASE("operands: counts are those of their values") {
    for (const std::size_t index : {0u, 13u, 20u, 23u}) {
      const MatmulCase c = SmallMatmuls()[index];
      CAPTURE(c.name);
      OperandBench o(c, kFp32, 4, 1);
      for (std::size_t i = 0; i < kOperands; ++i) o.Round(static_cast<Operand>(i), SixFormats()[i]);
      const std::unique_ptr<Op> op = o.p.MakeOp(o.bench);
      Pass pass = MakePass(static_cast<int>(c.x.n));
      pass.count = true;
      o.p.Step(*op, pass);
      for (std::size_t i = 0; i < kOperands; ++i) {
        CAPTURE(kOperandNames[i]);
        const TensorStats& stats = o.StatsOf(static_cast<Operand>(i));
        std::int64_t underflow = 0, zeros = 0, subnormal = 0;
        const Values stored = o.Stored(static_cast<Operand>(i));
        float largest = 0;
        for (const float v : stored) {
          const float rounded = RoundTo(SixFormats()[i], v);
          underflow += v != 0 && rounded == 0 ? 1 : 0;
          zeros += rounded == 0 ? 1 : 0;
          subnormal += rounded != 0 && std::fabs(static_cast<double>(rounded)) <
                                           SixFormats()[i].smallest_normal()
                           ? 1
                           : 0;
          largest = std::max(largest, std::fabs(v));
        }
        CHECK(stats.full);
        CHECK(stats.numel == static_cast<std::int64_t>(stored.size()));
        CHECK(stats.underflow == underflow);
        CHECK(stats.zeros_after == zeros);
        CHECK(stats.subnormal == subnormal);
        CHECK(stats.max_abs == largest);
      }
    }
  }

  TEST_CASE("operands: a batch norm is not computed anew for a layer that rounds its own") {
    OperandBench o(SmallMatmuls()[1], kBf16, 1, 1);
    o.Round(kForwardX, kFp8E4M3);
    o.p.spec.recomputed.raw = o.p.spec.x;
    CHECK(o.p.MakeOp(o.bench) == nullptr);
  }
}

}  // namespace ada::backend::test

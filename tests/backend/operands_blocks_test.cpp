// Products whose operands are in block-scaled formats: against what other programs computed
// (tests/golden/blocks), and against blocks that are gathered value by value.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "backend/hadamard.h"
#include "backend/naive_matmul.h"
#include "backend/test_backend.h"
#include "error.h"
#include "io/tensor_files/safetensors.h"
#include "number/blocks/block_quantizer.h"
#include "number/number_format.h"

namespace ada::backend::test {
namespace {

using enum Operand;

BlockFormat Mx(const NumberFormat& element, BlockRule rule) {
  BlockFormat format = DefaultBlockFormat(element, BlockScale::kE8M0);
  format.rule = rule;
  return format;
}
BlockFormat Of(const NumberFormat& element, BlockScale scale, bool square) {
  BlockFormat format = DefaultBlockFormat(element, scale);
  format.square = square;
  return format;
}

struct BlockBench {
  BlockBench(const MatmulCase& c, const NumberFormat& stored, float scale = 1, double alpha = 1)
      : p(bench, c, stored, scale, alpha) {}
  void Round(Operand operand, const BlockFormat& format) {
    OperandRounding& rounding = p.spec.operands[IndexOf(operand)];
    rounding.rounds = true, rounding.block = format, rounding.format = format.element;
    rounding.stats = bench.Stats(), rounding.block_counts = &counts[IndexOf(operand)];
  }
  void RoundTensors(const BlockFormat& x, const BlockFormat& w, const BlockFormat& dy) {
    Round(kForwardX, x), Round(kDwX, x);
    Round(kForwardW, w), Round(kDxW, w);
    Round(kDxDy, dy), Round(kDwDy, dy);
  }
  Bench bench;
  MatmulBench p;
  std::array<BlockCounts, kOperands> counts;
};

// Where the values of each block of an operand lie, in the order of their sum; of formats that are
// not square. x, dy: NHWC; w: PyTorch's order.
using Places = std::vector<std::int64_t>;
std::vector<Places> LinesOf(const MatmulCase& c, Operand operand) {
  std::vector<Places> lines;
  const std::int64_t in = c.x.c / c.groups, out = c.out / c.groups;
  const std::int64_t taps = std::int64_t{c.kernel[0]} * c.kernel[1];
  if (IsWeight(operand)) {
    // By group, output and input within it, and tap.
    const auto at = [&](std::int64_t g, std::int64_t o, std::int64_t i, std::int64_t t) {
      const std::int64_t row = c.transposed ? (g * in + i) * out + o : (g * out + o) * in + i;
      return row * taps + t;
    };
    if (c.linear) {  // all values of an image are one axis
      for (std::int64_t k = 0; k < (operand == kForwardW ? c.out : in * taps); ++k) {
        Places line;
        for (std::int64_t j = 0; j < (operand == kForwardW ? in * taps : c.out); ++j)
          line.push_back(operand == kForwardW ? k * in * taps + j : j * in * taps + k);
        lines.push_back(line);
      }
      return lines;
    }
    for (std::int64_t t = 0; t < taps; ++t)
      for (std::int64_t g = 0; g < c.groups; ++g)
        for (std::int64_t k = 0; k < (operand == kForwardW ? out : in); ++k) {
          Places line;
          for (std::int64_t j = 0; j < (operand == kForwardW ? in : out); ++j)
            line.push_back(operand == kForwardW ? at(g, k, j, t) : at(g, j, k, t));
          lines.push_back(line);
        }
    return lines;
  }
  const Shape shape = operand == kForwardX || operand == kDwX ? c.x : c.y();
  const std::int64_t pixels = shape.h * shape.w;
  if (operand == kDwX || operand == kDwDy) {
    const std::int64_t step = c.linear ? shape.per_image() : shape.c;
    for (std::int64_t k = 0; k < step; ++k) {
      Places line;
      for (std::int64_t at = k; at < shape.numel(); at += step) line.push_back(at);
      lines.push_back(line);
    }
    return lines;
  }
  if (c.linear) {
    for (std::int64_t n = 0; n < shape.n; ++n) {
      Places line;
      for (std::int64_t k = 0; k < shape.c; ++k)
        for (std::int64_t p = 0; p < pixels; ++p)
          line.push_back(n * shape.per_image() + p * shape.c + k);
      lines.push_back(line);
    }
    return lines;
  }
  const std::int64_t channels = shape.c / c.groups;
  for (std::int64_t p = 0; p < shape.n * pixels; ++p)
    for (std::int64_t g = 0; g < c.groups; ++g) {
      Places line;
      for (std::int64_t k = 0; k < channels; ++k) line.push_back(p * shape.c + g * channels + k);
      lines.push_back(line);
    }
  return lines;
}

Values Quantized(const Values& values, const BlockFormat& format, const std::vector<Places>& lines,
                 BlockCounts& counts) {
  Values result = values;
  const float amax = AmaxOf(values);
  for (const Places& line : lines) {
    Values gathered;
    for (const std::int64_t at : line) gathered.push_back(values[static_cast<std::size_t>(at)]);
    BlockLayout layout;
    layout.length = static_cast<std::int64_t>(line.size());
    QuantizeBlocks(format, layout, amax, false, gathered.data(), {gathered.data()}, &counts);
    for (std::size_t i = 0; i < line.size(); ++i)
      result[static_cast<std::size_t>(line[i])] = gathered[i];
  }
  return result;
}

// Each line under the scale of its largest magnitude, by the definition value by value. lost, over:
// values that become zero, and those beyond the format's largest one.
struct RowsRounded {
  Values values;
  std::int64_t lost = 0, over = 0;
};
RowsRounded RoundedRows(const Values& values, const NumberFormat& format,
                        const scaling::TensorScaleRule& rule, const std::vector<Places>& lines) {
  RowsRounded rounded{values};
  for (const Places& line : lines) {
    Values gathered;
    for (const std::int64_t at : line) gathered.push_back(values[static_cast<std::size_t>(at)]);
    const scaling::RowScale scale = scaling::RowScaleOf(rule, AmaxOf(gathered), false);
    for (std::size_t i = 0; i < line.size(); ++i) {
      const float scaled = gathered[i] * scale.encode, element = RoundTo(format, scaled);
      float& to = rounded.values[static_cast<std::size_t>(line[i])];
      to = scaling::MultipliesBack(rule) ? element * scale.decode : element / scale.encode;
      rounded.lost += gathered[i] != 0 && element == 0;
      rounded.over += std::fabs(scaled) >= OverflowThreshold(format);
    }
  }
  return rounded;
}

Values StoredOf(const MatmulSpec& spec, Operand operand) {
  if (operand == kForwardX || operand == kDwX) return Bench::Get(spec.x);
  return IsWeight(operand) ? Bench::Get(spec.w) : Bench::Get(spec.dy.tensor);
}

// The largest difference relative to the sum of magnitudes of the products.
double WorstOf(const Values& got, const Values& want, const Sums& sums, double relative) {
  double worst = 0;
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double allowed =
        1e-6 * sums[i].magnitude + relative * std::fabs(static_cast<double>(want[i])) + 1e-300;
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]) / allowed);
  }
  return worst;
}

struct Formats {
  BlockFormat x, w, dy;
};
Formats FormatsOf(const std::string& name) {
  const auto all = [](const BlockFormat& f) { return Formats{f, f, f}; };
  if (name == "mx0" || name == "mx4") return all(Mx(kFp8E4M3, BlockRule::kRceil));
  if (name == "mx1")
    return {Mx(kFp8E4M3, BlockRule::kFloor), Mx(kFp8E4M3, BlockRule::kFloor),
            Mx(kFp8E5M2, BlockRule::kFloor)};
  if (name == "mx2") return all(Mx(kFp4E2M1, BlockRule::kFloor));
  if (name == "mx3")
    return {Mx(kFp6E3M2, BlockRule::kEven), Mx(kFp6E2M3, BlockRule::kEven),
            Mx(kFp6E3M2, BlockRule::kEven)};
  const bool nv = name == "nv0";
  const NumberFormat& element = nv ? kFp4E2M1 : kFp8E4M3;
  const BlockScale scale = nv ? BlockScale::kFp8E4M3 : BlockScale::kFp32;
  return {Of(element, scale, false), Of(element, scale, true), Of(element, scale, false)};
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("operands in blocks: products as other programs compute them") {
    const SafetensorsFile file =
        SafetensorsFile::Open(ADA_SOURCE_DIR "/tests/golden/blocks/products.safetensors");
    for (const std::string name : {"mx0", "mx1", "mx2", "mx3", "mx4", "nv0", "f8_0"}) {
      CAPTURE(name);
      const bool bf16 = name == "mx4";
      const std::string inputs = file.Find(name + "/in_x") != nullptr ? name : "mx0";
      const auto& w_shape = file.Find(inputs + "/in_w")->shape;
      const Shape x{file.Find(inputs + "/in_x")->shape[0], 1, 1, w_shape[1]};
      BlockBench b(LinearCase(name, x, w_shape[0], false), bf16 ? kBf16 : kFp32);
      MatmulSpec& spec = b.p.spec;
      Bench::Set(spec.x, file.ReadF32(inputs + "/in_x"));
      Bench::Set(spec.w, file.ReadF32(inputs + "/in_w"));
      Bench::Set(spec.dy.tensor, file.ReadF32(inputs + "/in_dy"));
      const Formats formats = FormatsOf(name);
      b.RoundTensors(formats.x, formats.w, formats.dy);
      if (name == "nv0") {
        for (const Operand operand : {kDwX, kDwDy})
          spec.operands[IndexOf(operand)].hadamard.size = kHadamardSize;
      }
      const std::unique_ptr<Op> op = b.p.MakeOp(b.bench);
      b.p.Step(*op, MakePass(static_cast<int>(x.n)));
      const NaiveMatmul sums = ComputeNaively(b.p.product, x.n, Bench::Get(spec.x),
                                              Bench::Get(spec.w), {}, Bench::Get(spec.dy.tensor));
      const double relative = bf16 ? 0x1p-8 : 0;
      CHECK(WorstOf(Bench::Get(spec.y), file.ReadF32(name + "/y"), sums.y, relative) <= 1);
      CHECK(WorstOf(Bench::Get(spec.dx.tensor), file.ReadF32(name + "/dx"), sums.dx, relative) <=
            1);
      CHECK(WorstOf(Bench::Get(spec.dw), file.ReadF32(name + "/dw"), sums.dw, relative) <= 1);
    }
  }

  TEST_CASE(
      "operands with a scale a row: along what each product sums over, in every kind of layer") {
    for (const bool as_forward : {false, true})
      for (const NumberFormat& element : {kFp8E4M3, kInt8})
        for (const MatmulCase& c : AllMatmuls()) {
          CAPTURE(c.name);
          CAPTURE(as_forward);
          BlockBench b(c, kFp32, 8, 4);
          NumberFormat format = element;
          format.saturate = true;
          scaling::TensorScaleRule rule;
          rule.format_max = format.largest();
          rule.integer = IsInteger(format);
          rule.system = rule.integer ? scaling::ScaleSystem::kTorchao : scaling::ScaleSystem::kTe;
          std::array<RowsRounded, kOperands> rounded;
          for (std::size_t i = 0; i < kOperands; ++i) {
            const auto operand = static_cast<Operand>(i);
            OperandRounding& how = b.p.spec.operands[i];
            how.rounds = true, how.format = format, how.row_scaled = true, how.rule = rule;
            how.stats = b.bench.Stats();
            if (as_forward && operand == kDxW) how.laid_as = kForwardW;
            if (as_forward && operand == kDwX) how.laid_as = kForwardX;
            rounded[i] = RoundedRows(StoredOf(b.p.spec, operand), format, rule,
                                     LinesOf(c, how.laid_as.value_or(operand)));
          }
          if (!kTestsCpu) {
            CHECK_THROWS_WITH_AS(b.p.MakeOp(b.bench),
                                 "precision.operands.tensor_scaling: kind row is not there on "
                                 "GPUs; use kind current, or device: cpu",
                                 ConfigError);
            continue;
          }
          const std::unique_ptr<Op> op = b.p.MakeOp(b.bench);
          Pass pass = MakePass(static_cast<int>(c.x.n));
          pass.count = true;
          b.p.Step(*op, pass);
          const auto of = [&](Operand operand) -> const Values& {
            return rounded[IndexOf(operand)].values;
          };
          const Values bias = c.bias ? Bench::Get(b.p.spec.b) : Values{};
          const Values dy = Bench::Get(b.p.spec.dy.tensor);
          NaiveMatmul y = ComputeNaively(c, c.x.n, of(kForwardX), of(kForwardW), bias, dy);
          NaiveMatmul dx = ComputeNaively(c, c.x.n, of(kDwX), of(kDxW), bias, of(kDxDy));
          NaiveMatmul dw = ComputeNaively(c, c.x.n, of(kDwX), of(kDxW), bias, of(kDwDy));
          for (Exact& sum : dx.dx) sum *= 4;
          for (Exact& sum : dw.dw) sum *= 1.0 / 8;
          CheckTensor(b.p.spec.y, y.y);
          CheckTensor(b.p.spec.dx.tensor, dx.dx);
          CheckTensor(b.p.spec.dw, dw.dw);
          for (std::size_t i = 0; i < kOperands; ++i) {
            CAPTURE(kOperandNames[i]);
            const TensorStats& stats = *b.p.spec.operands[i].stats;
            CHECK(stats.full);
            CHECK(stats.underflow == rounded[i].lost);
            CHECK(stats.overflow == rounded[i].over);
            CHECK(stats.max_abs == AmaxOf(StoredOf(b.p.spec, static_cast<Operand>(i))));
          }
        }
  }

  TEST_CASE("operands in blocks: along what each product sums over, in every kind of layer") {
    BlockFormat torchao = Of(kFp4E2M1, BlockScale::kFp8E4M3, false), modelopt = torchao;
    torchao.rule = BlockRule::kTorchao, modelopt.rule = BlockRule::kModelopt;
    using Formats = std::array<BlockFormat, kOperands>;
    const Formats kinds = {
        Mx(kFp8E4M3, BlockRule::kFloor),        Of(kFp4E2M1, BlockScale::kFp8E4M3, false),
        Mx(kFp6E2M3, BlockRule::kRceil),        Mx(kFp4E2M1, BlockRule::kEven),
        Of(kFp8E4M3, BlockScale::kFp32, false), Mx(kFp8E5M2, BlockRule::kCeil)};
    const Formats rules = {torchao, modelopt, modelopt, torchao, torchao, modelopt};
    BlockFormat rows = Of(kFp4E2M1, BlockScale::kFp8E4M3, false), four = rows;
    four.rule = BlockRule::kFourOverSix;
    BlockFormat four_rows = four;
    rows.row_scaled = four_rows.row_scaled = true;
    const Formats scaled = {rows, rows, four_rows, four, rows, four_rows};
    const Formats turned = {four_rows, four, rows, rows, four_rows, rows};
    for (const Formats& formats : {kinds, rules, scaled, turned})
      for (const MatmulCase& c : AllMatmuls()) {
        CAPTURE(c.name);
        BlockBench b(c, kFp32, 8, 4);
        std::array<Values, kOperands> taken;
        std::array<BlockCounts, kOperands> counts;
        for (std::size_t i = 0; i < kOperands; ++i) {
          const auto operand = static_cast<Operand>(i);
          b.Round(operand, formats[i]);
          taken[i] =
              Quantized(StoredOf(b.p.spec, operand), formats[i], LinesOf(c, operand), counts[i]);
        }
        const std::unique_ptr<Op> op = b.p.MakeOp(b.bench);
        Pass pass = MakePass(static_cast<int>(c.x.n));
        pass.count = true;
        b.p.Step(*op, pass);
        const auto of = [&](Operand operand) -> const Values& { return taken[IndexOf(operand)]; };
        const Values bias = c.bias ? Bench::Get(b.p.spec.b) : Values{};
        const Values dy = Bench::Get(b.p.spec.dy.tensor);
        NaiveMatmul y = ComputeNaively(c, c.x.n, of(kForwardX), of(kForwardW), bias, dy);
        NaiveMatmul dx = ComputeNaively(c, c.x.n, of(kDwX), of(kDxW), bias, of(kDxDy));
        NaiveMatmul dw = ComputeNaively(c, c.x.n, of(kDwX), of(kDxW), bias, of(kDwDy));
        for (Exact& sum : dx.dx) sum *= 4;
        for (Exact& sum : dw.dw) sum *= 1.0 / 8;
        for (Exact& sum : y.db) sum *= 1.0 / 8;
        CheckTensor(b.p.spec.y, y.y);
        CheckTensor(b.p.spec.dx.tensor, dx.dx);
        CheckTensor(b.p.spec.dw, dw.dw);
        if (c.bias) CheckTensor(b.p.spec.db, y.db);
        for (std::size_t i = 0; i < kOperands; ++i) {
          CAPTURE(kOperandNames[i]);
          const BlockCounts &got = b.counts[i], &want = counts[i];
          CHECK(got.numel == static_cast<std::int64_t>(taken[i].size()));
          CHECK(got.blocks == want.blocks);
          CHECK(got.zero_blocks == want.zero_blocks);
          CHECK(got.lost_beside_largest == want.lost_beside_largest);
          CHECK(got.lost_scale_floor == want.lost_scale_floor);
          CHECK(got.lost_scale_rounding == want.lost_scale_rounding);
          CHECK(got.saturated == want.saturated);
          CHECK(got.at_floor == want.at_floor);
          CHECK(got.log2_min == want.log2_min);
          CHECK(got.log2_max == want.log2_max);
          CHECK(got.sqnr_worst == doctest::Approx(want.sqnr_worst).epsilon(1e-12));
          CHECK(got.noise == doctest::Approx(want.noise).epsilon(1e-12));
          const TensorStats& stats = *b.p.spec.operands[i].stats;
          CHECK(stats.full);
          CHECK(stats.numel == got.numel);
          CHECK(stats.underflow == want.lost());
          CHECK(stats.overflow == want.saturated);
          CHECK(stats.max_abs == AmaxOf(StoredOf(b.p.spec, static_cast<Operand>(i))));
        }
      }
  }

  TEST_CASE("operands in blocks: tensors of any size, whose scale is a factor of sums") {
    BlockFormat te = Of(kFp4E2M1, BlockScale::kFp8E4M3, false), torchao = te;
    torchao.rule = BlockRule::kTorchao;
    const auto finite = [](double x) { return std::isfinite(x); };
    for (const BlockFormat& format : {te, torchao})
      for (const MatmulCase& c : AllMatmuls())
        for (const int power : {-116, -40, 60, 200}) {
          CAPTURE(c.name);
          CAPTURE(power);
          std::array<Values, 3> uncounted;
          for (const bool counts : {false, true}) {
            BlockBench b(c, kFp32, 8, 3);
            // Where it is not counted dx is stored at once, and two roundings differ from one.
            b.p.scaler.rule.power_of_two = false;
            b.p.spec.dx.moments = nullptr;
            Values x = Bench::Get(b.p.spec.x);
            for (float& value : x) value = std::ldexp(value, power);  // 200: inf
            Bench::Set(b.p.spec.x, x);
            std::array<Values, kOperands> taken;
            std::array<BlockCounts, kOperands> ignored;
            for (std::size_t i = 0; i < kOperands; ++i) {
              const auto operand = static_cast<Operand>(i);
              b.Round(operand, format);
              taken[i] =
                  Quantized(StoredOf(b.p.spec, operand), format, LinesOf(c, operand), ignored[i]);
            }
            const std::unique_ptr<Op> op = b.p.MakeOp(b.bench);
            Pass pass = MakePass(static_cast<int>(c.x.n));
            pass.count = counts;
            b.p.Step(*op, pass);
            const std::array<Values, 3> got = {
                Bench::Get(b.p.spec.y), Bench::Get(b.p.spec.dx.tensor), Bench::Get(b.p.spec.dw)};
            if (!counts) {
              uncounted = got;
              continue;
            }
            const auto of = [&](Operand operand) -> const Values& {
              return taken[IndexOf(operand)];
            };
            const Values bias = c.bias ? Bench::Get(b.p.spec.b) : Values{};
            const Values dy = Bench::Get(b.p.spec.dy.tensor);
            NaiveMatmul y = ComputeNaively(c, c.x.n, of(kForwardX), of(kForwardW), bias, dy);
            NaiveMatmul dx = ComputeNaively(c, c.x.n, of(kDwX), of(kDxW), bias, of(kDxDy));
            NaiveMatmul dw = ComputeNaively(c, c.x.n, of(kDwX), of(kDxW), bias, of(kDwDy));
            for (Exact& sum : dx.dx) sum *= 3;
            for (Exact& sum : dw.dw) sum *= 1.0 / 8;
            CheckTensor(b.p.spec.dx.tensor, dx.dx);
            if (power == 200) {
              for (std::size_t i = 0; i < y.y.size(); ++i)
                CHECK(finite(got[0][i]) == finite(y.y[i].value));
              continue;
            }
            CheckTensor(b.p.spec.y, y.y);
            CheckTensor(b.p.spec.dw, dw.dw);
            CHECK(got == uncounted);
          }
        }
  }

  TEST_CASE("operands in blocks: a transform leaves the products of all layers what they are") {
    for (MatmulCase c : SmallMatmuls()) {
      c.x.n = 37;  // two whole groups of images and a rest, or one
      CAPTURE(c.name);
      for (const HadamardRule& rule :
           {HadamardRule{16, false, {}, 5}, {16, true, {}, 5}, {32, true, {}, 5}}) {
        BlockBench b(c, kFp32);
        for (OperandRounding& rounding : b.p.spec.operands)
          rounding.rounds = true, rounding.hadamard = rule;
        if (!kTestsCpu) {
          CHECK_THROWS_WITH_AS(b.p.MakeOp(b.bench),
                               "precision.operands.hadamard: on GPUs there is a transform of dw "
                               "alone, of size 16, with signs fixed or random; use that, or "
                               "device: cpu",
                               ConfigError);
          continue;
        }
        const std::unique_ptr<Op> op = b.p.MakeOp(b.bench);
        b.p.Step(*op, MakePass(static_cast<int>(c.x.n)));
        const NaiveMatmul want = ComputeNaively(
            c, c.x.n, Bench::Get(b.p.spec.x), Bench::Get(b.p.spec.w),
            c.bias ? Bench::Get(b.p.spec.b) : Values{}, Bench::Get(b.p.spec.dy.tensor));
        // Sums of transformed values are of other terms: their magnitudes are up to sqrt(size)
        // times as large.
        CheckTensor(b.p.spec.y, want.y, 12 * kSumError);
        CheckTensor(b.p.spec.dx.tensor, want.dx, 12 * kSumError);
        CheckTensor(b.p.spec.dw, want.dw, 12 * kSumError);
        if (c.bias) CheckTensor(b.p.spec.db, want.db);
      }
    }
  }

  TEST_CASE("operands in blocks: bf16 that saturates is transformed as bf16 is") {
    if (!kTestsCpu) return;
    for (const MatmulCase& c : SmallMatmuls()) {
      CAPTURE(c.name);
      std::array<std::array<Values, kOperands>, 2> taken;
      for (const bool saturates : {false, true}) {
        NumberFormat stored = kBf16;
        stored.saturate = saturates;
        BlockBench b(c, stored);
        std::array<CapturedOperand, kOperands> captured;
        for (const Operand operand : {kForwardX, kForwardW, kDxDy, kDxW}) {
          OperandRounding& rounding = b.p.spec.operands[IndexOf(operand)];
          rounding.rounds = true, rounding.hadamard = HadamardRule{16};
          Values& values = taken[saturates ? 1 : 0][IndexOf(operand)];
          values = StoredOf(b.p.spec, operand);
          captured[IndexOf(operand)].values = values.data();
          rounding.captured = &captured[IndexOf(operand)];
        }
        const std::unique_ptr<Op> op = b.p.MakeOp(b.bench);
        b.p.Step(*op, MakePass(static_cast<int>(c.x.n)));
      }
      CHECK(taken[0] == taken[1]);
    }
  }

  TEST_CASE("operands in blocks: forward and dx take lines times Sylvester's matrix") {
    if (!kTestsCpu) return;
    std::int64_t transformed = 0;
    for (const MatmulCase& c : AllMatmuls()) {
      CAPTURE(c.name);
      const int size = c.x.c % 5 == 0 ? 32 : 16;
      HadamardRule rule{size};
      for (int i = 0; i < size; ++i) rule.listed.push_back(i % 3 == 0 ? -1.0f : 1.0f);
      BlockBench b(c, kFp32);
      std::array<Values, kOperands> taken;
      std::array<CapturedOperand, kOperands> captured;
      for (const Operand operand : {kForwardX, kForwardW, kDxDy, kDxW}) {
        OperandRounding& rounding = b.p.spec.operands[IndexOf(operand)];
        rounding.rounds = true, rounding.hadamard = rule;
        taken[IndexOf(operand)] = StoredOf(b.p.spec, operand);
        captured[IndexOf(operand)].values = taken[IndexOf(operand)].data();
        rounding.captured = &captured[IndexOf(operand)];
      }
      const std::unique_ptr<Op> op = b.p.MakeOp(b.bench);
      b.p.Step(*op, MakePass(static_cast<int>(c.x.n)));
      for (const Operand operand : {kForwardX, kForwardW, kDxDy, kDxW}) {
        const Values stored = StoredOf(b.p.spec, operand);
        const Values& got = taken[IndexOf(operand)];
        double worst = 0;
        for (const Places& line : LinesOf(c, operand)) {
          const std::size_t whole =
              line.size() / static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
          for (std::size_t i = 0; i < line.size(); ++i) {
            const std::size_t first =
                i / static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
            double want = static_cast<double>(stored[static_cast<std::size_t>(line[i])]);
            double sum = std::fabs(want);
            if (i < whole) want = sum = 0, ++transformed;
            for (std::size_t j = 0; i < whole && j < static_cast<std::size_t>(size); ++j) {
              const double v =
                  static_cast<double>(rule.listed[j]) *
                  static_cast<double>(stored[static_cast<std::size_t>(line[first + j])]);
              want += (std::popcount((i - first) & j) % 2 != 0 ? -v : v) / std::sqrt(size);
              sum += std::fabs(v);
            }
            const double is = static_cast<double>(got[static_cast<std::size_t>(line[i])]);
            worst = std::max(worst, std::fabs(is - want) / (sum + 1e-30));
          }
        }
        CHECK_MESSAGE(worst < 1e-6, kOperandNames[IndexOf(operand)]);
      }
    }
    CHECK(transformed > 1000);
  }

  TEST_CASE("operands in blocks: any number of threads gives the same bytes") {
    const MatmulCase c = SmallMatmuls()[1];
    std::vector<Values> first;
    for (const int threads : {1, 2, 3}) {
      Bench bench(threads);
      MatmulBench p(bench, c, kBf16, 4, 2);
      std::array<BlockCounts, kOperands> counts;
      for (std::size_t i = 0; i < kOperands; ++i) {
        OperandRounding& rounding = p.spec.operands[i];
        rounding.rounds = true;
        rounding.block = i % 2 == 0 ? Of(kFp4E2M1, BlockScale::kFp8E4M3, i == 4)
                                    : Mx(kFp8E4M3, BlockRule::kRceil);
        rounding.format = rounding.block->element;
        rounding.style.stochastic = i >= 2;
        rounding.style.stream = i;
        rounding.stats = bench.Stats(), rounding.block_counts = &counts[i];
      }
      const std::unique_ptr<Op> op = p.MakeOp(bench);
      Pass pass = MakePass(static_cast<int>(c.x.n));
      pass.count = true, pass.seed = 7, pass.draw = 3;
      p.Step(*op, pass);
      std::vector<Values> all = {Bench::Get(p.spec.y), Bench::Get(p.spec.dx.tensor),
                                 Bench::Get(p.spec.dw)};
      for (const BlockCounts& of : counts)
        all.push_back({static_cast<float>(of.noise), static_cast<float>(of.sqnr_sum)});
      if (first.empty()) first = all;
      CHECK(all == first);
    }
  }

  TEST_CASE("operands in blocks: stochastic rounding takes one of two neighbours, on average x") {
    MatmulCase c = LinearCase("linear", {4096, 1, 1, 16}, 1, false);
    BlockBench b(c, kFp32);
    // The largest value is 6, so that the scale of the block is 1.
    Values x(static_cast<std::size_t>(c.x.numel()));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = i % 16 == 0 ? 6.0f : 0.25f * static_cast<float>(i % 16);
    Bench::Set(b.p.spec.x, x);
    BlockFormat format = Mx(kFp4E2M1, BlockRule::kFloor);
    format.block = 16;
    b.Round(kForwardX, format);
    b.p.spec.operands[IndexOf(kForwardX)].style.stochastic = true;
    std::array<double, 16> sums{};
    const std::unique_ptr<Op> op = b.p.MakeOp(b.bench);
    for (std::size_t k = 0; k < 16; ++k) {  // one weight at a time shows the operand
      Values w(16);
      w[k] = 1;
      Bench::Set(b.p.spec.w, w);
      Pass pass = MakePass(4096);
      pass.seed = 11, pass.draw = k;
      op->RefreshWeights(pass);
      op->Forward(pass);
      for (const float v : Bench::Get(b.p.spec.y)) {
        CHECK(RoundTo(kFp4E2M1, v) == v);
        sums[k] += static_cast<double>(v);
      }
      const double mean = sums[k] / 4096, want = static_cast<double>(x[k]);
      CHECK(std::fabs(mean - want) <= 5 * 0.5 / 64);  // a spacing of 1: half of it a deviation
      if (RoundTo(kFp4E2M1, x[k]) == x[k]) CHECK(mean == want);
    }
  }
}

}  // namespace ada::backend::test

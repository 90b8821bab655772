// Operands of attention's products that are rounded once more: results and counts beside products
// in double of operands that are gathered line by line along each product's sum.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <string>

#include "backend/op_bench.h"
#include "number/blocks/block_quantizer.h"
#include "number/number_format.h"

namespace ada::backend::test {
namespace {

constexpr std::int64_t kImages = 2, kHeads = 4, kKvHeads = 2, kWidth = 20, kTokens = 70;
using enum AttentionOperand;
// Sums as good as fp32's.
const scaling::Accumulator kFine{16, 25, kFp32, scaling::AccumulatorRounding::kNearest, 0};

using Matrix = std::vector<double>;  // [rows, columns] of one head
struct Sized {
  std::int64_t rows, columns;
};
Sized SizeOf(AttentionTensor tensor) {
  const bool scores = tensor == AttentionTensor::kP || tensor == AttentionTensor::kDs;
  return {kTokens, scores ? kTokens : kWidth};
}
bool Down(AttentionOperand operand) {
  return operand == kYV || operand == kDvP || operand == kDvDy || operand == kDqK ||
         operand == kDkDs || operand == kDkQ;
}

// Rounds one line along the sum; amax: of all heads.
using LineRule = std::function<void(Values& line, float amax)>;

struct Attention {
  explicit Attention(const OperandRounding& rule, bool causal = true) {
    const Shape q{kImages, kTokens, 1, kHeads * kWidth}, k{kImages, kTokens, 1, kKvHeads * kWidth};
    spec.layer = "a", spec.heads = kHeads, spec.kv_heads = kKvHeads, spec.causal = causal;
    int seed = 1;
    for (const Shape& shape : {q, k, k})
      spec.x.push_back(bench.Make(shape, kFp32, Normal(Count(shape), 1.5, seed++)));
    spec.y = bench.Make(q, kFp32);
    spec.y_stats = bench.Stats(), spec.p_stats = bench.Stats(), spec.ds_stats = bench.Stats();
    spec.rounds_p = spec.rounds_ds = false;
    spec.dy = bench.MakeGradient(q, kFp32, Normal(Count(q), 1, seed), 8);
    spec.dx = {bench.MakeGradient(q, kFp32), bench.MakeGradient(k, kFp32),
               bench.MakeGradient(k, kFp32)};
    spec.ds_scale = &ds_scale;
    for (std::size_t i = 0; i < 4; ++i) spec.scalers[i] = &scalers[i];
    for (std::size_t i = 0; i < kAttentionOperands; ++i) {
      OperandRounding& rounding = spec.attention_operands[i];
      rounding = rule;
      rounding.stats = bench.Stats(), rounding.block_counts = &blocks[i];
      if (rule.current != nullptr)
        rounding.current = &scales[i], rounding.style.per_tensor_scale = &scales[i];
    }
  }
  static std::size_t Count(const Shape& shape) { return static_cast<std::size_t>(shape.numel()); }
  void Run() {
    Pass pass = MakePass(static_cast<int>(kImages));
    pass.bins = true;
    op = bench->Make(spec);
    op->Forward(pass);
    op->Backward(pass);
  }
  void Accumulate(const scaling::Accumulator& rule) {
    for (std::size_t i = 0; i < 2; ++i) spec.sums[i].rule = rule, spec.sums[i].counts = &counts[i];
  }
  void Judge(const scaling::Accumulator& rule) {
    for (std::size_t i = 0; i < 2; ++i) spec.sums[i].judged = {{rule, &judged[i]}};
  }
  Bench bench;
  AttentionSpec spec;
  float ds_scale = 0;
  scaling::LayerScaler scalers[4];
  std::array<scaling::TensorScaler, kAttentionOperands> scales;
  std::array<BlockCounts, kAttentionOperands> blocks;
  std::array<scaling::AccumulatorCounts, 2> counts, judged;  // forward, dx
  std::unique_ptr<Op> op;
};

// One head's [tokens, width] of a tensor [images, tokens, heads * width].
Matrix HeadOf(const Tensor& tensor, std::int64_t image, std::int64_t head) {
  const Values all = Bench::Get(tensor);
  Matrix m;
  for (std::int64_t t = 0; t < kTokens; ++t)
    for (std::int64_t i = 0; i < kWidth; ++i)
      m.push_back(static_cast<double>(all[static_cast<std::size_t>(
          (image * kTokens + t) * tensor.shape.c + head * kWidth + i)]));
  return m;
}
// a [m, k] b [k, n], either transposed as it lies.
Matrix Times(const Matrix& a, bool a_turned, const Matrix& b, bool b_turned, std::int64_t m,
             std::int64_t k, std::int64_t n) {
  Matrix c(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t x = 0; x < k; ++x)
        c[static_cast<std::size_t>(i * n + j)] +=
            a[static_cast<std::size_t>(a_turned ? x * m + i : i * k + x)] *
            b[static_cast<std::size_t>(b_turned ? j * k + x : x * n + j)];
  return c;
}

// The results of one attention, and what each operand lost.
class Reference {
 public:
  Reference(const AttentionSpec& spec, LineRule rule) : spec_(spec), rule_(std::move(rule)) {
    // Scales of tensors come from all heads: the first pass finds those of what is given, the
    // second those of p and ds.
    amax_.fill(1);
    for (int pass = 0; pass < 3; ++pass) {
      seen_.fill(0);
      for (std::int64_t image = 0; image < kImages; ++image)
        for (std::int64_t head = 0; head < kHeads; ++head) Head(image, head, pass == 2);
      amax_ = seen_;
    }
  }
  std::array<std::int64_t, kAttentionOperands> lost{};
  std::array<Matrix, kImages * kHeads> y, dq;
  std::array<Matrix, kImages * kKvHeads> dk, dv;

 private:
  Matrix Taken(AttentionOperand operand, const Matrix& m, bool counts) {
    const auto tensor = static_cast<std::size_t>(TensorOf(operand));
    for (const double v : m)
      seen_[tensor] = std::max(seen_[tensor], std::fabs(static_cast<float>(v)));
    const Sized size = SizeOf(TensorOf(operand));
    const bool down = Down(operand);
    Matrix out = m;
    for (std::int64_t l = 0; l < (down ? size.columns : size.rows); ++l) {
      Values line;
      const auto at = [&](std::int64_t i) {
        return static_cast<std::size_t>(down ? i * size.columns + l : l * size.columns + i);
      };
      const std::int64_t length = down ? size.rows : size.columns;
      for (std::int64_t i = 0; i < length; ++i) line.push_back(static_cast<float>(m[at(i)]));
      const Values before = line;
      rule_(line, amax_[tensor]);
      for (std::int64_t i = 0; i < length; ++i) {
        out[at(i)] = static_cast<double>(line[static_cast<std::size_t>(i)]);
        lost[IndexOf(operand)] += counts && line[static_cast<std::size_t>(i)] == 0 &&
                                  before[static_cast<std::size_t>(i)] != 0;
      }
    }
    return out;
  }
  void Head(std::int64_t image, std::int64_t head, bool counts) {
    const std::int64_t kv = head / (kHeads / kKvHeads);
    const bool first = counts && head % (kHeads / kKvHeads) == 0;  // of keys and values
    const Matrix q = HeadOf(spec_.x[0], image, head), k = HeadOf(spec_.x[1], image, kv),
                 v = HeadOf(spec_.x[2], image, kv), dy = HeadOf(spec_.dy.tensor, image, head);
    const std::int64_t t = kTokens, d = kWidth;
    const double c = 1 / std::sqrt(static_cast<double>(d));
    Matrix p = Times(Taken(kSQ, q, counts), false, Taken(kSK, k, first), true, t, d, t);
    for (std::int64_t i = 0; i < t; ++i) {
      double total = 0;
      for (std::int64_t j = 0; j < t; ++j) {
        double& s = p[static_cast<std::size_t>(i * t + j)];
        s = spec_.causal && j > i ? 0 : std::exp(c * s);
        total += s;
      }
      for (std::int64_t j = 0; j < t; ++j) p[static_cast<std::size_t>(i * t + j)] /= total;
    }
    const Matrix out = Times(Taken(kYP, p, counts), false, Taken(kYV, v, first), false, t, t, d);
    const Matrix of_dv =
        Times(Taken(kDvP, p, counts), true, Taken(kDvDy, dy, counts), false, t, t, d);
    Matrix ds = Times(Taken(kDpDy, dy, counts), false, Taken(kDpV, v, first), true, t, d, t);
    for (std::int64_t i = 0; i < t; ++i) {
      double total = 0;
      const auto at = [&](std::int64_t j) { return static_cast<std::size_t>(i * t + j); };
      for (std::int64_t j = 0; j < t; ++j) total += p[at(j)] * ds[at(j)];
      for (std::int64_t j = 0; j < t; ++j) ds[at(j)] = p[at(j)] * (ds[at(j)] - total);
    }
    Matrix of_dq = Times(Taken(kDqDs, ds, counts), false, Taken(kDqK, k, first), false, t, t, d);
    const Matrix of_dk =
        Times(Taken(kDkDs, ds, counts), true, Taken(kDkQ, q, counts), false, t, t, d);
    if (!counts) return;
    for (double& value : of_dq) value *= c;
    y[static_cast<std::size_t>(image * kHeads + head)] = out;
    dq[static_cast<std::size_t>(image * kHeads + head)] = of_dq;
    const auto at = static_cast<std::size_t>(image * kKvHeads + kv);
    dk[at].resize(of_dk.size()), dv[at].resize(of_dv.size());
    for (std::size_t i = 0; i < of_dk.size(); ++i) dk[at][i] += c * of_dk[i], dv[at][i] += of_dv[i];
  }

  const AttentionSpec& spec_;
  LineRule rule_;
  std::array<float, kAttentionTensors> amax_{}, seen_{};
};

void CheckAgainst(const Attention& a, const LineRule& rule) {
  const Reference want(a.spec, rule);
  const auto check = [](const char* name, const Tensor& got, std::int64_t heads, const auto& all) {
    CAPTURE(name);
    double squares = 0, worst = 0;
    std::size_t apart = 0, count = 0;
    for (const Matrix& m : all)
      for (const double v : m) squares += v * v, ++count;
    const double unit = std::sqrt(squares / static_cast<double>(count));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto head = static_cast<std::int64_t>(i);
      const Matrix m = HeadOf(got, head / heads, head % heads);
      for (std::size_t j = 0; j < m.size(); ++j) {
        const double error = std::fabs(m[j] - all[i][j]) / unit;
        apart += error > 2e-5, worst = std::max(worst, error);
      }
    }
    // Probabilities are made of other exponentials: few of p and ds round the other way.
    CHECK(apart <= count / 20);
    CHECK(worst < 0.2);
  };
  check("y", a.spec.y, kHeads, want.y);
  check("dq", a.spec.dx[0].tensor, kHeads, want.dq);
  check("dk", a.spec.dx[1].tensor, kKvHeads, want.dk);
  check("dv", a.spec.dx[2].tensor, kKvHeads, want.dv);
  for (std::size_t i = 0; i < kAttentionOperands; ++i) {
    CAPTURE(kAttentionOperandNames[i]);
    const AttentionTensor tensor = TensorOf(static_cast<AttentionOperand>(i));
    const bool of_keys = tensor == AttentionTensor::kK || tensor == AttentionTensor::kV;
    const Sized size = SizeOf(tensor);
    const TensorStats& stats = *a.spec.attention_operands[i].stats;
    CHECK(stats.numel == kImages * (of_keys ? kKvHeads : kHeads) * size.rows * size.columns);
    const bool scores = tensor == AttentionTensor::kP || tensor == AttentionTensor::kDs;
    const std::int64_t apart = std::abs(stats.underflow - want.lost[i]);
    CHECK(apart <= (scores ? stats.numel / 500 : 0));
  }
}

OperandRounding Plain(const NumberFormat& format) {
  OperandRounding rounding;
  rounding.rounds = true, rounding.format = format, rounding.format.saturate = true;
  rounding.rule.format_max = format.largest();
  return rounding;
}
void RoundScaled(const NumberFormat& format, float scale, Values& line) {
  for (float& v : line) v = RoundTo(format, v * scale) / scale;
}

TEST_SUITE("cpu") {
  TEST_CASE("attention's operands: plain formats") {
    for (const bool causal : {true, false}) {
      Attention a(Plain(kFp8E4M3), causal);
      a.Run();
      CheckAgainst(a, [](Values& line, float) { RoundScaled(kFp8E4M3, 1, line); });
    }
  }

  TEST_CASE("attention's operands: a scale for a tensor, of all heads") {
    OperandRounding rounding = Plain(kFp8E5M2);
    scaling::TensorScaler asks;
    rounding.current = &asks;  // each operand gets its own
    Attention a(rounding);
    a.Run();
    CheckAgainst(a, [&](Values& line, float amax) {
      RoundScaled(kFp8E5M2, scaling::CurrentScale(rounding.rule, amax), line);
    });
    CHECK(a.scales[IndexOf(kYP)].scale == a.scales[IndexOf(kDvP)].scale);
    CHECK(a.scales[IndexOf(kYP)].scale >= 57344);  // p is at most 1
  }

  TEST_CASE("attention's operands: a scale for each row along the sum") {
    OperandRounding rounding = Plain(kInt8);
    rounding.row_scaled = true;
    Attention a(rounding);
    a.Run();
    CheckAgainst(a, [&](Values& line, float) {
      RoundScaled(kInt8, scaling::CurrentScale(rounding.rule, AmaxOf(line)), line);
    });
  }

  TEST_CASE("attention's operands: blocks along the sum") {
    for (const BlockScale scale : {BlockScale::kE8M0, BlockScale::kFp8E4M3, BlockScale::kFp32}) {
      const NumberFormat element = scale == BlockScale::kFp8E4M3 ? kFp4E2M1 : kFp8E4M3;
      OperandRounding rounding;
      rounding.rounds = true, rounding.block = DefaultBlockFormat(element, scale);
      rounding.format = element;
      // fp32 scales of several blocks a line, whose codes accumulators add block by block.
      if (scale == BlockScale::kFp32) rounding.block->block = 32;
      for (const bool accumulates : {false, true}) {
        Attention a(rounding);
        if (accumulates) a.Accumulate(kFine);
        a.Run();
        CheckAgainst(a, [&](Values& line, float amax) {
          BlockLayout layout;
          layout.length = static_cast<std::int64_t>(line.size());
          QuantizeBlocks(*rounding.block, layout, amax, false, line.data(), {line.data()}, nullptr);
        });
        CHECK(a.blocks[IndexOf(kSQ)].numel == kImages * kHeads * kTokens * kWidth);
      }
    }
  }

  TEST_CASE("attention: sums that are judged lose what they lose where they are made") {
    const scaling::Accumulator& rule = *scaling::AccumulatorNamed("hopper_fp8");
    std::vector<OperandRounding> roundings = {OperandRounding{}, Plain(kFp8E4M3), Plain(kFp8E4M3)};
    roundings[2].row_scaled = true;
    for (const BlockScale scale : {BlockScale::kFp8E4M3, BlockScale::kFp32}) {
      OperandRounding& blocks = roundings.emplace_back();
      blocks.rounds = true, blocks.format = kFp4E2M1;
      blocks.block = DefaultBlockFormat(kFp4E2M1, scale), blocks.block->block = 16;
    }
    for (const OperandRounding& rounding : roundings) {
      Attention made(rounding), plain(rounding);
      made.Accumulate(rule), made.Judge(rule), plain.Judge(rule);
      made.Run(), plain.Run();
      for (std::size_t i = 0; i < 2; ++i) {
        const scaling::AccumulatorCounts &own = made.counts[i], &judged = made.judged[i],
                                         &beside = plain.judged[i];
        CHECK(own.sums > 0);
        CHECK(own.sums == judged.sums);
        CHECK(own.products == judged.products);
        CHECK(own.swallowed == judged.swallowed);
        CHECK(own.noise == judged.noise);
        // Sums in fp32 give probabilities and gradients of scores that are a little other ones.
        CHECK(own.sums == beside.sums);
        CHECK(std::abs(own.products - beside.products) <= own.products / 200);
        CHECK(std::abs(own.swallowed - beside.swallowed) <= own.swallowed / 20 + 20);
      }
    }
  }

  TEST_CASE("attention's operands: without a rounding nothing changes") {
    Attention plain{OperandRounding{}}, rounded(Plain(kFp32));
    plain.Run(), rounded.Run();
    CHECK(Bench::Get(plain.spec.y) == Bench::Get(rounded.spec.y));
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(Bench::Get(plain.spec.dx[i].tensor) == Bench::Get(rounded.spec.dx[i].tensor));
  }
}

}  // namespace
}  // namespace ada::backend::test

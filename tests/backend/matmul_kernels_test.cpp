// Convolution and linear layers at awkward shapes and in every kind of format against loops in
// double: what a path over tiles of fixed sizes may get wrong at its tails.
#include <doctest/doctest.h>

#include "backend/matmul_cases.h"

namespace ada::backend::test {
namespace {

// The error of an fp32 sum in any order, relative to the sum of its terms' magnitudes. An addition
// rounds by at most 2^-24 of its partial sum, which is at most all magnitudes: in the worst case
// additions * 2^-24, and values in two bf16 parts take four of them a product (whose magnitudes add
// up to the product's). Terms of random signs and deviation s have partial sums of sqrt(k) s whose
// errors add up like a random walk, to sqrt(sum of k / 3) * 2^-24 s <= 0.41 * 2^-24 * s * additions
// (four times as many additions: 0.82), while the magnitudes of products of normal values sum to
// 0.64 s * terms. So 2^-21 is six standard deviations or more whatever the number of terms, and the
// worst case of two. A product alone has at most 22 bits: its parts' sums are exact.
double SumError(std::int64_t terms) { return terms <= 1 ? 0 : 0x1p-21; }

void CheckValues(const MatmulBench& p, int rows, const NaiveMatmul& want) {
  const MatmulCase& c = p.product;
  const MatmulSpec& s = p.spec;
  const std::int64_t window = c.w().numel() / c.out, pixels = rows * c.y().h * c.y().w;
  CheckTensor(s.y, want.y, SumError(window + c.bias));
  CheckTensor(s.dx.tensor, want.dx, SumError(c.out / c.groups * c.kernel[0] * c.kernel[1]));
  CheckTensor(s.dw, ShareMagnitudes(c, want.dw), SumError(pixels));
  if (c.bias) CheckTensor(s.db, want.db, SumError(pixels));
  CHECK(s.y_stats->numel == rows * c.y().per_image());
  CHECK(s.dx.stats->numel == rows * c.x.per_image());
}

void CheckStep(const MatmulCase& c, const MatmulFormats& formats, int rows) {
  constexpr float kScale = 8, kAlpha = 4;
  Bench bench;
  MatmulBench p(bench, c, formats, kScale, kAlpha);
  MatmulSpec& s = p.spec;
  p.Step(*p.MakeOp(bench), MakePass(rows));
  Values w = Bench::Get(s.w);
  for (float& v : w) v = RoundTo(s.w_format, v);
  NaiveMatmul want = ComputeNaively(c, rows, Bench::Get(s.x), w, s.b ? Bench::Get(s.b) : Values{},
                                    Bench::Get(s.dy.tensor));
  for (Exact& sum : want.dx) sum *= kAlpha;
  for (Exact& sum : want.dw) sum *= 1 / kScale;
  for (Exact& sum : want.db) sum *= 1 / kScale;
  CheckValues(p, rows, want);
  CHECK(*s.dx.scale == kScale * kAlpha);
  // Where nobody counts, rounding may be part of the product: the same bits.
  const Values y = Bench::Get(s.y), dx = Bench::Get(s.dx.tensor), dw = Bench::Get(s.dw);
  const float largest_y = s.y_stats->max_abs, largest_dx = s.dx.stats->max_abs;
  s.y = bench.Make(s.y.shape, s.y.format), s.dw = bench.Make(s.dw.shape, kFp32);
  s.dx = bench.MakeGradient(s.x.shape, s.dx.tensor.format), s.dx.moments = nullptr;
  p.Step(*p.MakeOp(bench), QuietPass(rows));
  CheckEqual(s.y, y), CheckEqual(s.dx.tensor, dx), CheckEqual(s.dw, dw);
  CHECK(s.y_stats->max_abs == largest_y);
  CHECK(s.dx.stats->max_abs == largest_dx);
}

void CheckStep(const MatmulCase& c, const FormatSet& f, int rows) {
  CAPTURE(Text(c));
  CAPTURE(f.name);
  CAPTURE(rows);
  CheckStep(c, f.formats, rows);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("tiles: awkward shapes in fp16 and bf16, whole batches and tails") {
    for (const MatmulCase& c : KernelMatmuls())
      for (const std::size_t format : {0u, 1u}) {
        CheckStep(c, KernelFormats()[format], static_cast<int>(c.x.n));
        CheckStep(c, KernelFormats()[format], static_cast<int>(c.x.n) - 1);
      }
  }

  TEST_CASE("tiles: every format and mixture of formats") {
    const std::vector<MatmulCase> products = KernelMatmuls();
    std::size_t next = 0;
    for (const FormatSet& f : KernelFormats())
      for (int i = 0; i < 6; ++i, next += 7) {
        const MatmulCase& c = products[next % products.size()];
        CheckStep(c, f, static_cast<int>(c.x.n));
      }
  }

  TEST_CASE("tiles: random shapes, formats and rows") {
    RandomStream random(5, StreamId("formats and rows"));
    for (const MatmulCase& c : RandomMatmuls(150, 4e5, 1)) {
      const auto formats = random.Below(static_cast<std::uint32_t>(KernelFormats().size()));
      const int rows = 1 + static_cast<int>(random.Below(static_cast<std::uint32_t>(c.x.n)));
      CheckStep(c, KernelFormats()[formats], rows);
    }
  }

  TEST_CASE("tiles: several chunks and groups, the last one partial") {
    const std::array<int, 2> one = {1, 1}, two = {2, 2}, three = {3, 3}, no = {0, 0};
    const std::vector<MatmulCase> large = {
        {"16", {11, 32, 32, 16}, 16, three, one, one, one, 1, false},
        {"32, stride 2", {37, 16, 17, 16}, 32, three, two, one, one, 1, true},
        {"64", {35, 8, 8, 64}, 64, three, one, one, one, 1, false},
        {"1x1, 17 to 33", {67, 9, 7, 17}, 33, one, one, no, one, 1, false},
        LinearCase("linear", {700, 1, 1, 64}, 10, true),
        LinearCase("wide linear", {67, 1, 1, 513}, 513, true),
        LinearCase("wide linear of large images", {67, 8, 9, 30}, 160, true)};
    for (const MatmulCase& c : large) {
      CheckStep(c, KernelFormats()[0], static_cast<int>(c.x.n) - 2);
      CheckStep(c, KernelFormats()[1], static_cast<int>(c.x.n));
    }
  }

  TEST_CASE("tiles: one op serves batches of changing size and new weights") {
    for (const MatmulCase& c : RandomMatmuls(6, 2e5, 3)) {
      CAPTURE(Text(c));
      Bench bench;
      MatmulBench p(bench, c, kFp16, 1, 1);
      const auto op = p.MakeOp(bench);
      const int all = static_cast<int>(c.x.n);
      std::uint64_t seed = 90;
      for (const int rows : {all, 1, all, (all + 1) / 2}) {
        CAPTURE(rows);
        Bench::Set(p.spec.y, Values(static_cast<std::size_t>(c.y().numel()), -7.0f));
        Values w = Normal(static_cast<std::size_t>(c.w().numel()), 0.3, ++seed);
        Bench::Set(p.spec.w, w);
        p.Step(*op, MakePass(rows));
        for (float& v : w) v = RoundTo(kFp16, v);
        const NaiveMatmul want =
            ComputeNaively(c, rows, Bench::Get(p.spec.x), w,
                           c.bias ? Bench::Get(p.spec.b) : Values{}, Bench::Get(p.spec.dy.tensor));
        CheckTensor(p.spec.y, want.y, SumError(2), -7.0f);
        CheckTensor(p.spec.dw, want.dw, SumError(2));
      }
    }
  }

  // Under delayed scaling: a value of 8 bits times a scale of 24 has them all.
  TEST_CASE("tiles: values in fp32 storage may lie off their format's grid") {
    const MatmulCase c = KernelMatmuls()[2];
    for (const NumberFormat& format : {kFp8E4M3, kFp16, kBf16, kCb16}) {
      CAPTURE(FormatName(format));
      Bench bench;
      MatmulBench p(bench, c, format, 1, 1);
      MatmulSpec& s = p.spec;
      scaling::TensorScaler per_tensor_scale;
      per_tensor_scale.scale = 13;
      s.w_style.per_tensor_scale = &per_tensor_scale;
      const auto scaled = [&](const Tensor& t) {
        Values values = Bench::Get(t);
        for (float& v : values) v = RoundTo(format, v * 13) / 13;
        return values;
      };
      const Values x = scaled(s.x), w = scaled(s.w), dy = scaled(s.dy.tensor);
      const auto put = [&](Tensor& t, const Values& values) {
        t = bench.MakeF32(t.shape, format);
        std::copy(values.begin(), values.end(), t.f32());
      };
      put(s.x, x), put(s.dy.tensor, dy);
      s.y = bench.Make(s.y.shape, kFp32), s.dx = bench.MakeGradient(s.x.shape, kFp32);
      p.Step(*p.MakeOp(bench), MakePass(3));
      const NaiveMatmul want = ComputeNaively(c, 3, x, w, Bench::Get(s.b), dy);
      CheckTensor(s.y, want.y, SumError(2));
      CheckTensor(s.dx.tensor, want.dx, SumError(2));
      CheckTensor(s.dw, want.dw, SumError(2));
    }
  }

  TEST_CASE("tiles: without dx, and for evaluation alone") {
    for (const MatmulCase& c : RandomMatmuls(8, 2e5, 4)) {
      CAPTURE(Text(c));
      Bench bench;
      MatmulBench p(bench, c, kFp16, 2, 4);
      MatmulSpec& s = p.spec;
      const int rows = static_cast<int>(c.x.n);
      s.dx = Gradient{}, s.scaler = nullptr;
      p.Step(*p.MakeOp(bench), MakePass(rows));
      const Values y = Bench::Get(s.y), dw = Bench::Get(s.dw);
      Values w = Bench::Get(s.w);
      for (float& v : w) v = RoundTo(kFp16, v);
      NaiveMatmul want =
          ComputeNaively(c, rows, Bench::Get(s.x), w, c.bias ? Bench::Get(s.b) : Values{},
                         Bench::Get(s.dy.tensor));
      for (Exact& sum : want.dw) sum *= 0.5;
      CheckTensor(s.y, want.y, SumError(2));
      CheckTensor(s.dw, want.dw, SumError(2));
      s.dy = Gradient{}, s.dw = s.db = Tensor{};
      s.y_stats = s.w_stats = s.dw_stats = nullptr;
      s.y = bench.Make(c.y(), kFp16);
      const auto evaluation = p.MakeOp(bench);
      Pass pass = MakePass(rows);
      pass.training = false;
      evaluation->RefreshWeights({});
      evaluation->Forward(pass);
      CheckEqual(s.y, y);
    }
  }
}

}  // namespace ada::backend::test

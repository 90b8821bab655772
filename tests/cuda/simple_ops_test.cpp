// Input, relu, functions of values, add, concat, dropout, shortcut, flatten and casts against the
// CPU's, bit for bit: whole batches and tails, in place, with and without counts; every way to an
// alpha.
#include <doctest/doctest.h>

#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

const Shape kShape = {9, 10, 12, 35};  // no multiple of a block
constexpr int kRows = 7;

std::size_t Size(const Shape& shape) { return static_cast<std::size_t>(shape.numel()); }
Pass PassOf(int rows, bool count, bool training = true) {
  Pass pass;
  pass.rows = rows, pass.count = count, pass.training = training;
  pass.seed = 0xfedcba9876543210ull, pass.draw = 3;
  return pass;
}
// Counted and not, whole and in part.
const std::vector<Pass>& Passes() {
  static const std::vector<Pass> passes = {PassOf(9, true), PassOf(kRows, false),
                                           PassOf(kRows, true), PassOf(1, false)};
  return passes;
}
Values Signed(const Shape& shape, std::uint64_t seed) {
  Values values = Normal(Size(shape), 1, seed);
  for (std::size_t i = 0; i < values.size(); i += 5) values[i] = i % 2 == 0 ? 0.0f : -0.0f;
  return values;
}

// x, y of one shape each, gradients of a relu's kind: exact, moments wanted.
template <class Spec>
Spec Exact(Lab& lab, const Shape& x, const Shape& y, const Kind& kind, const Values& values) {
  Spec spec;
  spec.x = lab.Make(x, kind.format, values), spec.y = lab.Make(y, kind.format);
  spec.dy = lab.MakeGradient(y, kind.format, 32, Signed(y, 2));
  spec.dx = lab.MakeGradient(x, kind.format);
  spec.dx.stats = nullptr;
  return spec;
}
template <class Spec>
void Run(Lab& lab, Findings& findings, Op& op, const Spec& spec) {
  for (const Pass& pass : Passes()) {
    op.Forward(pass);
    findings.Add("y", lab, spec.y);
    if (!spec.dx) continue;
    op.Backward(pass);
    findings.Add("dx", lab, spec.dx);
  }
}

// Four steps, the last with an infinite gradient.
void RunCast(Lab& lab, Findings& findings, scaling::LayerMethod method, bool reference,
             double sigma) {
  ScaleSpec spec;
  spec.x = lab.Make(kShape, kFp16, Normal(Size(kShape), 1, 1)), spec.y = lab.Make(kShape, kFp32);
  spec.y_stats = lab.Share<TensorStats>();
  spec.dy = lab.MakeGradient(kShape, kFp32, 8), spec.dx = lab.MakeGradient(kShape, kFp16);
  scaling::LayerScaler scaler;
  scaling::LayerRule& rule = scaler.rule;
  rule.method = method, rule.fixed_scale = 24, rule.has_weight = false;
  rule.u_min = kFp16.smallest_subnormal(), rule.u_max = kFp16.largest();
  rule.reference = reference, rule.update_interval = 2;
  scaler.state.state_scale = 64;
  spec.scaler = lab.Share(scaler);
  const auto op = lab->Make(spec);
  for (int step = 0; step < 4; ++step) {
    Values dy = Normal(Size(kShape), sigma, static_cast<std::uint64_t>(step));
    if (step == 3) dy[77] = std::numeric_limits<float>::infinity();
    lab.Set(spec.dy.tensor, dy);
    TensorMoments moments;
    moments.mean_square = step == 3 ? INFINITY : sigma * sigma;
    moments.min = static_cast<float>(-4 * sigma), moments.max = -moments.min;
    moments.min_abs = static_cast<float>(1e-4 * sigma);
    lab->Upload(reinterpret_cast<std::byte*>(spec.dy.moments), &moments, sizeof moments);
    op->Forward(PassOf(kRows, step == 0));
    op->Backward(PassOf(kRows, step == 0));
    findings.Add("y", lab, spec.y);
    findings.Add("dx", lab, spec.dx);
    findings.Add(lab.Fetched(spec.scaler));
  }
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("relu: forward, backward, and dx where dy lies") {
    for (const Kind& kind : MainKinds())
      for (const bool in_place : {false, true})
        OnBoth([&](Lab& lab, Findings& findings) {
          Values x = Signed(kShape, 1);
          x[3] = std::nanf(""), x[4] = std::numeric_limits<float>::infinity(), x[5] = -x[4];
          auto spec = Exact<ReluSpec>(lab, kShape, kShape, kind, x);
          if (in_place) spec.dx.tensor = spec.dy.tensor;
          Run(lab, findings, *lab->Make(spec), spec);
        });
  }

  TEST_CASE("functions of values: forward, backward, and dx where dy lies") {
    const auto check = [](auto plain, const Kind& kind, bool in_place) {
      OnBoth([&](Lab& lab, Findings& findings) {
        Values x = Signed(kShape, 1);
        for (std::size_t i = 0; i < x.size(); i += 3) x[i] *= 40;
        x[3] = std::nanf(""), x[4] = std::numeric_limits<float>::infinity(), x[5] = -x[4];
        auto spec = Exact<decltype(plain)>(lab, kShape, kShape, kind, x);
        spec.y_stats = lab.Share<TensorStats>(), spec.dx.stats = lab.Share<TensorStats>();
        spec.y_style.stochastic = true, spec.y_style.stream = 5;
        if (in_place) spec.dx.tensor = spec.dy.tensor;
        const auto op = lab->Make(spec);
        Run(lab, findings, *op, spec);
        findings.Add("stats", lab.Fetched(spec.y_stats));
      });
    };
    for (const Kind& kind : MainKinds())
      for (const bool in_place : {false, true}) {
        check(SigmoidSpec(), kind, in_place);
        check(SiluSpec(), kind, in_place);
        check(ActivationSpec<Tanh>(), kind, in_place);
        check(ActivationSpec<Hardtanh>(), kind, in_place);
        check(ActivationSpec<Relu6>(), kind, in_place);
        check(ActivationSpec<LeakyRelu>(), kind, in_place);
        check(ActivationSpec<Hardsigmoid>(), kind, in_place);
        check(ActivationSpec<Hardswish>(), kind, in_place);
        check(ActivationSpec<Gelu>(), kind, in_place);
        check(ActivationSpec<GeluTanh>(), kind, in_place);
      }
  }

  TEST_CASE("concat: parts of many sizes, storages mixed; parts of dy, one not asked for") {
    for (const Kind& kind : MainKinds())
      OnBoth([&](Lab& lab, Findings& findings) {
        ConcatSpec spec;
        const std::int64_t channels[] = {8, 35, 1, 12};
        for (std::size_t k = 0; k < 4; ++k) {
          const Shape part = {9, 10, 12, channels[k]};
          spec.x.push_back(lab.Make(part, MainKinds()[k % 3].format, Signed(part, k)));
          spec.dx.push_back(k == 1 ? Gradient() : lab.MakeGradient(part, kind.format));
          spec.dx[k].stats = nullptr;
        }
        const Shape all = {9, 10, 12, 56};
        spec.y = lab.Make(all, kind.format), spec.y_stats = lab.Share<TensorStats>();
        spec.dy = lab.MakeGradient(all, kind.format, 32, Signed(all, 9));
        const auto op = lab->Make(spec);
        for (const Pass& pass : Passes()) {
          op->Forward(pass);
          op->Backward(pass);
          findings.Add("y", lab, spec.y);
          findings.Add("stats", lab.Fetched(spec.y_stats));
          for (const Gradient& dx : spec.dx)
            if (dx) findings.Add("dx", lab, dx);
        }
      });
  }

  TEST_CASE("add: two, three and five terms, storages mixed") {
    for (const Kind& kind : MainKinds())
      for (const int count : {1, 2, 3, 5})
        OnBoth([&](Lab& lab, Findings& findings) {
          AddSpec spec;
          for (int k = 0; k < count; ++k)
            spec.x.push_back(lab.Make(kShape, MainKinds()[static_cast<std::size_t>(k) % 3].format,
                                      Normal(Size(kShape), 1, static_cast<std::uint64_t>(k))));
          spec.y = lab.Make(kShape, kind.format);
          spec.y_stats = lab.Share<TensorStats>();
          const auto op = lab->Make(spec);
          for (const Pass& pass : Passes()) {
            op->Forward(pass);
            findings.Add("y", lab, spec.y);
            findings.Add("stats", lab.Fetched(spec.y_stats));
          }
        });
  }

  TEST_CASE("dropout: the same values are dropped; none in evaluation") {
    for (const Kind& kind : MainKinds())
      for (const bool casts : {false, true})
        OnBoth([&](Lab& lab, Findings& findings) {
          auto spec = Exact<DropoutSpec>(lab, kShape, kShape, kind, Signed(kShape, 1));
          if (casts) spec.y = lab.Make(kShape, kFp8E4M3);
          spec.rate = 0.3f, spec.stream = 99;
          spec.y_stats = lab.Share<TensorStats>(), spec.dx.stats = lab.Share<TensorStats>();
          spec.y_style.stochastic = true, spec.y_style.stream = 5;
          const auto op = lab->Make(spec);
          Run(lab, findings, *op, spec);
          op->Forward(PassOf(kRows, true, false));
          findings.Add("y", lab, spec.y);
          findings.Add("stats", lab.Fetched(spec.y_stats));
        });
  }

  TEST_CASE("shortcut: strides and odd sizes, zeros around") {
    for (const Kind& kind : MainKinds())
      for (const Shape& x : {Shape{9, 8, 8, 16}, Shape{9, 7, 9, 3}, Shape{9, 5, 5, 12}})
        for (const int stride : {1, 2, 3})
          OnBoth([&](Lab& lab, Findings& findings) {
            const Shape y = {x.n, (x.h - 1) / stride + 1, (x.w - 1) / stride + 1,
                             x.c == 12 ? x.c + 6 : 2 * x.c};
            auto spec = Exact<ShortcutSpec>(lab, x, y, kind, Signed(x, 1));
            spec.stride = {stride, stride};
            Run(lab, findings, *lab->Make(spec), spec);
          });
  }

  TEST_CASE("slice: some channels, zeros beside them in dx") {
    for (const Kind& kind : MainKinds())
      for (const std::int64_t channels : {1, 3, 8})
        for (const int first : {0, 3, 8})
          OnBoth([&](Lab& lab, Findings& findings) {
            const Shape x{9, 5, 7, 16}, y{9, 5, 7, channels};
            auto spec = Exact<SliceSpec>(lab, x, y, kind, Signed(x, 1));
            spec.first = first;
            Run(lab, findings, *lab->Make(spec), spec);
          });
  }

  TEST_CASE("flatten: channel, row, column, and back") {
    for (const Kind& kind : MainKinds())
      for (const Shape& x : {kShape, Shape{9, 1, 1, 17}, Shape{9, 5, 3, 1}})
        OnBoth([&](Lab& lab, Findings& findings) {
          const Shape y = {x.n, 1, 1, x.per_image()};
          auto spec = Exact<FlattenSpec>(lab, x, y, kind, Signed(x, 1));
          Run(lab, findings, *lab->Make(spec), spec);
        });
  }

  TEST_CASE("input: images are rounded, in part and counted") {
    for (const Kind& kind : AllKinds())
      OnBoth([&](Lab& lab, Findings& findings) {
        InputSpec spec;
        spec.x = lab.Make(kShape, kFp32);
        spec.y = lab.Make(kShape, kind.format, {}, kind.storage == Storage::kF32);
        if (kind.storage == Storage::kF32) {
          spec.y_style.per_tensor_scale = lab.Share(scaling::TensorScaler{3});
          spec.y_stats = lab.Share<TensorStats>();
        }
        const auto op = lab->MakeInput(spec);
        for (const Pass& pass : Passes()) {
          const Values images = Normal(Size(kShape), 1, static_cast<std::uint64_t>(pass.rows));
          op->SetImages(images.data(), pass.rows);
          op->Forward(pass);
          findings.Add("y", lab, spec.y);
          if (spec.y_stats != nullptr) findings.Add("stats", lab.Fetched(spec.y_stats));
        }
      });
  }

  TEST_CASE("casts: every method's alpha, several steps, ours and the authors'") {
    using scaling::LayerMethod;
    for (const LayerMethod method :
         {LayerMethod::kPass, LayerMethod::kFixed, LayerMethod::kApproxRange,
          LayerMethod::kLognormal, LayerMethod::kExactRange, LayerMethod::kState})
      for (const bool reference : {false, true})
        for (const double sigma : {1e-8, 1e-3, 1e4}) {
          CAPTURE(static_cast<int>(method));
          CAPTURE(reference);
          CAPTURE(sigma);
          OnBoth([&](Lab& lab, Findings& findings) {
            RunCast(lab, findings, method, reference, sigma);
          });
        }
  }
}

}  // namespace ada::backend::test

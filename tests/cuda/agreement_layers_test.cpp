// All other layers of the CUDA backend against the CPU's: every format and style of rounding, tame
// and wild values.
#include <doctest/doctest.h>

#include "backend/naive_batch_norm.h"
#include "cuda/agreement_lab.h"

namespace ada::backend::test {
namespace {

std::size_t Size(const Shape& shape) { return static_cast<std::size_t>(shape.numel()); }

// Every family of formats, in all of a layer's roles or in one.
std::vector<Roles> RolesAndKinds() {
  std::vector<Roles> all = AllRoles();
  for (const Kind& kind : AllKinds()) {
    if (kind.storage != StorageFor(kind.format)) continue;
    const NumberFormat& f = kind.format;
    if (!f.is_signed) continue;
    all.push_back({f, f, f, f, f, f});
    all.push_back({f, f, f, f, f, f, true});
  }
  return all;
}

// An op with x, y, dy and dx, in one pass after the other.
template <class Spec, class Make>
void CheckPlain(const char* what, const Roles& r, Spec spec, const Shape& x, const Shape& y,
                bool rounds_y, Make&& make, bool wild = false) {
  CAPTURE(what);
  CAPTURE(wild);
  Agreement both;
  Lab& lab = both.lab;
  const auto values = [&](const Shape& shape, std::uint64_t seed) {
    return wild ? RandomBits(Size(shape), seed) : Normal(Size(shape), 1, seed);
  };
  spec.layer = what;
  spec.x = lab.Make(x, r.x, values(x, 1));
  spec.dy = both.InGradient(y, r.dy, values(y, 2), 4);
  const RoundingStyle y_style = both.Style(r.stochastic, 1, r.y_scale);
  spec.y = rounds_y ? both.Out(y, r.y, y_style) : lab.Make(y, r.x);
  if constexpr (requires { spec.y_style; })
    spec.y_style = y_style, spec.y_stats = lab.Share(TensorStats());
  spec.dx = both.OutGradient(x, r.dx, both.Style(r.stochastic, 3, r.dx_scale));
  const auto op = make(*lab, spec);
  both.Steps(*op, x,
             [&](int step) { lab.Set(spec.x, values(x, 10 + static_cast<std::uint64_t>(step))); });
}

void CheckPools(const Roles& r, const Shape& x, const std::array<int, 2>& kernel,
                const std::array<int, 2>& stride, const std::array<int, 2>& padding, bool wild) {
  const Shape y{x.n, (x.h + 2 * padding[0] - kernel[0]) / stride[0] + 1,
                (x.w + 2 * padding[1] - kernel[1]) / stride[1] + 1, x.c};
  MaxPoolSpec max;
  max.kernel = kernel, max.stride = stride, max.padding = padding;
  CheckPlain(
      "max pool", r, max, x, y, false, [](Backend& b, const MaxPoolSpec& s) { return b.Make(s); },
      wild);
  AvgPoolSpec average;
  average.kernel = kernel, average.stride = stride, average.padding = padding;
  CheckPlain(
      "average pool", r, average, x, y, true,
      [](Backend& b, const AvgPoolSpec& s) { return b.Make(s); }, wild);
}

void CheckElementwise(const Roles& r, const Shape& x, bool wild) {
  CheckPlain(
      "relu", r, ReluSpec{}, x, x, false, [](Backend& b, const ReluSpec& s) { return b.Make(s); },
      wild);
  const auto make = [](Backend& b, const auto& s) { return b.Make(s); };
  CheckPlain("sigmoid", r, SigmoidSpec{}, x, x, true, make, wild);
  CheckPlain("silu", r, SiluSpec{}, x, x, true, make, wild);
  CheckPlain("tanh", r, ActivationSpec<Tanh>{}, x, x, true, make, wild);
  CheckPlain("leaky relu", r, ActivationSpec<LeakyRelu>{}, x, x, true, make, wild);
  CheckPlain("hardsigmoid", r, ActivationSpec<Hardsigmoid>{}, x, x, true, make, wild);
  CheckPlain("hardswish", r, ActivationSpec<Hardswish>{}, x, x, true, make, wild);
  CheckPlain("gelu", r, ActivationSpec<Gelu>{}, x, x, true, make, wild);
  CheckPlain("gelu tanh", r, ActivationSpec<GeluTanh>{}, x, x, true, make, wild);
  CheckPlain("softplus", r, ActivationSpec<Softplus>{}, x, x, true, make, wild);
  CheckPlain("elu", r, ActivationSpec<Elu>{}, x, x, true, make, wild);
  StochasticDepthSpec depth;
  depth.rate = 0.3f, depth.stream = 9;
  CheckPlain("stochastic depth", r, depth, x, x, true, make, wild);
  // Parameters in memory of both backends.
  const auto vector = [](Backend& b, std::int64_t channels, std::uint64_t seed) {
    Tensor t{{1, 1, 1, channels}, kFp32, Storage::kF32, nullptr};
    t.data = b.Allocate(t.bytes());
    const Values values = Normal(static_cast<std::size_t>(channels), 1, seed);
    b.Upload(t.data, values.data(), t.bytes());
    return t;
  };
  CheckPlain(
      "channel scale", r, ChannelScaleSpec{}, x, x, true,
      [&](Backend& b, ChannelScaleSpec s) {
        s.w = vector(b, x.c, 1), s.dw = vector(b, x.c, 2);
        return b.Make(s);
      },
      wild);
  for (const std::int64_t slopes : {std::int64_t{1}, x.c})
    CheckPlain(
        "prelu", r, PreluSpec{}, x, x, true,
        [&](Backend& b, PreluSpec s) {
          s.w = vector(b, slopes, 1), s.dw = vector(b, slopes, 2);
          return b.Make(s);
        },
        wild);
  for (const bool align_corners : {false, true}) {
    BilinearSpec smooth;
    smooth.align_corners = align_corners;
    CheckPlain("bilinear", r, smooth, x, {x.n, 3 * x.h, 3 * x.w, x.c}, true, make, wild);
  }
  CheckPlain(
      "affine", r, AffineSpec{}, x, x, true,
      [&](Backend& b, AffineSpec s) {
        s.factor = vector(b, x.c, 1), s.offset = vector(b, x.c, 2);
        return b.Make(s);
      },
      wild);
  const auto norm = [&](Backend& b, auto s) {
    s.gamma = vector(b, x.c, 1), s.beta = vector(b, x.c, 2);
    s.dgamma = vector(b, x.c, 3), s.dbeta = vector(b, x.c, 4);
    return b.Make(s);
  };
  CheckPlain("layer norm", r, LayerNormSpec{}, x, x, true, norm, wild);
  CheckPlain("group norm", r, GroupNormSpec{}, x, x, true, norm, wild);
  DropoutSpec drop;
  drop.rate = 0.3f, drop.stream = 9;
  CheckPlain(
      "dropout", r, drop, x, x, true, [](Backend& b, const DropoutSpec& s) { return b.Make(s); },
      wild);
}

void CheckShapes(const Roles& r, const Shape& x) {
  // Nothing is rounded: formats are those of the inputs.
  Roles exact = r;
  exact.dx = r.dy, exact.dx_scale = 0, exact.stochastic = false;
  const auto unrounded = [](auto spec) {
    spec.dx.stats = nullptr, spec.dx.style = {};
    return spec;
  };
  ShortcutSpec shortcut;
  shortcut.stride = {2, 2};
  CheckPlain("shortcut", exact, shortcut, x, {x.n, (x.h + 1) / 2, (x.w + 1) / 2, 2 * x.c}, false,
             [&](Backend& b, const ShortcutSpec& s) { return b.Make(unrounded(s)); });
  SliceSpec slice;
  slice.first = static_cast<int>(x.c / 2);
  CheckPlain("slice", exact, slice, x, {x.n, x.h, x.w, x.c - x.c / 2}, false,
             [&](Backend& b, const SliceSpec& s) { return b.Make(unrounded(s)); });
  PixelShuffleSpec shuffle;
  if (x.c % 4 == 0)
    CheckPlain("pixel shuffle", exact, shuffle, x, {x.n, 2 * x.h, 2 * x.w, x.c / 4}, false,
               [&](Backend& b, const PixelShuffleSpec& s) { return b.Make(unrounded(s)); });
  CheckPlain("flatten", exact, FlattenSpec{}, x, {x.n, 1, 1, x.per_image()}, false,
             [&](Backend& b, const FlattenSpec& s) { return b.Make(unrounded(s)); });
}

void CheckCast(const Roles& r, const Shape& x, scaling::LayerMethod method, bool reference) {
  CheckPlain("scale", r, ScaleSpec{}, x, x, true, [&](Backend& b, ScaleSpec s) {
    // A scaler of its own in shared memory of the compare backend.
    const SharedMemory memory = b.AllocateShared(sizeof(scaling::LayerScaler));
    auto& scaler = *new (memory.host) scaling::LayerScaler();
    scaler.rule.method = method, scaler.rule.reference = reference;
    scaler.rule.has_weight = false, scaler.rule.fixed_scale = 8;
    scaler.rule.u_min = r.dx.smallest_subnormal(), scaler.rule.u_max = r.dx.largest();
    scaler.rule.fp16_gradients = r.dy == kFp16;
    scaler.state.state_scale = 32;
    b.Send(memory);
    s.scaler = reinterpret_cast<scaling::LayerScaler*>(memory.backend);
    return b.Make(s);
  });
}

void CheckSums(const Roles& r, const Shape& shape, bool wild, bool reference) {
  Agreement both;
  Lab& lab = both.lab;
  AddSpec add;
  BranchSumSpec sum;
  add.layer = "add", sum.layer = "branch";
  sum.reference = reference;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const NumberFormat& format = i == 0 ? r.x : i == 1 ? r.y : r.dy;
    const Values values = wild ? RandomBits(Size(shape), i) : Normal(Size(shape), 1e-2, i);
    add.x.push_back(lab.Make(shape, format, values));
    sum.branches.push_back(
        both.InGradient(shape, reference ? r.dx : format, values, i == 1 ? 16 : 8));
  }
  add.y_style = both.Style(r.stochastic, 1, r.y_scale), add.y_stats = lab.Share(TensorStats());
  add.y = both.Out(shape, r.y, add.y_style);
  const RoundingStyle style = both.Style(r.stochastic, 2, reference ? 0 : r.dx_scale);
  sum.sum = both.OutGradient(shape, r.dx, style);
  sum.decision = lab.Share(scaling::ScaleDecision());
  both.Steps(*lab->Make(add), shape);
  both.Steps(*lab->Make(sum), shape);
}

void CheckBatchNorm(const Roles& r, const BatchNormCase& c) {
  CAPTURE(c.name);
  Agreement both;
  Lab& lab = both.lab;
  const std::size_t n = Size(c.x), k = static_cast<std::size_t>(c.x.c);
  Values x = Normal(n, 1.5, 1), variance = Normal(k, 1, 4);
  for (std::size_t i = 0; i < n; ++i) x[i] += 0.1f * static_cast<float>(i % k);
  for (float& v : variance) v = 0.5f + v * v;
  BatchNormSpec s;
  s.layer = c.name, s.relu = c.relu;
  s.x = lab.Make(c.x, r.x, x);
  s.gamma = lab.Vector(Normal(k, 1, 2)), s.beta = lab.Vector(Normal(k, 1, 3));
  s.running_mean = lab.Vector(Normal(k, 1, 5)), s.running_var = lab.Vector(variance);
  s.y_style = both.Style(r.stochastic, 1, r.y_scale), s.y_stats = lab.Share(TensorStats());
  if (c.addend) {
    s.addend = lab.Make(c.x, r.w, Normal(n, 1, 6));
    s.sum_style = both.Style(r.stochastic, 2, r.y_scale), s.sum_stats = lab.Share(TensorStats());
  }
  s.y_format = c.addend ? r.x : r.y;
  s.out = both.Out(c.x, r.y, s.y_style);
  s.dy = both.InGradient(c.x, r.dy, Normal(n, 1, 7), 4);
  s.dx = both.OutGradient(c.x, r.dx, both.Style(r.stochastic, 3, r.dx_scale));
  s.dgamma = lab.Vector(Values(k)), s.dbeta = lab.Vector(Values(k));
  const auto op = lab->Make(s);
  if (!op) return;  // declined
  both.Steps(*op, c.x, [&](int step) {
    lab.Set(s.x, Normal(n, 1 + step, 50 + static_cast<std::uint64_t>(step)));
    lab.Set(s.dy.tensor, Normal(n, 1, 60 + static_cast<std::uint64_t>(step)));
  });
  Pass pass;
  pass.rows = static_cast<int>(c.x.n), pass.training = false;
  op->Forward(pass);
}

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("agreement: relu, dropout, pools, sums in every format and style") {
    const Shape shape{5, 9, 7, 19};
    int index = 0;
    for (const Roles& r : RolesAndKinds()) {
      CAPTURE(index++);
      CheckElementwise(r, shape, false);
      CheckElementwise(r, shape, true);
      CheckPools(r, {5, 9, 8, 5}, {3, 3}, {2, 2}, {1, 1}, index % 2 == 0);
      CheckSums(r, shape, index % 3 == 0, false);
      CheckShapes(r, shape);
    }
  }

  TEST_CASE("agreement: pools of every geometry; blocks of many and of no whole image") {
    const Roles& r = AllRoles()[1];
    CheckPools(r, {3, 8, 8, 16}, {2, 2}, {2, 2}, {0, 0}, false);
    CheckPools(r, {3, 9, 7, 16}, {2, 3}, {1, 2}, {1, 1}, false);
    CheckPools(r, {7, 7, 7, 33}, {7, 7}, {7, 7}, {0, 0}, false);
    CheckPools(r, {3, 40, 40, 20}, {3, 3}, {1, 1}, {1, 1}, false);
    CheckElementwise(r, {3, 40, 40, 20}, false);
    CheckElementwise(r, {1, 1, 1, 1}, false);
    CheckElementwise(r, {700, 1, 1, 10}, false);
    CheckShapes(r, {3, 32, 32, 16});
  }

  TEST_CASE("agreement: batch norm with all that is fused to it") {
    int index = 0;
    for (const Roles& r : AllRoles()) {
      CAPTURE(index++);
      for (const BatchNormCase& c : BatchNormCases())
        if (index <= 3 || c.x.h < 32) CheckBatchNorm(r, c);  // large ones in the common formats
    }
  }

  TEST_CASE("agreement: casts under every rule; branches of the authors' program") {
    using scaling::LayerMethod;
    for (const Roles& r : AllRoles()) {
      for (const LayerMethod method :
           {LayerMethod::kPass, LayerMethod::kFixed, LayerMethod::kApproxRange,
            LayerMethod::kLognormal, LayerMethod::kExactRange, LayerMethod::kState})
        for (const bool reference : {false, true}) {
          CAPTURE(static_cast<int>(method));
          CAPTURE(reference);
          if (reference && method >= LayerMethod::kExactRange) continue;
          CheckCast(r, {5, 6, 6, 17}, method, reference);
        }
      CheckSums(r, {5, 6, 6, 17}, false, true);
    }
  }
}

}  // namespace
}  // namespace ada::backend::test

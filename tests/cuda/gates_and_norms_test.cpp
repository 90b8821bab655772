// Products of tensors, factors by channel and image, norms of groups, repeated pixels and adaptive
// means against the CPU's, bit for bit: their sums have one order on every backend.
#include <doctest/doctest.h>

#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

const Shape kFull = {5, 10, 13, 36}, kGate = {5, 1, 1, 36};

Values RandomOf(const Shape& shape, std::uint64_t seed) {
  return Normal(static_cast<std::size_t>(shape.numel()), 1, seed);
}
// Whole and in part, counted and not, as a later micro-batch.
template <class Then>
void Steps(Op& op, Then&& then) {
  for (int step = 0; step < 3; ++step) {
    Pass pass;
    pass.rows = step == 0 ? 5 : 4, pass.loss_terms = 5, pass.count = step != 1;
    pass.accumulate = step == 2, pass.seed = 0xfedcba9876543210ull;
    pass.draw = static_cast<std::uint64_t>(step);
    op.Forward(pass);
    op.Backward(pass);
    then();
  }
}
template <class Spec>
Spec Plain(Lab& lab, const Kind& kind, const Shape& x, const Shape& y) {
  Spec spec;
  spec.x = lab.Make(x, kind.format, RandomOf(x, 1)), spec.y = lab.Make(y, kind.format);
  spec.dy = lab.MakeGradient(y, kind.format, 32, RandomOf(y, 2));
  spec.dx = lab.MakeGradient(x, kind.format);
  if constexpr (requires { spec.y_stats; }) spec.y_stats = lab.Share<TensorStats>();
  return spec;
}
// prepare(lab, spec) fills what is of the kind; of its parameters `gradients` are written.
template <class Spec, class Prepare>
void Check(const Shape& x, const Shape& y, Prepare&& prepare) {
  CAPTURE(Spec::kKind);
  for (const Kind& kind : MainKinds())
    for (const bool has_dx : {true, false})
      OnBoth([&](Lab& lab, Findings& findings) {
        auto spec = Plain<Spec>(lab, kind, x, y);
        const std::vector<Tensor> gradients = prepare(lab, spec);
        if (!has_dx) spec.dx = {};
        const auto op = lab->Make(spec);
        Steps(*op, [&] {
          findings.Add("y", lab, spec.y);
          if (spec.dx) findings.Add("dx", lab, spec.dx);
          for (const Tensor& gradient : gradients) findings.Add("gradient", lab, gradient);
          if constexpr (requires { spec.y_stats; })
            findings.Add("stats", lab.Fetched(spec.y_stats));
        });
      });
}
template <class Spec>
std::vector<Tensor> Affine(Lab& lab, Spec& spec) {
  const auto c = static_cast<std::size_t>(spec.x.shape.c);
  spec.gamma = lab.Vector(Normal(c, 1, 3)), spec.beta = lab.Vector(Normal(c, 1, 4));
  spec.dgamma = lab.Vector(Values(c)), spec.dbeta = lab.Vector(Values(c));
  return {spec.dgamma, spec.dbeta};
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("multiply: equal shapes, and one value a channel on either side") {
    for (const Kind& kind : MainKinds())
      for (const auto& [first, second] : {std::pair{kFull, kFull}, {kFull, kGate}, {kGate, kFull}})
        for (const int asked : {1, 2, 3})
          OnBoth([&, a = first, b = second](Lab& lab, Findings& findings) {
            MultiplySpec spec;
            spec.x = {lab.Make(a, kind.format, RandomOf(a, 1)),
                      lab.Make(b, kind.format, RandomOf(b, 2))};
            spec.y = lab.Make(kFull, kind.format), spec.y_stats = lab.Share<TensorStats>();
            spec.dy = lab.MakeGradient(kFull, kind.format, 32, RandomOf(kFull, 3));
            spec.dx = {lab.MakeGradient(a, kind.format), lab.MakeGradient(b, kind.format)};
            for (std::size_t k = 0; k < 2; ++k)
              if ((asked >> k) % 2 == 0) spec.dx[k] = {};
            const auto op = lab->Make(spec);
            Steps(*op, [&] {
              findings.Add("y", lab, spec.y);
              findings.Add("stats", lab.Fetched(spec.y_stats));
              for (const Gradient& dx : spec.dx)
                if (dx) findings.Add("dx", lab, dx);
            });
          });
  }

  TEST_CASE("channel scale, affine, stochastic depth, upsample") {
    Check<AffineSpec>(kFull, kFull, [](Lab& lab, AffineSpec& spec) {
      spec.factor = lab.Vector(Normal(36, 1, 3)), spec.offset = lab.Vector(Normal(36, 1, 4));
      return std::vector<Tensor>{};
    });
    Check<ChannelScaleSpec>(kFull, kFull, [](Lab& lab, ChannelScaleSpec& spec) {
      spec.w = lab.Vector(Normal(36, 1, 3)), spec.dw = lab.Vector(Values(36));
      return std::vector<Tensor>{spec.dw};
    });
    for (const bool batch : {false, true})
      Check<StochasticDepthSpec>(kFull, kFull, [&](Lab&, StochasticDepthSpec& spec) {
        spec.rate = 0.4f, spec.batch = batch, spec.stream = 77;
        return std::vector<Tensor>{};
      });
    for (const int scale : {1, 2, 3})
      Check<UpsampleSpec>(kFull, {5, 10 * scale, 13 * scale, 36}, [&](Lab&, UpsampleSpec& spec) {
        spec.scale = scale;
        return std::vector<Tensor>{};
      });
  }

  TEST_CASE("layer norm and group norm") {
    for (const Shape& shape : {kFull, kGate, Shape{5, 3, 2, 7}})
      Check<LayerNormSpec>(shape, shape,
                           [](Lab& lab, LayerNormSpec& spec) { return Affine(lab, spec); });
    for (const int groups : {1, 2, 18, 36})
      Check<GroupNormSpec>(kFull, kFull, [&](Lab& lab, GroupNormSpec& spec) {
        spec.groups = groups;
        return Affine(lab, spec);
      });
  }

  TEST_CASE("adaptive average pool") {
    for (const Shape& y : {Shape{5, 3, 4, 36}, {5, 7, 7, 36}, {5, 1, 5, 36}, {5, 12, 20, 36}})
      Check<AvgPoolSpec>(kFull, y, [](Lab&, AvgPoolSpec& spec) {
        spec.adaptive = true;
        return std::vector<Tensor>{};
      });
  }
}

}  // namespace ada::backend::test

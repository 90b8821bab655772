// Every layer's gradients on any backend against finite differences of its own forward pass.
#pragma once
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "backend/finite_differences.h"
#include "backend/op_bench.h"

namespace ada::backend::test {

// Bench: makes tensors and gradients, sets and gets them, shares and fetches what specs point to,
// as Lab does. At most `most` values of a tensor are moved: each costs two forward passes.
template <class Bench>
class GradientChecks {
 public:
  GradientChecks(Bench& bench, std::size_t most) : bench_(bench), most_(most) {}

  // A convolution or linear layer whose dy is `weights` times its scale.
  void Matmul(Op& op, const MatmulSpec& s, const Values& weights) {
    const Pass pass = MakePass(static_cast<int>(s.x.shape.n));
    const auto forward = [&op, pass] {
      op.RefreshWeights(pass);
      op.Forward(pass);
    };
    forward();
    op.Backward(pass);
    const auto by = DifferencesOf(bench_, s.y, weights, most_, forward);
    by.Check("dx", s.x, s.dx.tensor, bench_.Fetched(s.dx.scale));
    by.Check("dw", s.w, s.dw, 1);
    if (s.b) by.Check("db", s.b, s.db, 1);
  }

  void BatchNorm(bool addend, bool relu) {
    CAPTURE(addend);
    CAPTURE(relu);
    const Shape x = {6, 4, 4, 10};
    const Values weights = Random(x, 90);
    BatchNormSpec s = NormOf(x, weights);
    if (addend) s.addend = bench_.Make(x, kFp32, Random(x, 2));
    s.relu = relu;
    const auto op = bench_->Make(s);
    const auto by = Step(*op, s.out, weights);
    by.Check("dx", s.x, s.dx.tensor, bench_.Fetched(s.dx.scale));
    by.Check("dgamma", s.gamma, s.dgamma, 1);
    by.Check("dbeta", s.beta, s.dbeta, 1);
    if (addend) by.Check("addend", s.addend, s.dy.tensor, kScale);
  }

  void Layers() {
    const Shape same = kShape, half = {3, 3, 3, 10};
    const Values x = Random(same, 1);
    const auto windows = [](auto pool) {
      pool.kernel = {3, 3}, pool.stride = {2, 2}, pool.padding = {1, 1};
      return pool;
    };
    AvgPoolSpec global;
    global.kernel = global.stride = {6, 6};
    ShortcutSpec shortcut;
    shortcut.stride = {2, 2};
    scaling::LayerScaler scaler;
    scaler.rule.method = scaling::LayerMethod::kFixed, scaler.rule.fixed_scale = 8;
    ScaleSpec scale;
    scale.scaler = bench_.Share(scaler);
    Layer(ReluSpec(), same, Apart(same));
    Layer(SigmoidSpec(), same, x);
    Layer(SiluSpec(), same, x);
    Layer(ActivationSpec<Tanh>(), same, x);
    Layer(ActivationSpec<Gelu>(), same, x);
    Layer(ActivationSpec<GeluTanh>(), same, x);
    Layer(ActivationSpec<Softplus>(), same, x);
    Layer(ActivationSpec<Elu>(), same, Apart(same));
    // Values away from corners: multiples of 1/16 and 1/32 more.
    Layer(ActivationSpec<Relu6>(), same, Apart(same));
    Layer(ActivationSpec<Hardtanh>(), same, Apart(same));
    Layer(ActivationSpec<LeakyRelu>(), same, Apart(same));
    Layer(ActivationSpec<Hardsigmoid>(), same, Apart(same));
    Layer(ActivationSpec<Hardswish>(), same, Apart(same));
    Layer(windows(MaxPoolSpec()), half, Apart(same));
    Layer(windows(AvgPoolSpec()), half, x);
    Layer(global, {3, 1, 1, 10}, x);
    AvgPoolSpec inside = windows(AvgPoolSpec()), adaptive;
    inside.count_padding = false, adaptive.adaptive = true;
    Layer(inside, half, x);
    Layer(adaptive, {3, 4, 5, 10}, x);
    StochasticDepthSpec depth;
    depth.rate = 0.25f;
    Layer(depth, same, x);
    UpsampleSpec larger;
    larger.scale = 3;
    Layer(larger, {3, 18, 18, 10}, x);
    for (const bool align_corners : {false, true}) {
      BilinearSpec smooth;
      smooth.align_corners = align_corners;
      Layer(smooth, {3, 18, 18, 10}, x);
    }
    Layer(DropoutSpec(), same, x);
    Layer(shortcut, {3, 3, 3, 20}, x);
    SliceSpec slice;
    slice.first = 2;
    Layer(slice, {3, 6, 6, 5}, x);
    AffineSpec affine;
    affine.factor = bench_.Vector(Random({1, 1, 1, 10}, 3));
    affine.offset = bench_.Vector(Random({1, 1, 1, 10}, 4));
    Layer(affine, same, x);
    Layer(FlattenSpec(), {3, 1, 1, 360}, x);
    Layer(scale, same, x);
    LrnSpec lrn;
    lrn.size = 4, lrn.alpha = 0.5;
    Layer(lrn, same, x);
    // Every window's value goes somewhere else: position i % 4 of 2 x 2.
    MaxUnpoolSpec unpool;
    unpool.kernel = unpool.stride = {2, 2}, unpool.pooled = same;
    std::vector<std::uint16_t> positions(static_cast<std::size_t>(same.numel()));
    for (std::size_t i = 0; i < positions.size(); ++i)
      positions[i] = static_cast<std::uint16_t>(i % 4);
    std::byte* memory = bench_->Allocate(2 * positions.size());
    bench_->Upload(memory, positions.data(), 2 * positions.size());
    unpool.positions = reinterpret_cast<const std::uint16_t*>(memory);
    Layer(unpool, {3, 11, 12, 10}, x);
  }

  void Concat() {
    OfTwo<ConcatSpec>({3, 6, 6, 10}, {3, 6, 6, 7}, {3, 6, 6, 17});
    OfTwo<ConcatBoxesSpec>({3, 6, 6, 10}, {3, 2, 3, 15}, {3, 1, 90, 5});
  }
  template <class Spec>
  void OfTwo(const Shape& first, const Shape& second, const Shape& both) {
    const Values weights = Random(both, 90);
    Spec s;
    s.x = {bench_.Make(first, kFp32, Random(first, 1)),
           bench_.Make(second, kFp32, Random(second, 2))};
    s.y = bench_.Make(both, kFp32);
    s.dy = bench_.MakeGradient(both, kFp32, kScale, Times(weights, kScale));
    s.dx = {bench_.MakeGradient(first, kFp32), bench_.MakeGradient(second, kFp32)};
    const auto op = bench_->Make(s);
    const auto by = Step(*op, s.y, weights);
    for (std::size_t k = 0; k < 2; ++k)
      by.Check(Spec::kKind, s.x[k], s.dx[k].tensor, bench_.Fetched(s.dx[k].scale));
  }

  // Equal shapes, and one value a channel on either side.
  void Multiply() {
    const Shape gate = {3, 1, 1, 10};
    for (const auto& [first, second] : {std::pair{kShape, kShape}, {kShape, gate}, {gate, kShape}})
      OfTwo<MultiplySpec>(first, second, kShape);
  }

  void Parameters() {
    ChannelScaleSpec factors;
    const Values weights = Plain(factors);
    factors.w = bench_.Vector(Random({1, 1, 1, 10}, 3)), factors.dw = bench_.Vector(Values(10));
    const auto op = bench_->Make(factors);
    const auto by = Step(*op, factors.y, weights);
    by.Check("dx", factors.x, factors.dx.tensor, bench_.Fetched(factors.dx.scale));
    by.Check("dw", factors.w, factors.dw, 1);
    for (const std::int64_t slopes : {1, 10}) {
      PreluSpec sloped;
      const Values of_y = Plain(sloped);
      bench_.Set(sloped.x, Apart(kShape));
      sloped.w = bench_.Vector(Random({1, 1, 1, slopes}, 3));
      sloped.dw = bench_.Vector(Values(static_cast<std::size_t>(slopes)));
      const auto slope = bench_->Make(sloped);
      const auto differences = Step(*slope, sloped.y, of_y);
      differences.Check("dx", sloped.x, sloped.dx.tensor, bench_.Fetched(sloped.dx.scale));
      differences.Check("dw", sloped.w, sloped.dw, 1);
    }
    GroupedNorm(LayerNormSpec());
    GroupNormSpec groups;
    groups.groups = 5;
    GroupedNorm(groups);
    L2NormalizeSpec lengths;
    lengths.eps = 0.5f;
    GroupedNorm(lengths);
  }

  // An addition's gradient is an alias of the graph; where it comes back, branches are summed.
  void Addition() {
    const Values weights = Random(kShape, 90);
    ReluSpec relu;
    relu.x = bench_.Make(kShape, kFp32, Apart(kShape)), relu.y = bench_.Make(kShape, kFp32);
    relu.dy = Unnoted(1, weights), relu.dx = Unnoted(1, weights);
    AddSpec add;  // y = x + relu(x) + x: x has three consumers
    add.x = {relu.x, relu.y, relu.x}, add.y = bench_.Make(kShape, kFp32);
    BranchSumSpec sum;
    sum.branches = {relu.dy, relu.dx, Unnoted(kScale, Times(weights, kScale))};
    sum.sum = bench_.MakeGradient(kShape, kFp32);
    const auto relu_op = bench_->Make(relu), add_op = bench_->Make(add);
    const Pass pass = MakePass(static_cast<int>(kShape.n));
    const auto forward = [&] {
      relu_op->Forward(pass);
      add_op->Forward(pass);
    };
    forward();
    relu_op->Backward(pass);
    bench_->Make(sum)->Backward(pass);
    DifferencesOf(bench_, add.y, weights, most_, forward)
        .Check("sum", relu.x, sum.sum.tensor, bench_.Fetched(sum.sum.scale));
  }

 private:
  static constexpr float kScale = 4;
  static constexpr Shape kShape = {3, 6, 6, 10};

  // One step, whose gradients are then checked by the forward pass alone.
  Differences<Bench> Step(Op& op, const Tensor& y, const Values& weights) {
    Pass pass = MakePass(static_cast<int>(y.shape.n));
    pass.seed = 1, pass.draw = 2;
    op.Forward(pass);
    op.Backward(pass);
    return DifferencesOf(bench_, y, weights, most_, [&op, pass] { op.Forward(pass); });
  }
  // The op of a LayerSpec; `spec`: what is more in it.
  template <class Spec>
  void Layer(Spec spec, const Shape& y, const Values& x) {
    const Values weights = Random(y, 90);
    spec.x = bench_.Make(kShape, kFp32, x), spec.y = bench_.Make(y, kFp32);
    spec.dy = bench_.MakeGradient(y, kFp32, kScale, Times(weights, kScale));
    spec.dx = bench_.MakeGradient(kShape, kFp32);
    const auto op = bench_->Make(spec);
    Step(*op, spec.y, weights)
        .Check(Spec::kKind, spec.x, spec.dx.tensor, bench_.Fetched(spec.dx.scale));
  }
  // x, y and gradients of a layer that keeps the shape; returns what the loss weighs y with.
  template <class Spec>
  Values Plain(Spec& spec) {
    const Values weights = Random(kShape, 90);
    spec.x = bench_.Make(kShape, kFp32, Random(kShape, 1)), spec.y = bench_.Make(kShape, kFp32);
    spec.dy = bench_.MakeGradient(kShape, kFp32, kScale, Times(weights, kScale));
    spec.dx = bench_.MakeGradient(kShape, kFp32);
    return weights;
  }
  template <class Spec>
  void GroupedNorm(Spec s) {
    const Values weights = Plain(s);
    // Units of two values have steep slopes where these are near each other.
    bench_.Set(s.x, Times(Random(kShape, 1), 4));
    constexpr bool kHasBeta = !std::is_same_v<Spec, L2NormalizeSpec>;
    s.gamma = bench_.Vector(Random({1, 1, 1, 10}, 3)), s.dgamma = bench_.Vector(Values(10));
    if (kHasBeta)
      s.beta = bench_.Vector(Random({1, 1, 1, 10}, 4)), s.dbeta = bench_.Vector(Values(10));
    const auto op = bench_->Make(s);
    const auto by = Step(*op, s.y, weights);
    by.Check("dx", s.x, s.dx.tensor, bench_.Fetched(s.dx.scale));
    by.Check("dgamma", s.gamma, s.dgamma, 1);
    if (kHasBeta) by.Check("dbeta", s.beta, s.dbeta, 1);
  }
  // Sums away from relu's kink: beta lifts every other channel above it and sinks the others below.
  BatchNormSpec NormOf(const Shape& x, const Values& weights) {
    Values gamma, beta;
    for (std::int64_t k = 0; k < x.c; ++k) {
      gamma.push_back(k % 3 == 0 ? -0.25f : 0.5f);
      beta.push_back(k % 2 == 0 ? 8 : -8);
    }
    BatchNormSpec s;
    s.x = bench_.Make(x, kFp32, Times(Random(x, 1), 1.5f)), s.out = bench_.Make(x, kFp32);
    s.gamma = bench_.Vector(gamma), s.beta = bench_.Vector(beta);
    s.running_mean = bench_.Vector(beta);
    s.running_var = bench_.Vector(Values(gamma.size(), 1));
    s.dgamma = bench_.Vector(gamma), s.dbeta = bench_.Vector(beta);
    s.dy = bench_.MakeGradient(x, kFp32, kScale, Times(weights, kScale));
    s.dx = bench_.MakeGradient(x, kFp32);
    return s;
  }
  // A branch of which nobody has noted how large it is.
  Gradient Unnoted(float scale, const Values& values) {
    Gradient g = bench_.MakeGradient(kShape, kFp32, scale, values);
    g.moments = nullptr, g.stats = nullptr;
    return g;
  }

  Bench& bench_;
  std::size_t most_;
};

}  // namespace ada::backend::test

// Every layer's gradients against finite differences of its own forward pass, in fp32. The loss is
// the sum of y times random numbers, in double; gradients come with a scale S that must cancel.
//
// Central differences with step h = 1/64: an fp32 forward pass errs by about 2^-22 of the values
// near the one that moves, which the division by 2h amplifies to 1e-5 of them; layers that are not
// linear (batch norm, loss) add h^2 times a third derivative. 2e-3 of the largest gradient (plus
// 2e-3 absolute) covers both; a wrong factor, sign or index is far outside.
#include <doctest/doctest.h>

#include <functional>

#include "backend/naive_batch_norm.h"
#include "backend/naive_product.h"

namespace ada::backend::test {
namespace {

constexpr float kStep = 0x1p-6f;
constexpr float kScale = 4;

Values Random(const Shape& shape, std::uint64_t seed) {
  return Normal(static_cast<std::size_t>(shape.numel()), 1, seed);
}
double Dot(const Tensor& y, const Values& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i)
    sum += static_cast<double>(y.f32()[i]) * static_cast<double>(weights[i]);
  return sum;
}

// d loss / d t by central differences, for up to 60 values of t, against gradient / scale.
void CheckGradient(const char* what, const Tensor& t, const Tensor& gradient, float scale,
                   const std::function<double()>& loss) {
  CAPTURE(what);
  const std::int64_t n = t.shape.numel(), stride = std::max<std::int64_t>(1, n / 60);
  double largest = 0, worst = 0;
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < n; ++i)
    largest = std::max(largest, std::fabs(static_cast<double>(gradient.f32()[i] / scale)));
  for (std::int64_t i = 0; i < n; i += stride) {
    const float old = t.f32()[i];
    t.f32()[i] = old + kStep;
    const double up = loss();
    const float above = t.f32()[i];
    t.f32()[i] = old - kStep;
    const double down = loss();
    const double moved = static_cast<double>(above) - static_cast<double>(t.f32()[i]);
    t.f32()[i] = old;
    const double error =
        std::fabs((up - down) / moved - static_cast<double>(gradient.f32()[i] / scale));
    if (error > worst) worst = error, at = i;
  }
  CHECK(largest > 0);
  CHECK_MESSAGE(worst <= 2e-3 * largest + 2e-3,
                "error " << worst << " at " << at << " beside " << gradient.f32()[at] / scale);
}

// An op with x, y, dy, dx in the usual members: random cotangents, S = 4, and the check of dx.
template <class Spec>
struct Layer {
  Layer(Bench& bench, const Shape& x, const Shape& y, const Values& values) {
    cotangent = Random(y, 90);
    spec.x = bench.Make(x, kFp32, values), spec.y = bench.Make(y, kFp32);
    Values dy = cotangent;
    for (float& g : dy) g *= kScale;
    spec.dy = bench.MakeGradient(y, kFp32, dy, kScale), spec.dx = bench.MakeGradient(x, kFp32);
    pass = MakePass(static_cast<int>(x.n));
    pass.seed = 1, pass.draw = 2;
  }
  void Check(const char* what, Op& op) {
    op.Forward(pass);
    op.Backward(pass);
    CheckGradient(what, spec.x, spec.dx.tensor, *spec.dx.scale, [&] {
      op.Forward(pass);
      return Dot(spec.y, cotangent);
    });
  }
  Spec spec;
  Values cotangent;
  Pass pass;
};

// Distinct values, well apart: neither a maximum nor a sign changes within a step.
Values Apart(const Shape& shape) {
  Values values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t place = i * 7919 % values.size();  // a permutation: 7919 is a larger prime
    values[i] =
        0.0625f * (static_cast<float>(place) - static_cast<float>(values.size() / 2) + 0.5f);
  }
  return values;
}

void CheckBatchNorm(const BatchNormCase& c) {
  CAPTURE(c.name);
  Bench bench;
  BatchNormBench b(bench, c, kFp32, kScale);
  const BatchNormSpec& s = b.spec;
  // Away from relu's kink: beta lifts half of the channels above it and sinks the others below.
  for (std::int64_t k = 0; s.relu && k < c.x.c; ++k) {
    s.gamma.f32()[k] = 0.25f + 0.125f * static_cast<float>(k % 3);
    s.beta.f32()[k] = k % 2 == 0 ? 8 : -8;
  }
  const Values cotangent = Random(c.x, 90);
  Values dy = cotangent;
  for (float& g : dy) g *= kScale;
  Bench::Set(s.dy.tensor, dy);
  const auto op = bench->MakeBatchNorm(s);
  const Pass pass = MakePass(static_cast<int>(c.x.n));
  op->Forward(pass);
  op->Backward(pass);
  const auto loss = [&] {
    op->Forward(pass);
    return Dot(s.out, cotangent);
  };
  CheckGradient("dx", s.x, s.dx.tensor, *s.dx.scale, loss);
  CheckGradient("dgamma", s.gamma, s.dgamma, 1, loss);
  CheckGradient("dbeta", s.beta, s.dbeta, 1, loss);
  if (c.addend) CheckGradient("addend", s.addend, s.dy.tensor, kScale, loss);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("gradients: convolutions and linear layers") {
    for (const ProductCase& c : SmallProducts()) {
      CAPTURE(c.name);
      Bench bench;
      ProductBench p(bench, c, kFp32, kScale, 2);
      const auto op = p.MakeOp(bench);
      const Values cotangent = Random(c.y(), 90);
      Values dy = cotangent;
      for (float& g : dy) g *= kScale;
      Bench::Set(p.spec.dy.tensor, dy);
      const Pass pass = MakePass(static_cast<int>(c.x.n));
      p.Step(*op, pass);
      const auto loss = [&] {
        op->RefreshWeights({});
        op->Forward(pass);
        return Dot(p.spec.y, cotangent);
      };
      CheckGradient("dx", p.spec.x, p.spec.dx.tensor, *p.spec.dx.scale, loss);
      CheckGradient("dw", p.spec.w, p.spec.dw, 1, loss);
      if (c.bias) CheckGradient("db", p.spec.b, p.spec.db, 1, loss);
    }
  }

  TEST_CASE("gradients: batch norm, alone and with sum and relu") {
    for (const bool addend : {false, true})
      for (const bool relu : {false, true})
        CheckBatchNorm({addend ? "with sum" : "alone", {6, 4, 4, 10}, 6, addend, relu});
  }

  TEST_CASE("gradients: relu, pooling, dropout, shortcut, flatten, scale") {
    Bench bench;
    const Shape x{3, 6, 6, 10};
    Layer<ReluSpec> relu(bench, x, x, Apart(x));
    relu.Check("relu", *bench->MakeRelu(relu.spec));
    const Shape pooled{3, 3, 3, 10};
    Layer<MaxPoolSpec> max(bench, x, pooled, Apart(x));
    max.spec.kernel = {3, 3}, max.spec.stride = {2, 2}, max.spec.padding = {1, 1};
    max.Check("max pool", *bench->MakeMaxPool(max.spec));
    Layer<AvgPoolSpec> avg(bench, x, pooled, Random(x, 1));
    avg.spec.kernel = {3, 3}, avg.spec.stride = {2, 2}, avg.spec.padding = {1, 1};
    avg.Check("average pool", *bench->MakeAvgPool(avg.spec));
    Layer<AvgPoolSpec> global(bench, x, {3, 1, 1, 10}, Random(x, 1));
    global.spec.kernel = global.spec.stride = {6, 6};
    global.Check("global average pool", *bench->MakeAvgPool(global.spec));
    Layer<DropoutSpec> drop(bench, x, x, Random(x, 1));
    drop.Check("dropout", *bench->MakeDropout(drop.spec));
    Layer<ShortcutSpec> shortcut(bench, x, {3, 3, 3, 20}, Random(x, 1));
    shortcut.spec.stride = {2, 2};
    shortcut.Check("shortcut", *bench->MakeShortcut(shortcut.spec));
    Layer<FlattenSpec> flatten(bench, x, {3, 1, 1, 360}, Random(x, 1));
    flatten.Check("flatten", *bench->MakeFlatten(flatten.spec));
    Layer<ScaleSpec> scale(bench, x, x, Random(x, 1));
    scaling::LayerScaler scaler;
    scaler.rule.method = scaling::LayerMethod::kFixed, scaler.rule.fixed_scale = 8;
    scale.spec.scaler = &scaler;
    scale.Check("scale", *bench->MakeScale(scale.spec));
  }

  // An addition's gradient is an alias of the graph; where it comes back, branches are summed.
  TEST_CASE("gradients: addition and the sum of branches") {
    Bench bench;
    const Shape x{3, 4, 4, 10};
    const Values cotangent = Random(x, 90);
    AddSpec add;  // y = x + relu(x) + x: x has three consumers
    Layer<ReluSpec> relu(bench, x, x, Apart(x));
    add.x = {relu.spec.x, relu.spec.y, relu.spec.x}, add.y = bench.Make(x, kFp32);
    BranchSumSpec sum;
    relu.spec.dy = bench.MakeGradient(x, kFp32, cotangent, 1);
    sum.branches = {relu.spec.dy, relu.spec.dx, relu.spec.dy};
    sum.sum = bench.MakeGradient(x, kFp32);
    const auto relu_op = bench->MakeRelu(relu.spec);
    const auto add_op = bench->MakeAdd(add);
    const auto loss = [&] {
      relu_op->Forward(relu.pass);
      add_op->Forward(relu.pass);
      return Dot(add.y, cotangent);
    };
    loss();
    relu_op->Backward(relu.pass);
    bench->MakeBranchSum(sum)->Backward(relu.pass);
    CheckGradient("sum", relu.spec.x, sum.sum.tensor, *sum.sum.scale, loss);
  }

  TEST_CASE("gradients: loss, with label smoothing") {
    for (const float smoothing : {0.0f, 0.2f}) {
      Bench bench;
      LossSpec spec;
      const Shape shape{5, 1, 1, 10};
      spec.logits = bench.Make(shape, kFp32, Random(shape, 1)), spec.label_smoothing = smoothing;
      spec.dlogits = bench.MakeGradient(shape, kFp32);
      const auto op = bench->MakeLoss(spec);
      const std::int32_t labels[] = {3, 0, 9, 3, 5};
      op->SetLabels(labels, 5);
      Pass pass = MakePass(5);
      pass.init_scale = 32, pass.loss_rows = 20;
      op->Forward(pass);
      op->Backward(pass);
      CheckGradient("logits", spec.logits, spec.dlogits.tensor, *spec.dlogits.scale, [&] {
        op->Forward(pass);
        return op->Result().loss_sum / 20;
      });
    }
  }
}

}  // namespace ada::backend::test

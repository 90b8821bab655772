// The authors' program layer by layer: whole backward passes as it recorded them, through the ops
// under `reference`. Tensors of the recording are NCHW, ours are NHWC.
#include <doctest/doctest.h>

#include "backend/moments.h"
#include "backend/naive_matmul.h"
#include "backend/recorded.h"

namespace ada::backend::test {
namespace {

using ada::testing::GoldenRow;
using ada::testing::Number;
using scaling::LayerMethod;

// One recorded layer and its tensors.
struct Layer {
  const SafetensorsFile& file;
  const GoldenRow& row;

  std::string Name(const char* tensor) const { return row.at("case") + "." + tensor; }
  std::vector<std::int64_t> Dims(const char* tensor) const {
    return file.Find(Name(tensor))->shape;
  }
  Shape ShapeOf(const char* tensor) const {
    const auto d = Dims(tensor);
    return d.size() == 4 ? Shape{d[0], d[2], d[3], d[1]} : Shape{d[0], 1, 1, d[1]};
  }
  // As it lies in the file: what weights and vectors keep.
  Values Plain(const char* tensor) const { return file.ReadF32(Name(tensor)); }
  Values Nhwc(const char* tensor) const {
    const Values from = Plain(tensor);
    const Shape s = ShapeOf(tensor);
    Values to;
    for (std::int64_t n = 0; n < s.n; ++n)
      for (std::int64_t p = 0; p < s.h * s.w; ++p)
        for (std::int64_t c = 0; c < s.c; ++c)
          to.push_back(from[static_cast<std::size_t>((n * s.c + c) * s.h * s.w + p)]);
    return to;
  }
  NumberFormat Format(const char* column) const {
    return row.at(column) == "float16" ? kFp16 : kFp32;
  }
};

LayerMethod MethodOf(const std::string& name) {
  if (name == "fixed") return LayerMethod::kFixed;
  if (name == "abs_range") return LayerMethod::kAbsRange;
  if (name == "element_wise_range") return LayerMethod::kElementWiseRange;
  return LayerMethod::kApproxRange;
}
scaling::LayerRule RuleOf(const Layer& layer) {
  scaling::LayerRule rule;
  rule.method = MethodOf(layer.row.at("method"));
  rule.u_min = static_cast<double>(6.0e-8f), rule.u_max = 65504;  // as the authors hold them
  rule.scale_upper_bound = Number(layer.row, "SB"),
  rule.accum_upper_bound = Number(layer.row, "AB");
  rule.power_of_two = layer.row.at("power_of_two") == "1";
  rule.fp16_gradients = layer.row.at("dy_dtype") == "float16";
  rule.reference = true;
  return rule;
}
Gradient Incoming(Bench& bench, const Layer& layer) {
  Gradient dy = bench.MakeGradient(layer.ShapeOf("dy"), layer.Format("dy_dtype"), layer.Nhwc("dy"),
                                   static_cast<float>(Number(layer.row, "S_prev")));
  *dy.moments = MomentsOf(Bench::Get(dy.tensor));
  return dy;
}

// numpy's fp16 products err by ulps of the largest value (in fp16; 2^-24 among its subnormals): 2
// in one product, 4 in the convolutions' sums of several.
void CheckNear(const std::string& what, const Tensor& t, const Values& want, int ulps = 2) {
  CAPTURE(what);
  const Values got = Bench::Get(t);
  REQUIRE(got.size() == want.size());
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    REQUIRE(std::isfinite(got[i]) == std::isfinite(want[i]));
    if (!std::isfinite(want[i])) continue;
    largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
  }
  CHECK(worst <= ulps * (0x1p-10 * largest + 0x1p-25));
}
void CheckDecision(const Layer& layer, const scaling::LayerScaler& scaler, const Gradient& dx) {
  if (!layer.row.at("error").empty()) {
    CHECK(scaler.decision.error != scaling::DecisionError::kNone);
    return;
  }
  CHECK(scaler.decision.error == scaling::DecisionError::kNone);
  if (!layer.row.at("alpha").empty())
    CHECK(static_cast<double>(scaler.decision.alpha) == Number(layer.row, "alpha"));
  CHECK(static_cast<double>(*dx.scale) == Number(layer.row, "S_out"));
}

void CheckMatmul(const Layer& layer) {
  const bool linear = layer.row.at("layer") == "linear";
  Bench bench;
  Conv2dSpec spec;
  const auto w = layer.Dims("w");
  spec.x = bench.Make(layer.ShapeOf("x"), kFp16, layer.Nhwc("x"));
  spec.w = bench.Make(linear ? Shape{w[0], 1, 1, w[1]} : Shape{w[0], w[2], w[3], w[1]}, kFp32,
                      layer.Plain("w"));
  spec.b = bench.Vector(layer.Plain("b")), spec.db = bench.Vector(layer.Plain("b"));
  spec.w_format = spec.dw_format = kFp16, spec.reference = true;
  spec.y = bench.Make(layer.ShapeOf("dy"), kFp16), spec.dw = bench.Make(spec.w.shape, kFp32);
  spec.dy = Incoming(bench, layer), spec.dx = bench.MakeGradient(spec.x.shape, kFp16);
  scaling::LayerScaler scaler;
  scaler.rule = RuleOf(layer);
  scaler.rule.fan = static_cast<double>(spec.w.shape.n * spec.w.shape.h * spec.w.shape.w);
  spec.scaler = &scaler;
  const int stride = static_cast<int>(Number(layer.row, "stride")),
            pad = static_cast<int>(Number(layer.row, "pad"));
  spec.stride = {stride, stride}, spec.padding = {pad, pad};
  spec.groups = static_cast<int>(Number(layer.row, "groups"));
  LinearSpec flat;
  static_cast<MatmulSpec&>(flat) = spec;
  const auto op = linear ? bench->Make(flat) : bench->Make(spec);
  const Pass pass = MakePass(static_cast<int>(spec.x.shape.n));
  op->RefreshWeights(pass);
  op->Forward(pass);
  op->Backward(pass);
  CheckDecision(layer, scaler, spec.dx);
  if (!layer.row.at("error").empty()) return;
  const int ulps = linear ? 2 : 4;
  CheckNear("dx", spec.dx.tensor, layer.Nhwc("dx"), ulps);
  CheckNear("dw", spec.dw, layer.Plain("dw"), ulps);
  CheckNear("db", spec.db, layer.Plain("db"), ulps);
}

void CheckBatchNorm(const Layer& layer) {
  Bench bench;
  BatchNormSpec spec;
  const Values beta = layer.Plain("b");
  spec.x = bench.Make(layer.ShapeOf("x"), kFp16, layer.Nhwc("x"));
  spec.gamma = bench.Vector(layer.Plain("w")), spec.beta = bench.Vector(beta);
  for (Tensor* t : {&spec.running_mean, &spec.running_var, &spec.dgamma, &spec.dbeta})
    *t = bench.Vector(beta);
  spec.out = bench.Make(spec.x.shape, kFp16);
  spec.eps = 2e-5f;
  spec.dy = Incoming(bench, layer), spec.dx = bench.MakeGradient(spec.x.shape, kFp16);
  const auto op = bench->Make(spec);
  const Pass pass = MakePass(static_cast<int>(spec.x.shape.n));
  op->Forward(pass);
  op->Backward(pass);
  CHECK(static_cast<double>(*spec.dx.scale) == Number(layer.row, "S_out"));
  CheckNear("dx", spec.dx.tensor, layer.Nhwc("dx"));
  CheckNear("dgamma", spec.dgamma, layer.Plain("dw"));
  CheckNear("dbeta", spec.dbeta, layer.Plain("db"));
}

// `start`, the scaling of the logit gradient, is a cast by a constant.
void CheckCast(const Layer& layer) {
  const bool start = layer.row.at("layer") == "start";
  Bench bench;
  ScaleSpec spec;
  spec.x = bench.Make(layer.ShapeOf("x"), layer.Format("x_dtype"), layer.Nhwc("x"));
  spec.y = bench.Make(spec.x.shape, layer.Format("dy_dtype"));
  spec.dy = Incoming(bench, layer), spec.dx = bench.MakeGradient(spec.x.shape, spec.x.format);
  scaling::LayerScaler scaler;
  scaler.rule = RuleOf(layer);
  scaler.rule.has_weight = false;
  if (start) {
    scaler.rule.method = LayerMethod::kFixed;
    scaler.rule.fixed_scale = Number(layer.row, "S_prev");
    *spec.dy.scale = 1;
  }
  spec.scaler = &scaler;
  bench->Make(spec)->Backward(MakePass(static_cast<int>(spec.x.shape.n)));
  CheckDecision(layer, scaler, spec.dx);
  if (layer.row.at("error").empty()) CheckEqual(spec.dx.tensor, layer.Nhwc("dx"));
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("reference: whole layers as recorded") {
    const Recorded recorded("backward");
    CHECK(recorded.table.rows.size() >= 17);
    for (const GoldenRow& row : recorded.table.rows) {
      CAPTURE(row.at("case"));
      CAPTURE(row.at("note"));
      const Layer layer{recorded.file, row};
      const std::string& kind = row.at("layer");
      if (kind == "linear" || kind == "conv")
        CheckMatmul(layer);
      else if (kind == "batchnorm")
        CheckBatchNorm(layer);
      else
        CheckCast(layer);
    }
  }

  // Finite sums leave fp16 before they are divided, small ones flush only afterwards.
  TEST_CASE("reference: dw and db are rounded before they are divided by S, and after") {
    const MatmulCase c = LinearCase("linear", {64, 1, 1, 40}, 30, true);
    Bench bench;
    MatmulBench p(bench, c, kFp16, 1024, 1);
    Values dy = Normal(64 * 30, 12000, 1);
    for (std::size_t i = 0; i < dy.size(); ++i)
      if (i % 30 > 10) dy[i] *= i % 2 == 0 ? 0x1p-18f : 0x1p-30f;
    Bench::Set(p.spec.dy.tensor, dy);
    p.Step(*p.MakeOp(bench), MakePass(64));
    Values dw = Bench::Get(p.spec.dw), db = Bench::Get(p.spec.db);
    std::size_t infinite = 0, zeros = 0;
    for (Values* values : {&dw, &db})
      for (float& v : *values) {
        v = RoundTo(kFp16, RoundTo(kFp16, v * 1024) / 1024);
        infinite += std::isinf(v), zeros += v == 0;
      }
    CHECK(infinite > 100);
    CHECK(zeros > 100);
    for (const bool data_gradient : {true, false}) {
      p.spec.reference = true, p.spec.dw_format = kFp16;
      if (!data_gradient) p.spec.dx = Gradient{}, p.spec.scaler = nullptr;
      p.Step(*p.MakeOp(bench), MakePass(64));
      CheckEqual(p.spec.dw, dw);
      CheckEqual(p.spec.db, db);
    }
  }

  TEST_CASE("reference: the logit gradient is rounded before it is multiplied") {
    Bench bench;
    ClassLossSpec spec;
    const Shape shape{5, 1, 1, 10};
    spec.logits = bench.Make(shape, kFp16, Normal(50, 4, 1));
    spec.dlogits = bench.MakeGradient(shape, kFp32);
    const std::int32_t labels[] = {3, 0, 9, 3, 5};
    Pass pass = MakePass(5);
    Values results[2];
    for (const bool fp16 : {false, true}) {
      if (fp16) spec.dlogits = bench.MakeGradient(shape, kFp16), spec.reference = true;
      pass.loss_scale = fp16 ? 100 : 1;
      const auto op = bench->MakeLoss(spec);
      op->SetTargets({labels}, 5);
      op->Forward(pass);
      op->Backward(pass);
      op->Backward(pass);
      results[fp16] = Bench::Get(spec.dlogits.tensor);
    }
    std::size_t differ = 0;
    for (std::size_t i = 0; i < 50; ++i) {
      CHECK(results[1][i] == RoundTo(kFp16, 100 * RoundTo(kFp16, results[0][i])));
      differ += results[1][i] != RoundTo(kFp16, 100 * results[0][i]);
    }
    CHECK(differ > 0);
  }
}

}  // namespace ada::backend::test

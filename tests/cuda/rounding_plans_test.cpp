// Plans that round a layer's outputs, where a pass measures no more of them than their largest
// magnitude, and those for passes that count.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#ifndef ADA_CUDA_DEVICE
#include "backend/cuda/context.h"
#include "backend/cuda/matmuls.h"
#endif
#include "cuda/matmul_lab.h"
#ifndef ADA_CUDA_DEVICE
#include "cuda/host_layer.h"
#endif

namespace ada::backend::test {
namespace {

// Where values are infinite, without padding, whose zeros a library multiplies as well: dw would be
// NaN where the CPU, which leaves them out, has a number.
MatmulCase Convolution(int padding = 1) {
  const std::array<int, 2> one = {1, 1}, three = {3, 3};
  return {"conv", {4, 6, 6, 16}, 16, three, one, {padding, padding}, one, 1, false};
}
Settings Plain(const NumberFormat& format, float unit = 1) {
  Settings settings;
  settings.format = format, settings.unit = unit, settings.dx_moments = false;
  return settings;
}

// Passes that count and passes that do not, each often enough to be recorded and replayed.
void CheckPasses(const Settings& settings, const std::vector<float>& bad = {}) {
  CAPTURE(FormatName(settings.format));
  CAPTURE(settings.unit);
  OnBoth([&](Lab& lab, Findings& findings) {
    const Layer layer(lab, Convolution(bad.empty() ? 1 : 0), settings);
    const Tensor &x = layer.spec.x, &dy = layer.spec.dy.tensor;
    Values x_values = lab.Get(x), dy_values = lab.Get(dy);
    for (std::size_t i = 0; i < bad.size(); ++i)
      x_values[100 * i + 7] = dy_values[90 * i + 5] = bad[i];
    lab.Set(x, x_values), lab.Set(dy, dy_values);
    for (int step = 0; step < 12; ++step) {
      Pass pass = PassOf(step % 4 == 3 ? 3 : 4);
      pass.count = step % 3 == 0;
      if (step >= 8) lab.Set(x, Whole(x.shape.numel(), 1, static_cast<std::uint64_t>(step)));
      lab->Run(1, pass, [&] { layer.Call(pass); });
      layer.Report(pass, findings);
    }
  });
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("rounding plans: passes that count and passes that do not, as on the CPU") {
    NumberFormat full = kFp16;
    full.saturate = true;
    for (const NumberFormat& format : {kFp16, kBf16, full, kFp32, kCb16})
      for (const float unit : {1.0f, 0x1p-26f, 0x1p-15f, 0x1p12f, 0x1p14f})
        CheckPasses(Plain(format, unit));
  }

  TEST_CASE("rounding plans: what is not finite is measured, NaN above all") {
    for (const NumberFormat& format : {kFp16, kBf16}) {
      CheckPasses(Plain(format), {INFINITY});
      CheckPasses(Plain(format), {NAN});
      CheckPasses(Plain(format), {NAN, INFINITY, -INFINITY});
      CheckPasses(Plain(format, 0x1p14f), {-INFINITY});
    }
  }

  TEST_CASE("rounding plans: where values left the format the largest magnitude is infinite") {
    Lab lab(MakeBackendUnderTest());
    const Layer layer(lab, Convolution(), Plain(kFp16, 0x1p14f));
    Pass pass = PassOf(4);
    for (const bool count : {false, true, false}) {
      pass.count = count;
      layer.Call(pass);
      for (const TensorStats* place : {layer.spec.y_stats, layer.spec.dx.stats}) {
        const TensorStats stats = lab.Fetched(place);
        CHECK(stats.max_abs > 65520);
        CHECK(std::isfinite(stats.max_abs) == count);  // counted as it was in fp32
        CHECK(stats.numel == 4 * 6 * 6 * 16);
        CHECK(stats.full == count);
      }
    }
  }

  TEST_CASE("rounding plans: a largest magnitude that is left to others is not written") {
    Lab lab(MakeBackendUnderTest());
    const Layer layer(lab, Convolution(), Plain(kFp16), [](MatmulSpec& spec) {
      spec.y_amax_deferred = spec.dx.amax_deferred = true;
    });
    Pass pass = PassOf(4);
    layer.Call(pass);
    CHECK(lab.Fetched(layer.spec.y_stats).numel == 0);
    CHECK(lab.Fetched(layer.spec.dx.stats).numel == 0);
    pass.count = true;
    layer.Call(pass);
    CHECK(lab.Fetched(layer.spec.y_stats).full);
    CHECK(lab.Fetched(layer.spec.dx.stats).full);
  }
}

#ifndef ADA_CUDA_DEVICE
namespace {

using Method = scaling::LayerMethod;

// The host executor's library, which may decline.
class Declining final : public cuda::Matmuls {
 public:
  Declining(cuda::Stream& stream, bool declines)
      : matmuls_(cuda::MakeMatmuls(stream, {})), declines_(declines) {}
  std::unique_ptr<cuda::Matmul> Make(const cuda::MatmulRequest& request) override {
    asked.push_back(request);
    return declines_ && request.out == Storage::kF16 ? nullptr : matmuls_->Make(request);
  }
  std::vector<cuda::MatmulRequest> asked;

 private:
  std::unique_ptr<cuda::Matmuls> matmuls_;
  bool declines_;
};

struct OneLayer : HostLayer {
  explicit OneLayer(bool declines, bool left = false, Method method = Method::kFixed)
      : HostLayer(matmuls, kFp16), matmuls(stream, declines) {
    spec.y_amax_deferred = spec.dx.amax_deferred = left;
    shared.Host(spec.scaler)->rule.method = method;
    op = cuda::MakeOp(context, spec);
    stream.KeepNames();
  }
  // What a pass asks for, in order: "largest" where a kernel looks for the largest magnitude alone.
  std::vector<std::string> Names(bool count) {
    Pass pass = PassOf(2);
    pass.count = count;
    op->Forward(pass);
    op->Backward(pass);
    std::vector<std::string> names = stream.TakeNames();
    for (std::string& name : names)
      if (name.find("LargestPlainKernel") != std::string::npos) name = "largest";
    return names;
  }

  Declining matmuls;
  std::unique_ptr<Op> op;
};

// Whether the last forward or data gradient that was asked for is a plain product.
bool IsPlain(const OneLayer& layer, cuda::MatmulKind kind) {
  const cuda::MatmulRequest* last = nullptr;
  for (const cuda::MatmulRequest& request : layer.matmuls.asked)
    if (request.kind == kind) last = &request;
  REQUIRE(last != nullptr);
  return last->operands == Storage::kF16 && last->out == Storage::kF16 && !HasEpilogue(*last);
}

int Count(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<int>(std::count(names.begin(), names.end(), name));
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("rounding plans: a plain pass rounds nothing but dw, a counting one y and dx as well") {
    OneLayer layer(false);
    CHECK(layer.matmuls.asked.size() == 3);
    const std::vector<std::string> plain = layer.Names(false), counting = layer.Names(true);
    CHECK(layer.matmuls.asked.size() == 5);  // plans for sums came with the pass that counts
    CHECK(layer.Names(false) == plain);
    CHECK(layer.Names(true) == counting);
    CHECK(layer.matmuls.asked.size() == 5);
    CHECK(layer.diagnostic_lines.diagnostics().empty());

    REQUIRE(plain.size() >= 3);
    CHECK(std::vector(plain.begin(), plain.begin() + 2) ==
          std::vector<std::string>{"product", "largest"});
    CHECK(std::vector(plain.end() - 2, plain.end()) ==
          std::vector<std::string>{"product", "largest"});
    CHECK(Count(plain, "product") == 3);
    CHECK(Count(plain, "largest") == 2);
    CHECK(Count(counting, "product") == 3);
    CHECK(Count(counting, "largest") == 0);
  }

  TEST_CASE("rounding plans: products are plain where nothing is to be multiplied") {
    using cuda::MatmulKind;
    const OneLayer fixed(false), pass(false, false, Method::kPass);
    CHECK(IsPlain(fixed, MatmulKind::kForward));
    CHECK(IsPlain(pass, MatmulKind::kForward));
    CHECK_FALSE(IsPlain(fixed, MatmulKind::kData));  // alpha
    CHECK(IsPlain(pass, MatmulKind::kData));
  }

  TEST_CASE("rounding plans: what is left to others costs no kernel") {
    OneLayer layer(false, true);
    CHECK(Count(layer.Names(false), "largest") == 0);
    CHECK(layer.matmuls.asked.size() == 3);
  }

  TEST_CASE(
      "rounding plans: a library without them is diagnosed once, and all passes share a plan") {
    OneLayer layer(true);
    const std::vector<std::string> plain = layer.Names(false);
    layer.Names(true);
    CHECK(layer.matmuls.asked.size() == 5);  // two of them in vain
    CHECK(Count(plain, "largest") == 0);
    CHECK(layer.diagnostic_lines.diagnostics() ==
          std::vector<std::string>{
              "layer conv1: no plan for the output of fp16 operands in fp16, but for the output of "
              "fp16 operands in fp32",
              "layer conv1: no plan for the scaled data gradient of fp16 operands in fp16, but for "
              "the data gradient of fp16 operands in fp32"});
  }
}
#endif

}  // namespace ada::backend::test

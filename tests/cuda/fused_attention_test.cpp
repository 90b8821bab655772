// Fused attention against attention in products of a library: the same bits where each sum is
// exact, whatever the shapes, the rules and the launches.
#include <doctest/doctest.h>

#include <algorithm>

#include "cuda/attention_lab.h"

namespace ada::backend::test {
namespace {

Findings StepsOn(const AttentionCase& c, std::unique_ptr<Backend> backend) {
  Lab lab(std::move(backend));
  Findings findings;
  AttentionLab attention(lab, c);
  const auto op = lab->Make(attention.spec);
  for (int step = 0; step < 3; ++step) {
    attention.Step(*op, step, findings);
    findings.Add("y", lab, attention.spec.y);
    for (const Gradient& dx : attention.spec.dx) findings.Add("dx", lab, dx);
  }
  return findings;
}

CudaSwitches Switched(bool attention) {
  CudaSwitches switches;
  switches.attention = attention;
#ifndef ADA_CUDA_DEVICE
  switches.poison = true;
#endif
  return switches;
}

void Check(const AttentionCase& c) {
  CAPTURE(FormatName(c.x));
  CAPTURE(static_cast<int>(c.method));
  CAPTURE(c.causal);
  CAPTURE(c.fused);
  CAPTURE(c.kv_heads);
  CAPTURE(c.width);
  CAPTURE(c.queries);
  CAPTURE(c.keys);
  const Findings fused = StepsOn(c, MakeBackendUnderTest(Switched(true)));
  CheckSame(StepsOn(c, MakeBackendUnderTest(Switched(false))), fused);
  CudaSwitches apart = Switched(true);
  apart.last_block = false;
  CheckSame(fused, StepsOn(c, MakeBackendUnderTest(apart)), true);
#ifndef ADA_CUDA_DEVICE
  auto stream = std::make_unique<cuda::HostStream>(Switched(true));
  stream->set_reverse(true);
  CheckSame(fused, StepsOn(c, cuda::MakeBackendOn(std::move(stream), {"reverse", "host"}, {})),
            true);
#endif
}

AttentionCase CaseOf(const NumberFormat& format, AttentionData data) {
  AttentionCase c;
  c.x = c.gradients = format, c.data = data, c.images = 2;
  return c;
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("attention, fused: the bits of products, in shapes of whole and of partial tiles") {
    struct Sizes {
      int width, queries, keys;
    };
    for (const auto& [width, queries, keys] :
         {Sizes{8, 37, 37}, Sizes{32, 64, 64}, Sizes{5, 17, 70}, Sizes{40, 33, 12},
          Sizes{64, 16, 129}, Sizes{128, 20, 256}, Sizes{100, 50, 8}, Sizes{1, 1, 1}})
      for (const bool causal : {false, true}) {
        AttentionCase c = CaseOf(width == 32 ? kBf16 : kFp16, AttentionData::kExact);
        c.width = width, c.queries = queries, c.keys = keys, c.causal = causal;
        c.heads = c.kv_heads = 2;
        Check(c);
      }
  }

  TEST_CASE("attention, fused: the bits of products, of one tensor and of grouped heads") {
    for (const int kv_heads : {1, 2, 3, 6})
      for (const int width : {8, 20, 3}) {
        AttentionCase c = CaseOf(kFp16, AttentionData::kExact);
        c.heads = 6, c.kv_heads = kv_heads, c.width = width, c.causal = true, c.fused = true;
        c.queries = c.keys = 21;
        Check(c);
      }
  }

  TEST_CASE("attention, fused: the bits of products under every rule") {
    for (const LayerMethod method : kEveryMethod)
      for (const NumberFormat& format : {kFp16, kBf16}) {
        AttentionCase c = CaseOf(format, AttentionData::kUniform);
        c.method = method, c.queries = 19, c.keys = 32, c.kv_heads = 2;
        Check(c);
      }
  }

  TEST_CASE("attention, fused: the bits of products with dropout and random rounding") {
    for (const bool stochastic : {false, true})
      for (const float dropout : {0.0f, 0.5f}) {
        AttentionCase c = CaseOf(kFp16, AttentionData::kUniform);
        c.stochastic = stochastic, c.dropout = dropout, c.queries = 35, c.keys = 16;
        c.method = LayerMethod::kApproxRange;
        Check(c);
      }
  }

#ifndef ADA_CUDA_DEVICE
  TEST_CASE("attention, fused: the launch that measures dy decides, from the second run on") {
    CudaSwitches switches = Switched(true);
    switches.graphs = false;
    auto stream = std::make_unique<cuda::HostStream>(switches);
    cuda::HostStream& names = *stream;
    Lab lab(cuda::MakeBackendOn(std::move(stream), {"names", "host"}, {}));
    AttentionCase c = CaseOf(kFp16, AttentionData::kNormal);
    c.method = LayerMethod::kApproxRange;
    AttentionLab attention(lab, c);
    Pass pass;
    pass.rows = c.images;
    SiluSpec after;
    after.layer = "silu", after.dx = attention.spec.dy;
    const Shape& shape = attention.spec.y.shape;
    after.x = attention.spec.y, after.y = lab.Make(shape, kFp16);
    after.y_stats = lab.Share<TensorStats>();
    after.dy = lab.MakeGradient(shape, kFp16, 32, RandomOf(shape, 1e-3, 5));
    attention.SetInputs(1);
    const auto op = lab->Make(attention.spec), next = lab->Make(after);
    names.KeepNames();
    Findings found[2];
    for (int run = 0; run < 2; ++run) {
      lab->Run(1, pass, [&] {
        op->Forward(pass);
        next->Forward(pass);
        next->Backward(pass);
        op->Backward(pass);
      });
      const std::vector<std::string> asked = names.TakeNames();
      CHECK(std::count(asked.begin(), asked.end(), "DecideBothKernel") == 1 - run);
      for (const Gradient& dx : attention.spec.dx) found[run].Add("dx", lab, dx);
      for (const scaling::LayerScaler* scaler : attention.spec.scalers)
        found[run].Numbers("alpha", {static_cast<double>(lab.Fetched(scaler).decision.alpha)});
    }
    CheckSame(found[0], found[1], true);
  }

  TEST_CASE("attention, fused: one launch forward and three backward, where it fits") {
    const auto launches = [](const AttentionCase& c, const CudaSwitches& switches) {
      auto stream = std::make_unique<cuda::HostStream>(switches);
      cuda::HostStream& names = *stream;
      Lab lab(cuda::MakeBackendOn(std::move(stream), {"names", "host"}, {}));
      AttentionLab attention(lab, c);
      const auto op = lab->Make(attention.spec);
      Pass pass;
      pass.rows = c.images;
      op->Forward(pass);  // launches what brings the pass's values to the device as well
      names.KeepNames();
      op->Forward(pass);
      const std::size_t forward = names.TakeNames().size();
      op->Backward(pass);
      return std::pair(forward, names.TakeNames().size());
    };
    const std::pair<std::size_t, std::size_t> fused = {1, 3};
    AttentionCase c = CaseOf(kFp16, AttentionData::kNormal);
    for (const LayerMethod method : {LayerMethod::kPass, LayerMethod::kApproxRange}) {
      c.method = method;
      CHECK(launches(c, {}) == fused);
    }
    CudaSwitches switches;
    for (bool CudaSwitches::*off : {&CudaSwitches::attention, &CudaSwitches::fused}) {
      switches = {}, switches.*off = false;
      CHECK(launches(c, switches).first > fused.first);
    }
    switches = {}, switches.scores = c.images * c.heads * c.queries * c.keys;
    CHECK(launches(c, switches) == fused);
    --switches.scores;
    CHECK(launches(c, switches) != fused);
    const auto refused = [&](auto&& change) {
      AttentionCase other = c;
      change(other);
      return launches(other, {}) != fused;
    };
    CHECK(refused([](AttentionCase& o) { o.keys = 257; }));
    CHECK(refused([](AttentionCase& o) { o.width = 129; }));
    CHECK(refused([](AttentionCase& o) { o.method = LayerMethod::kExactRange; }));
    CHECK(refused([](AttentionCase& o) { o.keeps = true; }));
    CHECK(refused([](AttentionCase& o) { o.rounds_p = false; }));
    CHECK(refused([](AttentionCase& o) { o.rounds_ds = false; }));
    CHECK(refused([](AttentionCase& o) { o.gradients = kBf16; }));
    CHECK(refused([](AttentionCase& o) { o.x = o.gradients = kFp32; }));
  }
#endif
}

}  // namespace ada::backend::test

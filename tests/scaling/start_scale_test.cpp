// `init_scale: auto`: which S a run starts with, and that a policy started with it is the one that
// an init_scale of that number makes.
#include "scaling/policies/start_scale.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "error.h"
#include "scaling/policies/policies.h"

namespace ada::scaling {
namespace {

constexpr double kFp16Largest = 65504, kE4m3Largest = 448;

Settings Auto(const std::string& policy) {
  Settings settings;
  settings.policy = policy;
  settings.auto_init_scale = true;
  FillDefaults(settings);
  return settings;
}

double Chosen(const Settings& settings, double largest, double u_max) {
  return ChooseStart(settings, largest, u_max).scale;
}

LayerInfo Layer(const std::string& name) {
  LayerInfo layer;
  layer.name = name;
  layer.u_min = 0x1p-24, layer.u_max = kFp16Largest;
  return layer;
}
// The policy of other settings, with the same layers.
void MakeAgain(std::unique_ptr<Policy>& policy, const Settings& settings) {
  policy = MakePolicy(settings);
  for (const char* layer : {"conv", "fc"}) policy->RuleFor(Layer(layer));
}

TEST_SUITE("cpu") {
  TEST_CASE("start scale: the largest power of two that leaves the headroom") {
    const Settings none = Auto("none");
    for (const double u_max : {kFp16Largest, 57344.0, kE4m3Largest, 6.0}) {
      for (double largest = 1e-9; largest < 2; largest *= 1.37) {
        const double scale = Chosen(none, largest, u_max);
        CHECK(std::exp2(std::round(std::log2(scale))) == scale);
        CHECK(largest * scale * 16 <= u_max);
        CHECK(largest * scale * 32 > u_max);
      }
    }
    Settings tight = Auto("adaptive");
    tight.adaptive.method = LayerMethod::kExactRange;
    tight.adaptive.headroom_bits = 0;
    CHECK(Chosen(tight, 1, kFp16Largest) == 32768);
  }

  TEST_CASE("start scale: 1 where nothing asks for more, or nothing can be said") {
    const Settings none = Auto("none");
    CHECK(Chosen(none, 0.01, 0x1.fep127) == 1);  // bf16
    for (const double largest : {0.0, std::numeric_limits<double>::infinity(), std::nan("")})
      CHECK(Chosen(none, largest, kFp16Largest) == 1);
    CHECK(Chosen(none, 1e-44, kFp16Largest) == 0x1p127);
  }

  TEST_CASE("start scale: the bounds of the policy hold, and are named") {
    Settings adaptive = Auto("adaptive");  // approx_range: S is bounded by accum_upper_bound
    CHECK(Chosen(adaptive, 1e-4, kFp16Largest) == 1024);
    adaptive.adaptive.accum_upper_bound = 5000;
    const StartScale bounded = ChooseStart(adaptive, 1e-4, kFp16Largest);
    CHECK(bounded.scale == 4096);
    CHECK(bounded.reason.find("scaling.accum_upper_bound") != std::string::npos);
    adaptive.adaptive.method = LayerMethod::kExactRange;
    CHECK(Chosen(adaptive, 1e-4, kFp16Largest) == 0x1p25);
    Settings dynamic = Auto("dynamic");
    CHECK(Chosen(dynamic, 1e-4, kFp16Largest) == 0x1p25);
    dynamic.max_scale = 30000;
    CHECK(Chosen(dynamic, 1e-4, kFp16Largest) == 16384);
    dynamic.max_scale = 0;  // none
    CHECK(Chosen(dynamic, 1e-4, kFp16Largest) == 0x1p25);
    dynamic.min_scale = 40;
    CHECK(Chosen(dynamic, 100, kE4m3Largest) == 64);
  }

  TEST_CASE("a start scale is halved down to 1, and no further") {
    const auto policy = MakePolicy(Auto("none"));
    policy->Start(8);
    StepOutcome outcome;
    outcome.overflow = true;
    for (const double scale : {4.0, 2.0, 1.0, 1.0, 1.0}) {
      CHECK(policy->Update(outcome).after == scale);
      CHECK(policy->Scale() == scale);
    }
    policy->Start(0.25);
    CHECK(policy->Update(outcome).after == 0.25);
  }

  TEST_CASE("a policy that was started is the one with that init_scale, and is saved so") {
    for (const char* name : {"none", "dynamic", "adaptive", "layerwise_dynamic", "histogram"}) {
      CAPTURE(name);
      const Settings settings = Auto(name);
      Settings number = settings;
      number.auto_init_scale = false;
      number.init_scale = 4096;
      auto expected = MakePolicy(number);
      const auto policy = MakePolicy(settings), resumed = MakePolicy(settings);
      for (const char* layer : {"conv", "fc"})
        for (Policy* each : {expected.get(), policy.get(), resumed.get()})
          each->RuleFor(Layer(layer));
      CHECK_FALSE(expected->AwaitsStart());
      REQUIRE(policy->AwaitsStart());
      policy->Start(4096);
      CHECK(policy->name() == name);
      CHECK(policy->Scale() == 4096);
      const bool halves = std::string(name) == "none";
      CHECK(policy->ConstantScale() == (expected->ConstantScale() && !halves));
      CHECK(policy->OwnsLayerScales() == expected->OwnsLayerScales());
      CHECK(policy->CountsAboveEdge() == expected->CountsAboveEdge());
      for (int attempt = 0; attempt < 6; ++attempt) {
        if (attempt == 3) resumed->LoadState(policy->SaveState());
        StepOutcome outcome;
        outcome.overflow = attempt % 2 == 0;
        outcome.layer_overflow["conv"] = outcome.overflow;
        const ScaleUpdate want = expected->Update(outcome), got = policy->Update(outcome);
        CHECK(got.action == want.action);
        if (halves && outcome.overflow) {
          CHECK(got.before == want.before);
          CHECK(got.after == got.before / 2);
          CHECK_FALSE(got.reason.empty());
          number.init_scale = got.after;
          MakeAgain(expected, number);
          CHECK(want.after == want.before);
        } else {
          CHECK(got.after == want.after);
        }
        CHECK(policy->LayerScale("conv") == expected->LayerScale("conv"));
        if (attempt >= 3) resumed->Update(outcome);
      }
      CHECK(policy->Scale() == expected->Scale());
      CHECK(resumed->SaveState() == policy->SaveState());
      StateMap state = policy->SaveState();
      state.erase("init_scale");
      CHECK(state == expected->SaveState());
      CHECK_THROWS_AS(policy->LoadState(state), DataError);
      state["init_scale"] = "nan";
      CHECK_THROWS_AS(policy->LoadState(state), DataError);
    }
  }
}

}  // namespace
}  // namespace ada::scaling

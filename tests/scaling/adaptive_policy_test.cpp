// The adaptive policy: settings become a layer's rule; the global scale never moves.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "error.h"
#include "scaling/policies/policies.h"

namespace ada::scaling {
namespace {

LayerInfo Layer() {
  LayerInfo layer;
  layer.name = "stage1.block1.conv1";
  layer.fan_reference = 576;
  layer.fan_exact = 144;
  layer.u_min = 0x1p-24;
  layer.u_max = 65504;
  return layer;
}

LayerRule RuleFrom(const AdaptiveSettings& settings, const LayerInfo& layer) {
  return MakeAdaptive(1, [&](const std::string&) { return settings; })->RuleFor(layer);
}

TEST_SUITE("cpu") {
  TEST_CASE("settings become a layer's rule") {
    const auto policy = MakeAdaptive(4, [](const std::string& layer) {
      CHECK(layer == Layer().name);
      AdaptiveSettings settings;
      settings.scale_upper_bound = 128;
      settings.accum_upper_bound = 4096;
      settings.update_interval = 10;
      settings.underflow_target = 1e-3;
      settings.headroom_bits = 6;
      return settings;
    });
    CHECK(policy->name() == "adaptive");
    CHECK(policy->Scale() == 4);
    const LayerRule rule = policy->RuleFor(Layer());
    CHECK(rule.method == LayerMethod::kApproxRange);
    CHECK(rule.underflow_target == 1e-3);
    CHECK(rule.t == doctest::Approx(1.2533144654e-3).epsilon(1e-10));
    CHECK(rule.phi_inverse == doctest::Approx(-3.0902323061678135).epsilon(1e-15));
    CHECK(rule.u_min == 0x1p-24);
    CHECK(rule.u_max == 65504);
    CHECK(rule.fan == 144);
    CHECK(rule.scale_upper_bound == 128);
    CHECK(rule.accum_upper_bound == 4096);
    CHECK(rule.headroom_bits == 6);
    CHECK(rule.update_interval == 10);
    CHECK(rule.has_weight);
    CHECK(rule.power_of_two);
    CHECK_FALSE(rule.reference);
    CHECK_FALSE(rule.fp16_gradients);
  }

  TEST_CASE("every method, fan of the reference, a fixed scale, casts") {
    AdaptiveSettings settings;
    settings.scale = 8;
    settings.fan = Fan::kReference;
    settings.power_of_two = false;
    for (const LayerMethod method :
         {LayerMethod::kFixed, LayerMethod::kApproxRange, LayerMethod::kLognormal,
          LayerMethod::kAbsRange, LayerMethod::kElementWiseRange, LayerMethod::kExactRange}) {
      settings.method = method;
      const LayerRule rule = RuleFrom(settings, Layer());
      CHECK(rule.method == method);
      CHECK(rule.fixed_scale == 8);
      CHECK(rule.fan == 576);
      CHECK_FALSE(rule.power_of_two);
    }
    LayerInfo cast = Layer();
    cast.has_weight = false;
    cast.fp16_gradients = true;
    CHECK(RuleFrom(settings, cast).fan == 1);
    CHECK_FALSE(RuleFrom(settings, cast).has_weight);
    CHECK(RuleFrom(settings, cast).fp16_gradients);
  }

  TEST_CASE("u_min: as set, the format's, or the authors' constant for fp16 held in fp32") {
    LayerInfo bf16 = Layer();
    bf16.u_min = 0x1p-133;
    bf16.u_max = 0x1.fep+127;
    struct Row {
      const LayerInfo& layer;
      double set;
      bool reference;
      double u_min;
    };
    const LayerInfo fp16 = Layer();
    const Row rows[] = {{fp16, 0, false, 0x1p-24},      {fp16, 1e-7, false, 1e-7},
                        {fp16, 0, true, 6.0e-8f},       {fp16, 1e-7, true, 1e-7f},
                        {fp16, 0x1p-24, true, 0x1p-24}, {bf16, 0, false, 0x1p-133},
                        {bf16, 0, true, 0x1p-133},      {bf16, 6e-8, false, 6e-8}};
    for (const Row& row : rows) {
      AdaptiveSettings settings;
      settings.u_min = row.set;
      settings.reference = row.reference;
      CHECK(RuleFrom(settings, row.layer).u_min == row.u_min);
      CHECK(RuleFrom(settings, row.layer).reference == row.reference);
    }
  }

  TEST_CASE("targets at the ends") {
    AdaptiveSettings settings;
    settings.underflow_target = 0;
    CHECK(RuleFrom(settings, Layer()).t == 0);
    CHECK(RuleFrom(settings, Layer()).phi_inverse == -INFINITY);
  }

  TEST_CASE("an overflow skips, and nothing else changes") {
    const auto policy = MakeAdaptive(8, [](const std::string&) { return AdaptiveSettings{}; });
    for (const bool overflow : {false, true, true, false}) {
      StepOutcome attempt;
      attempt.overflow = overflow;
      const ScaleUpdate verdict = policy->Update(attempt);
      CHECK(verdict.action == (overflow ? Action::kSkip : Action::kUpdate));
      CHECK(verdict.before == 8);
      CHECK(verdict.after == 8);
      CHECK(verdict.reason.empty());
      CHECK(verdict.error.empty());
      CHECK(policy->Scale() == 8);
    }
    CHECK(policy->SaveState().empty());
    policy->LoadState({});
    CHECK_THROWS_AS(policy->LoadState({{"scale", "0x1p+0"}}), DataError);
    CHECK_THROWS_AS(MakeAdaptive(0, {}), ConfigError);
  }
}

}  // namespace
}  // namespace ada::scaling

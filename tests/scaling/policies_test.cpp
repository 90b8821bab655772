// The policies without a machine (none, fixed, adaptive), the list of policies, the inverse error
// function and the text of states.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "core/error.h"
#include "scaling/inverse_erf.h"
#include "scaling/policy.h"
#include "scaling/presets.h"
#include "scaling/state_text.h"

namespace ada::scaling {
namespace {

const LayerInfo kLayer{"stage1.block1.conv1", 576, 144, 0x1p-24, 65504};

TEST_SUITE("cpu") {
  TEST_CASE("none and fixed: one scale, every layer passes it on") {
    struct Row {
      std::unique_ptr<Policy> policy;
      const char* name;
      double scale;
    };
    Row rows[] = {
        {MakeNone(1), "none", 1}, {MakeNone(8), "none", 8}, {MakeFixed(1024), "fixed", 1024}};
    for (Row& row : rows) {
      CAPTURE(row.name);
      CHECK(row.policy->name() == row.name);
      CHECK(row.policy->RuleFor(kLayer).method == LayerMethod::kPass);
      for (const bool overflow : {false, true, true}) {
        const ScaleChange change = row.policy->Update(overflow);
        CHECK(change.reason.empty());
        CHECK(change.after == row.scale);
        CHECK(row.policy->Scale() == row.scale);
      }
      CHECK(row.policy->SaveState().empty());
      row.policy->LoadState({});
      CHECK_THROWS_AS(row.policy->LoadState({{"scale", "0x1p+0"}}), DataError);
    }
  }

  TEST_CASE("a scale that fp32 cannot hold is a config error that names its key") {
    for (const double bad : {0.0, -1.0, 1e39, 1e-50, std::nan("")}) {
      CAPTURE(bad);
      CHECK_THROWS_AS(MakeNone(bad), ConfigError);
      CHECK_THROWS_AS(MakeFixed(bad), ConfigError);
      CHECK_THROWS_AS(MakeAdaptive(bad, {}), ConfigError);
      DynamicParameters parameters;
      parameters.init_scale = bad;
      CHECK_THROWS_AS(MakeDynamic(parameters), ConfigError);
    }
    CHECK_THROWS_WITH(MakeFixed(-1),
                      "scaling.scale: -1.000000 is no scale; expected a positive number that fp32 "
                      "can hold (1e-38 .. 3e38)");
  }

  TEST_CASE("adaptive: settings become a layer's rule") {
    const auto policy = MakeAdaptive(4, [](const std::string& layer) {
      CHECK(layer == kLayer.name);
      AdaptiveSettings settings;
      settings.scale_upper_bound = 128;
      settings.accum_upper_bound = 4096;
      settings.update_interval = 10;
      return settings;
    });
    CHECK(policy->name() == "adaptive");
    CHECK(policy->Scale() == 4);
    const LayerRule rule = policy->RuleFor(kLayer);
    CHECK(rule.method == LayerMethod::kApproxRange);
    CHECK(rule.t == doctest::Approx(1.2533144654e-3).epsilon(1e-10));
    CHECK(rule.u_min == 0x1p-24);
    CHECK(rule.u_max == 65504);
    CHECK(rule.fan == 144);
    CHECK(rule.scale_upper_bound == 128);
    CHECK(rule.accum_upper_bound == 4096);
    CHECK(rule.update_interval == 10);
    CHECK(rule.power_of_two);
    CHECK(policy->Update(true).reason.empty());
    CHECK(policy->SaveState().empty());
  }

  TEST_CASE("adaptive: fan of the reference, u_min, method fixed") {
    AdaptiveSettings settings;
    settings.method = LayerMethod::kFixed;
    settings.scale = 8;
    settings.u_min = 6e-8;
    settings.fan_exact = false;
    settings.power_of_two = false;
    const LayerRule rule =
        MakeAdaptive(1, [&](const std::string&) { return settings; })->RuleFor(kLayer);
    CHECK(rule.method == LayerMethod::kFixed);
    CHECK(rule.fixed_scale == 8);
    CHECK(rule.u_min == 6e-8);
    CHECK(rule.fan == 576);
    CHECK_FALSE(rule.power_of_two);
  }

  TEST_CASE("inverse error function against mpmath at 60 digits") {
    struct Row {
      double n, x;
    };
    const Row rows[] = {
        {1e-300, 8.86226925452758e-301},   {1e-20, 8.86226925452758e-21},
        {1e-08, 8.86226925452758e-09},     {1.1e-08, 9.748496179980338e-09},
        {1e-05, 8.862269254759594e-06},    {0.001, 0.0008862271574665521},
        {0.01, 0.008862501280950598},      {0.1, 0.08885599049425769},
        {0.25, 0.2253120550121781},        {0.3, 0.2724627147267543},
        {0.49, 0.46586860023505733},       {0.5, 0.4769362762044699},
        {0.51, 0.4881220505159588},        {0.7, 0.7328690779592167},
        {0.9, 1.1630871536766743},         {0.99, 1.8213863677184494},
        {0.999, 2.3267537655135246},       {0.999999, 3.458910737275499},
        {0.9999999999, 4.572824958544925}, {0.9999999999999999, 5.8635847487551676},
    };
    for (const Row& row : rows) {
      CAPTURE(row.n);
      CHECK(std::fabs(InverseErf(row.n) / row.x - 1) <= 5e-16);
    }
    CHECK(InverseErf(0) == 0);
    CHECK(InverseErf(1e-320) > 0);
    CHECK_THROWS_AS(InverseErf(1), InternalError);
    CHECK_THROWS_AS(InverseErf(-0.5), InternalError);
  }

  TEST_CASE("inverse error function: increasing, and erf takes it back") {
    double before = 0;
    for (int i = 1; i < 20000; ++i) {
      const double n = i / 20000.0, x = InverseErf(n);
      CHECK(x > before);
      CHECK(std::fabs(std::erf(x) - n) <= 3e-16);
      before = x;
    }
  }

  TEST_CASE("states as text read back to the same bits") {
    for (const double value :
         {1.0, 65536.0, 0.1, 0x1p-149, 0x1.fffffffffffffp+1023, 5e-324, 0.0, -3.7}) {
      const StateMap state{{"x", ToHex(value)}};
      CAPTURE(state.at("x"));
      CHECK(ReadHex(state, "x") == value);
      CHECK(std::strtod(state.at("x").c_str(), nullptr) == value);
    }
    CHECK(ToHex(24) == "0x1.8p+4");
    const LayerState state{123.456789, Limit::kCap, 1234567890123};
    const LayerState loaded = LoadLayerState(SaveLayerState(state), "fc");
    CHECK(loaded.unbound == state.unbound);
    CHECK(loaded.unbound_limit == state.unbound_limit);
    CHECK(loaded.calls == state.calls);
    for (const auto& [key, text] : std::map<std::string, std::string>{{"unbound", "0x0p+0"},
                                                                      {"unbound", "nan"},
                                                                      {"limit", "11"},
                                                                      {"calls", "-1"},
                                                                      {"calls", ""}}) {
      CAPTURE(key);
      StateMap bad = SaveLayerState(state);
      bad[key] = text;
      CHECK_THROWS_AS(LoadLayerState(bad, "fc"), DataError);
    }
  }

  TEST_CASE("list of policies: one line each, names as in the YAML") {
    const std::vector<std::string> lines = ListPolicies();
    const char* starts[] = {"none:", "fixed:", "dynamic, preset pytorch:",
                            "adaptive, method approx_range:", "adaptive, method fixed:"};
    REQUIRE(lines.size() == std::size(starts));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      CHECK(lines[i].rfind(starts[i], 0) == 0);
      CHECK(lines[i].find('\n') == std::string::npos);
    }
    CHECK(lines[2] ==
          "dynamic, preset pytorch: one global S; overflow: skip and halve; doubles after "
          "growth_interval clean steps in a row; pytorch/pytorch torch/amp/grad_scaler.py; "
          "init_scale 65536, growth_factor 2, backoff_factor 0.5, growth_interval 2000, min_scale "
          "none, max_scale none");
    CHECK_THROWS_WITH_AS(FindDynamicPreset("pytroch"),
                         "scaling.preset: unknown preset 'pytroch', expected one of pytorch",
                         ConfigError);
  }
}

}  // namespace
}  // namespace ada::scaling

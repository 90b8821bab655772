// From settings to policies: the table of policies, defaults, bounds, and settings of single
// layers.
#include <doctest/doctest.h>

#include <string>

#include "error.h"
#include "scaling/policies/policies.h"
#include "scaling/policies/presets.h"

namespace ada::scaling {
namespace {

Settings Of(const std::string& policy) {
  Settings settings;
  settings.policy = policy;
  return settings;
}

TEST_SUITE("cpu") {
  TEST_CASE("every policy is made by its name, from defaults that stay when filled in again") {
    for (const std::string& name : PolicyNames()) {
      CAPTURE(name);
      Settings settings = Of(name);
      FillDefaults(settings);
      const double scale = MakePolicy(settings)->Scale();
      CHECK(MakePolicy(settings)->name() == name);
      CHECK(settings.init_scale.has_value() == (name != "fixed" && name != "logmax"));
      if (settings.init_scale) CHECK(*settings.init_scale == scale);
      Settings again = settings;
      FillDefaults(again);
      CHECK(again.init_scale == settings.init_scale);
      CHECK(again.min_scale == settings.min_scale);
      CHECK(again.max_scale == settings.max_scale);
    }
    CHECK_THROWS_AS(MakePolicy(Of("fixd")), InternalError);
  }

  TEST_CASE("a preset's own values fill in what is unset, and a bound of 0 stays unset") {
    Settings settings = Of("dynamic");
    settings.preset = "apex";
    settings.growth_interval = 7;
    FillDefaults(settings);
    CHECK(settings.init_scale == 65536);
    CHECK(settings.backoff_factor == 0.5);  // 1 / growth_factor
    CHECK(settings.growth_interval == 7);
    CHECK_FALSE(settings.min_scale.has_value());
    CHECK(settings.max_scale == 0x1p24);
    settings = Of("dynamic");
    settings.min_scale = 0;
    FillDefaults(settings);
    CHECK(settings.min_scale == 0);  // given
    CHECK_FALSE(settings.max_scale.has_value());
  }

  TEST_CASE("bounds cross where both exist and the floor lies above the ceiling") {
    CHECK(BoundsCross(2, 1));
    CHECK_FALSE(BoundsCross(1, 1));
    CHECK_FALSE(BoundsCross(1, 2));
    CHECK_FALSE(BoundsCross(2, 0));  // no ceiling
    CHECK_FALSE(BoundsCross(std::nullopt, 1));
    CHECK_FALSE(BoundsCross(2, std::nullopt));
  }

  TEST_CASE("a layer whose bounds cross is named, with the last entry that gave it one") {
    Settings settings;
    settings.policy = "layerwise_dynamic";
    settings.min_scale = 1;
    LayerSettings all, one;
    all.match = "conv*", all.min_scale = 16, all.where = {"a.yaml", 3, 7};
    one.match = "conv1", one.max_scale = 4, one.where = {"a.yaml", 4, 7};
    settings.layers = {all, one};
    CHECK(LayerwiseOf(settings, "conv2").min_scale == 16);
    CHECK_THROWS_WITH_AS(LayerwiseOf(settings, "conv1"),
                         "a.yaml:4:7: scaling.layers[]: layer conv1 has min_scale 16, above its "
                         "max_scale, 4",
                         ConfigError);
  }

  TEST_CASE("layers: the last match wins, key by key") {
    Settings settings;
    settings.scale = 3;
    settings.reference = true;
    settings.adaptive.underflow_target = 0.25;
    settings.growth_factor = 4;
    LayerSettings all, one;
    all.match = "conv*";
    all.method = LayerMethod::kFixed;
    all.scale = 8;
    all.growth_interval = 5;
    one.match = "conv1";
    one.scale = 16;
    one.u_min = 1e-6;
    one.max_scale = 64;
    settings.layers = {all, one};

    const AdaptiveSettings other = AdaptiveOf(settings, "fc");
    CHECK(other.method == LayerMethod::kApproxRange);
    CHECK(other.scale == 3);
    CHECK(other.reference);
    CHECK(other.underflow_target == 0.25);
    CHECK_FALSE(other.u_min.has_value());
    CHECK(AdaptiveOf(settings, "conv2").method == LayerMethod::kFixed);
    CHECK(AdaptiveOf(settings, "conv2").scale == 8);
    const AdaptiveSettings first = AdaptiveOf(settings, "conv1");
    CHECK(first.method == LayerMethod::kFixed);
    CHECK(first.scale == 16);
    CHECK(first.u_min == 1e-6);
    CHECK(first.underflow_target == 0.25);

    const LayerwiseSettings layer = LayerwiseOf(settings, "conv1");
    CHECK(layer.growth_factor == 4);
    CHECK(layer.growth_interval == 5);
    CHECK(layer.max_scale == 64);
    CHECK(layer.backoff_factor == 0.5);
    CHECK(LayerwiseOf(settings, "fc").growth_interval == 10000);
  }

  TEST_CASE("what the policies say of themselves") {
    struct Row {
      const char* policy;
      bool constant, owns_layers, counts;
    };
    const Row rows[] = {{"none", true, false, false},
                        {"fixed", true, false, false},
                        {"dynamic", false, false, false},
                        {"adaptive", true, true, false},
                        {"layerwise_dynamic", false, true, false},
                        {"logmax", false, false, false},
                        {"histogram", false, false, true}};
    for (const Row& row : rows) {
      CAPTURE(row.policy);
      for (const bool reference : {false, true}) {
        Settings settings = Of(row.policy);
        settings.reference = reference;
        FillDefaults(settings);
        const auto policy = MakePolicy(settings);
        CHECK(policy->ConstantScale() == row.constant);
        CHECK(policy->OwnsLayerScales() == row.owns_layers);
        CHECK(policy->CountsAboveEdge() == row.counts);
        CHECK(policy->FollowsReference() == (reference && settings.policy == "adaptive"));
      }
    }
  }

  TEST_CASE("presets by their keys, and those that try a skipped step again") {
    CHECK(PresetNames().size() == DynamicPresets().size());
    CHECK(PresetsWith("hysteresis") ==
          std::vector<std::string>{"deepspeed", "megatron", "paddle", "apex_hysteresis"});
    CHECK(PresetsWith("growth_factor").empty());  // every preset's
    Settings settings = Of("dynamic");
    CHECK_FALSE(RetriesSkippedSteps(settings));
    settings.preset = "nnabla";
    CHECK(RetriesSkippedSteps(settings));
    settings.policy = "fixed";
    CHECK_FALSE(RetriesSkippedSteps(settings));
  }
}

}  // namespace
}  // namespace ada::scaling

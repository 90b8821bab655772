// A scaling section and a format read for themselves: replay, inspect, --format.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "config/load.h"
#include "config/refusal.h"

namespace ada::config {

namespace {

using Lines = std::vector<std::string>;

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("a scaling section: whole configuration, the key alone, or what stands below it") {
    for (const char* text : {"scaling: {policy: dynamic, preset: nnabla, growth_interval: 7}\n"
                             "data: {dataset: mnist, path: a, typo: 1}\nmodel: {}\nlog: 3\n",
                             "scaling: {policy: dynamic, preset: nnabla, growth_interval: 7}\n",
                             "policy: dynamic\npreset: nnabla\ngrowth_interval: 7\n"}) {
      CAPTURE(text);
      const LoadedScaling loaded = LoadScalingText(text, "s.yaml", {});
      CHECK(loaded.scaling.policy == "dynamic");
      CHECK(loaded.scaling.preset == "nnabla");
      CHECK(loaded.scaling.growth_interval == 7);
      CHECK_FALSE(loaded.scaling.init_scale.has_value());
      CHECK(loaded.train.on_overflow == OnOverflow::kPreset);
      CHECK(loaded.notes.empty());
    }
  }

  TEST_CASE("train comes along; a file without scaling has policy none") {
    const LoadedScaling loaded = LoadScalingText(
        "train: {on_overflow: retry, max_retries: 3}\nmodel: {zoo: mlp}\n", "s.yaml", {});
    CHECK(loaded.scaling.policy == "none");
    CHECK(loaded.train.on_overflow == OnOverflow::kRetry);
    CHECK(loaded.train.max_retries == 3);
    CHECK(LoadScaling("configs/resnet20_cifar_quick_dynamic.yaml", {}).scaling.policy == "dynamic");
  }

  TEST_CASE("overrides of a scaling section") {
    const LoadedScaling loaded = LoadScalingText(
        "policy: adaptive\nunderflow_target: 0.1\n", "s.yaml",
        {{"scaling.policy", "fixed"}, {"scaling.scale", "8"}, {"train.max_retries", "1"}});
    CHECK(loaded.scaling.scale == 8);
    CHECK(loaded.train.max_retries == 1);
    CHECK(loaded.notes ==
          Lines{"s.yaml:2:1: scaling.underflow_target dropped: policy fixed does not know it"});
  }

  TEST_CASE("wrong scaling files: exact messages") {
    struct Row {
      const char* text;
      Overrides overrides;
      const char* message;
    };
    for (const Row& row : std::vector<Row>{
             {"", {}, "s.yaml: is empty; expected a configuration (see configs/README.md)"},
             {"- policy\n", {}, "s.yaml:1:1: expected keys and values; got a list"},
             {"polcy: dynamic\n",
              {},
              "s.yaml:1:1: scaling.polcy: unknown key; did you mean 'policy'?"},
             {"policy: fixed\n", {}, "s.yaml:1:1: scaling.scale: missing; policy fixed needs it"},
             {"scalings: {}\nlog: {}\n",
              {},
              "s.yaml:1:1: scalings: unknown key; did you mean 'scaling'?"},
             {"scaling: {policy: none}\nscaling: {policy: none}\n",
              {},
              "s.yaml:2:1: scaling: duplicate key, first given in line 1"},
             {"policy: none\n",
              {{"optimizer.lr", "1"}},
              "--set optimizer.lr: optimizer: unknown key; known here: scaling, train"},
         }) {
      CAPTURE(row.text);
      CHECK(RefusalOf([&] { LoadScalingText(row.text, "s.yaml", row.overrides); }) == row.message);
    }
    CHECK(RefusalOf([] { LoadScaling("no_such_file.yaml", {}); }) ==
          "no_such_file.yaml: cannot be opened: No such file or directory");
  }

  TEST_CASE("adaptive from overrides: a scale may stand without its method") {
    const AdaptiveOverrides none = ReadAdaptive({});
    CHECK(none.scaling.policy == "adaptive");
    CHECK_FALSE(none.has_method);
    CHECK_FALSE(none.has_scale);
    const AdaptiveOverrides scale =
        ReadAdaptive({{"scaling.scale", "3"}, {"scaling.power_of_two", "false"}});
    CHECK(scale.scaling.scale == 3);
    CHECK_FALSE(scale.scaling.adaptive.power_of_two);
    CHECK(scale.scaling.adaptive.method == scaling::LayerMethod::kApproxRange);
    CHECK(scale.has_scale);
    CHECK_FALSE(scale.has_method);
    const AdaptiveOverrides both =
        ReadAdaptive({{"scaling.method", "fixed"}, {"scaling.scale", "3"}});
    CHECK(both.has_method);
    CHECK(both.scaling.adaptive.method == scaling::LayerMethod::kFixed);
    CHECK(
        RefusalOf([] {
          ReadAdaptive({{"scaling.method", "fixed"}});
        }) ==
        "--set scaling.method: scaling.scale: missing; method fixed needs it: the constant alpha");
    CHECK(RefusalOf([] {
            ReadAdaptive({{"scaling.beta1", "0"}});
          }) == "--set scaling.beta1: does not belong to policy adaptive, only to logmax");
  }

  TEST_CASE("--format: exact messages") {
    struct Row {
      const char* text;
      const char* message;
    };
    for (const Row& row : std::vector<Row>{
             {"{exponent: 9, mantissa: 3}",
              "--format: exponent: expected a whole number, 1 to 8; got '9'"},
             {"{exponent: 4}", "--format: mantissa: missing; it has no default"},
             {"{exponent: 4, mantisa: 3, mantissa: 3}",
              "--format: mantisa: unknown key; did you mean 'mantissa'?"},
             {"{exponent: 4, mantissa: 3, mantissa: 4}",
              "--format:1:28: mantissa: duplicate key, first given in line 1"},
             {"{exponent: 4", "--format: '{exponent: 4': this '{' is never closed by a '}'"},
         }) {
      CAPTURE(row.text);
      CHECK(RefusalOf([&] { ReadFormat(row.text); }) == row.message);
    }
    for (const char* text : {"fp17", "", "[fp16]", "16"}) {
      CAPTURE(text);
      CHECK(RefusalOf([&] { ReadFormat(text); }).starts_with("--format: expected fp32, fp16, "));
    }
  }
}

}  // namespace ada::config

// The keys of `log`: defaults, scenarios and their names, and that all of them read back.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "config/load.h"
#include "config/refusal.h"
#include "number/number_format.h"

namespace ada::config {

namespace {

using Texts = std::vector<std::string>;
constexpr char kStart[] = "data: {dataset: synthetic}\nmodel: {zoo: lenet}\n";

LogConfig Log(const std::string& text) {
  return LoadText(kStart + text, "log.yaml", {}).config.log;
}

Texts NamesOf(const LogConfig& log) {
  Texts names;
  for (const WhatIfConfig& scenario : log.what_if) names.push_back(scenario.name);
  return names;
}

Texts NamesIn(const std::string& scenarios) {
  return NamesOf(Log("log: {histogram_every: 1, what_if: [" + scenarios + "]}\n"));
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("histograms that nobody asked for: every 200 steps, in steps that are logged") {
    const auto every = [](const std::string& log) {
      Config config = LoadText(std::string(kStart) + log, "log.yaml", {}).config;
      FillDefaults(config);
      return config.log.histogram_every.value();
    };
    CHECK(every("") == 200);
    CHECK(every("log: {every: 7}\n") == 203);
    CHECK(every("log: {every: 1000}\n") == 1000);
    CHECK(every("log: {every: 0}\n") == 0);
    CHECK(every("log: {every: 7, histogram_every: 3}\n") == 3);
    CHECK(every("log: {histogram_every: 0}\n") == 0);
  }

  TEST_CASE("operands that are rounded are counted unless statistics are given") {
    const auto filled = [](const std::string& text) {
      Config config = LoadText(kStart + text, "log.yaml", {}).config;
      FillDefaults(config);
      return config;
    };
    const Texts usual = {"dx", "dy", "dw"}, all = {"dx", "dy", "dw", "operands"};
    CHECK(filled("precision: fp16\n").log.statistics == usual);
    for (const char* precision :
         {"{recipe: te_nvfp4}", "{format: bf16, operands: mxfp8_e4m3}",
          "{operands: {dx: {dy: fp8_e5m2}}}", "{layers: [{match: conv1, operands: nvfp4}]}",
          "{format: bf16, schedule: [{from_step: 5, recipe: te_mxfp8}]}"}) {
      CAPTURE(precision);
      const std::string text = "precision: " + std::string(precision) + "\n";
      CHECK(filled(text).log.statistics == all);
      CHECK(filled(text + "log: {statistics: [dx, dy, dw]}\n").log.statistics == usual);
      // config.yaml shows it, and reads back to the same.
      const Config config = filled(text);
      CHECK(ToYaml(config).find("statistics: [dx, dy, dw, operands]") != std::string::npos);
      Config again = LoadText(ToYaml(config), "config.yaml", {}).config;
      FillDefaults(again);
      CHECK(again.log.statistics == all);
    }
  }

  TEST_CASE("activations in few bits of their own are counted unless statistics are given") {
    const auto filled = [](const std::string& precision) {
      Config config = LoadText(kStart + precision, "log.yaml", {}).config;
      FillDefaults(config);
      return config.log.statistics;
    };
    const Texts more = {"dx", "dy", "dw", "y"};
    CHECK(filled("precision: {format: bf16, activations: fp8_e3m4}\n") == more);
    CHECK(filled("precision: {layers: [{match: conv1, activations: fp4_e2m1}]}\n") == more);
    CHECK(filled("precision: {schedule: [{from_step: 5, activations: fp8_e4m3}]}\n") == more);
    CHECK(filled("precision: {activations: fp16}\n") == Texts{"dx", "dy", "dw"});
    CHECK(filled("precision: {activations: fp8_e4m3}\nlog: {statistics: [dx]}\n") == Texts{"dx"});
  }

  TEST_CASE("what is rounded and not counted is named") {
    const auto uncounted = [](const std::string& text) {
      Config config = LoadText(kStart + text, "log.yaml", {}).config;
      FillDefaults(config);
      return UncountedStatistics(config);
    };
    CHECK(uncounted("").empty());
    CHECK(uncounted("precision: fp16\n") == Texts{"y", "w"});
    CHECK(uncounted("precision: {gradients: fp8_e5m2}\nlog: {statistics: [dx]}\n") == Texts{"dy"});
    CHECK(uncounted("precision: {recipe: te_nvfp4}\nlog: {statistics: [dx, dw]}\n") ==
          Texts{"dy", "y", "w", "operands"});
    CHECK(uncounted("precision: {layers: [{match: '*', weight_gradients: bf16}]}\n"
                    "log: {statistics: []}\n") == Texts{"dw"});
  }

  TEST_CASE("defaults of log: rows of every 100 steps") {
    const LogConfig log = Log("");
    CHECK(log.every == 100);
    CHECK(log.probe_every == 0);
    CHECK_FALSE(log.histogram_every.has_value());
    CHECK(log.dump_on == DumpOn::kNever);
    CHECK(log.dump_every == 0);
    CHECK(log.dump == Texts{"*"});
    CHECK(log.what_if.empty());
    CHECK(log.alert_underflow_pct == 50);
    CHECK_FALSE(log.tensorboard);
  }

  TEST_CASE("every key of log") {
    const LogConfig log = Log(R"(log:
  every: 7
  statistics: [y]
  probe_every: 2
  histogram_every: 3
  dump_every: 4
  dump: [conv1, "stage1.*"]
  alert_underflow_pct: 2.5
  tensorboard: true
  what_if:
    - {name: all, format: fp8_e5m2, scale: 3}
    - {scaling: {policy: dynamic, preset: megatron, hysteresis: 4}}
)");
    CHECK(log.every == 7);
    CHECK(log.statistics == Texts{"y"});
    CHECK(log.probe_every == 2);
    CHECK(log.histogram_every == 3);
    CHECK(log.dump_every == 4);
    CHECK(log.dump == Texts{"conv1", "stage1.*"});
    CHECK(log.alert_underflow_pct == 2.5);
    CHECK(log.tensorboard);
    REQUIRE(log.what_if.size() == 2);
    CHECK(log.what_if[0].name == "all");
    CHECK(log.what_if[0].format == AnyFormat(kFp8E5M2));
    CHECK(log.what_if[0].scale == 3);
    CHECK_FALSE(log.what_if[0].scaling.has_value());
    CHECK(ToString(log.what_if[0].where) == "log.yaml:13:7");
    CHECK_FALSE(log.what_if[1].format.has_value());
    CHECK_FALSE(log.what_if[1].scale.has_value());
    REQUIRE(log.what_if[1].scaling.has_value());
    CHECK(log.what_if[1].scaling->policy == "dynamic");
    CHECK(log.what_if[1].scaling->preset == "megatron");
    CHECK(log.what_if[1].scaling->hysteresis == 4);
    CHECK_FALSE(log.what_if[1].scaling->init_scale.has_value());
    CHECK(ToString(log.what_if[1].scaling->where) == "log.yaml:14:8");
  }

  TEST_CASE("names of scenarios are made of what they say") {
    CHECK(NamesIn("{scale: 1024}, {scale: 0.1}, {format: fp8_e5m2, scale: 8}, {format: cb16}") ==
          Texts{"scale=1024", "scale=0.1", "format=fp8_e5m2 scale=8", "format=cb16"});
    CHECK(NamesIn("{scaling: {policy: none}}, {scaling: {policy: fixed, scale: 1}}, "
                  "{scaling: {policy: dynamic}}, {format: fp16, scaling: {policy: histogram}}") ==
          Texts{"policy=none", "policy=fixed scale=1", "policy=dynamic",
                "format=fp16 policy=histogram"});
    CHECK(NamesIn("{scaling: {policy: dynamic, preset: apex, growth_interval: 5}}, "
                  "{scaling: {policy: adaptive, power_of_two: false, layers: [{match: fc, "
                  "method: lognormal}]}}") == Texts{"policy=dynamic preset=apex growth_interval=5",
                                                    "policy=adaptive power_of_two=false layers"});
    // What is given as it would be anyway is no difference.
    CHECK(NamesIn("{scaling: {policy: dynamic, preset: pytorch}}") == Texts{"policy=dynamic"});
    CHECK(NamesIn("{format: {exponent: 4, mantissa: 2}}") ==
          Texts{"format={exponent: 4 mantissa: 2}"});
  }

  TEST_CASE("names that are made are no other scenario's") {
    CHECK(NamesIn("{scale: 8}, {scale: 8.0}, {scale: 8}") ==
          Texts{"scale=8", "scale=8 #2", "scale=8 #3"});
    CHECK(NamesIn("{scale: 8}, {name: scale=8, scale: 9}") == Texts{"scale=8 #2", "scale=8"});
    WhatIfConfig unnamed;
    CHECK(NameOf(unnamed).empty());
    unnamed.name = "not looked at";
    unnamed.scale = 65536;
    CHECK(NameOf(unnamed) == "scale=65536");
  }

  TEST_CASE("log reads back from ToYaml") {
    for (const std::string text :
         {"",
          "log: {every: 0, statistics: [], probe_every: 1000000000, alert_underflow_pct: 100}\n",
          "log: {dump_every: 1, dump: [\"*\"], tensorboard: true}\n",
          "log: {histogram_every: 5, what_if: []}\n",
          "log: {histogram_every: 5, what_if: [{scale: 8}, {name: 1, format: {exponent: 4, "
          "mantissa: 2}}, {scaling: {policy: none}}, {format: fp16, scaling: {policy: adaptive, "
          "method: fixed, scale: 4, layers: [{match: fc, scale: 8}]}}, {scaling: {policy: logmax, "
          "beta1: 0.5}}, {name: 'a: #b', scale: 1e-3}]}\n"}) {
      CAPTURE(text);
      const Config config = LoadText(kStart + text, "log.yaml", {}).config;
      const std::string yaml = ToYaml(config);
      CAPTURE(yaml);
      const Config again = LoadText(yaml, "log.yaml", {}).config;
      CHECK(ToYaml(again) == yaml);
      CHECK(NamesOf(again.log) == NamesOf(config.log));
      CHECK(again.log.dump == config.log.dump);
      CHECK(again.log.dump_every == config.log.dump_every);
      REQUIRE(again.log.what_if.size() == config.log.what_if.size());
      for (std::size_t i = 0; i < again.log.what_if.size(); ++i) {
        CHECK(again.log.what_if[i].scale == config.log.what_if[i].scale);
        CHECK(again.log.what_if[i].format == config.log.what_if[i].format);
        CHECK(again.log.what_if[i].scaling.has_value() ==
              config.log.what_if[i].scaling.has_value());
      }
    }
  }

  TEST_CASE("ToYaml writes the scenarios, and dump only where something is dumped") {
    const std::string yaml =
        ToYaml(LoadText(std::string(kStart) + "log: {histogram_every: 5, what_if: [{scale: 8}]}\n",
                        "log.yaml", {})
                   .config);
    CHECK(yaml.find("  what_if:\n    - {name: \"scale=8\", scale: 8}\n") != std::string::npos);
    CHECK(yaml.find("dump_every: 0\n") != std::string::npos);
    CHECK(yaml.find("dump:") == std::string::npos);
  }

  TEST_CASE("--set reaches the keys of log") {
    const Overrides overrides = {{"log.histogram_every", "10"},
                                 {"log.what_if", "[{scale: 2}, {format: bf16}]"},
                                 {"log.dump_every", "3"},
                                 {"log.dump", "[fc]"}};
    const LogConfig log = LoadText(kStart, "log.yaml", overrides).config.log;
    CHECK(log.histogram_every == 10);
    CHECK(NamesOf(log) == Texts{"scale=2", "format=bf16"});
    CHECK(log.dump == Texts{"fc"});
  }
}

}  // namespace ada::config

// The table of presets against the systems' constants, the keys that each knows, the messages about
// those it does not, and the list of policies.
#include "scaling/policies/presets.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cfloat>
#include <set>
#include <string>
#include <vector>

#include "error.h"
#include "scaling/policies/policies.h"

namespace ada::scaling {
namespace {

DynamicParameters Default(const char* preset) { return FindDynamicPreset(preset).parameters; }

TEST_SUITE("cpu") {
  TEST_CASE("constants of each system") {
    struct Row {
      std::string name;
      double start, up, down;
      std::int64_t window;
      double min, max;
      std::int64_t hysteresis;
      double tolerance;
      bool error;
      std::int64_t retries;
    };
    const Row rows[] = {
        {"pytorch", 65536, 2, 0.5, 2000, 0, 0, 1, 0, false, 0},
        {"tensorflow", 32768, 2, 0.5, 2000, 1, 0, 1, 0, false, 0},
        {"keras", 32768, 2, 0.5, 2000, 0, 0, 1, 0, false, 0},
        {"apex", 65536, 2, 0.5, 2000, 0, 16777216, 1, 0, false, 0},
        {"deepspeed", 65536, 2, 0.5, 1000, 1, 0, 2, 0, true, 0},
        {"megatron", 4294967296, 2, 0.5, 1000, 1, 0, 2, 0, false, 0},
        {"fairseq", 32768, 2, 0.5, 2000, 0, 0, 1, 0, true, 0},
        {"nnabla", 8, 2, 0.5, 2000, 0, 0, 1, 0, false, 100},
        {"cerebras", 32768, 2, 0.5, 2000, 0x1p-14, 32768, 1, 0.05, false, 0},
        {"openseq2seq_backoff", 16384, 2, 0.5, 2000, 1, 16384, 1, 0, false, 0},
        {"mindspore", 16777216, 2, 0.5, 2000, 1, 0, 1, 0, false, 0},
        {"paddle", 65536, 2, 0.5, 2000, 0, 0, 1, 0, false, 0},
        {"jmp", 32768, 2, 0.5, 2000, 1, 0, 1, 0, false, 0},
        {"flax", 65536, 2, 0.5, 2000, FLT_MIN, FLT_MAX, 1, 0, false, 0},
        {"mxnet", 65536, 2, 0.5, 2000, 0, 16777216, 1, 0, false, 0},
        {"chainer", 1, 2, 0.5, 1000, 1, 65504, 1, 0, false, 0},
        {"marian", 8, 1, 1, 10000, 8, 0, 1, 0, false, 0},
        {"guided_diffusion", 1048576, 2, 0.5, 2000, 0, 0, 1, 0, false, 0},
        {"apex_hysteresis", 65536, 2, 0.5, 2000, 0, 0, 2, 0, false, 0},
        {"mindformers", 65536, 2, 0.5, 20, 1, 0, 1, 0, false, 0},
    };
    REQUIRE(DynamicPresets().size() == std::size(rows));
    for (const Row& row : rows) {
      CAPTURE(row.name);
      const DynamicPreset& preset = FindDynamicPreset(row.name);
      const DynamicParameters p = Resolved(preset.parameters);
      CHECK(p.preset == row.name);
      CHECK(p.init_scale == row.start);
      CHECK(p.growth_factor == row.up);
      CHECK(p.backoff_factor == row.down);
      CHECK(p.growth_interval == row.window);
      CHECK(p.min_scale == row.min);
      CHECK(p.max_scale == row.max);
      CHECK(p.hysteresis == row.hysteresis);
      CHECK_FALSE(p.consecutive_hysteresis);
      CHECK(p.tolerance == row.tolerance);
      CHECK(p.error_at_min_scale == row.error);
      CHECK(preset.max_retries == row.retries);
      CHECK(MakeDynamic(preset.parameters)->Scale() == row.start);
    }
  }

  TEST_CASE("what follows from other parameters") {
    DynamicParameters p = Default("tensorflow");
    p.growth_factor = 4;
    CHECK(Resolved(p).backoff_factor == 0.25);
    p.backoff_factor = 0.5;
    CHECK(Resolved(p).backoff_factor == 0.5);
    p = Default("openseq2seq_backoff");
    p.max_scale = 64;
    CHECK(Resolved(p).init_scale == 64);
    p.init_scale = 8;
    CHECK(Resolved(p).init_scale == 8);
    p = Default("flax");
    p.growth_factor = 4;
    CHECK(Resolved(p).backoff_factor == 0.5);
  }

  TEST_CASE("keys that a preset knows") {
    const std::vector<std::string_view> common = {
        "init_scale", "growth_factor", "backoff_factor",    "growth_interval",
        "min_scale",  "max_scale",     "error_at_min_scale"};
    const auto more = [&](std::string_view preset) {
      std::set<std::string_view> keys;
      for (const std::string_view key : KeysOf(preset)) CHECK(keys.insert(key).second);
      for (const std::string_view key : common)
        CHECK(keys.erase(key) == (HasCommonKeys(preset) ? 1 : 0));
      return keys;
    };
    using Keys = std::set<std::string_view>;
    for (const DynamicPreset& preset : DynamicPresets()) {
      CAPTURE(preset.name);
      Keys expected;
      if (preset.name == "deepspeed") expected = {"hysteresis", "consecutive_hysteresis"};
      if (preset.name == "megatron" || preset.name == "paddle" || preset.name == "apex_hysteresis")
        expected = {"hysteresis"};
      if (preset.name == "guided_diffusion") expected = {"init_lg_scale", "lg_growth"};
      if (preset.name == "mindformers") expected = {"min_window", "max_window"};
      if (preset.name == "fairseq" || preset.name == "cerebras") expected = {"tolerance"};
      CHECK(more(preset.name) == expected);
    }
    CHECK_THROWS_AS(KeysOf("pytroch"), ConfigError);
  }

  TEST_CASE("values and keys that a preset refuses") {
    struct Row {
      const char* preset;
      void (*change)(DynamicParameters&);
      const char* message;
    };
    const Row rows[] = {
        {"pytorch", [](DynamicParameters& p) { p.hysteresis = 2; },
         "scaling.hysteresis: preset pytorch knows no such key"},
        {"megatron", [](DynamicParameters& p) { p.consecutive_hysteresis = true; },
         "scaling.consecutive_hysteresis: preset megatron knows no such key"},
        {"deepspeed", [](DynamicParameters& p) { p.tolerance = 0.1; },
         "scaling.tolerance: preset deepspeed knows no such key"},
        {"cerebras", [](DynamicParameters& p) { p.min_scale = 65536; },
         "scaling.min_scale: 65536 under preset cerebras, expected at most max_scale, 32768"},
        {"cerebras", [](DynamicParameters& p) { p.tolerance = 1.5; },
         "scaling.tolerance: 1.5 under preset cerebras, expected a share, 0 .. 1"},
        {"jmp", [](DynamicParameters& p) { p.growth_interval = 0; },
         "scaling.growth_interval: 0 under preset jmp, expected 1 or more"},
        {"jmp", [](DynamicParameters& p) { p.growth_factor = 0.5; },
         "scaling.growth_factor: 0.5 under preset jmp, expected 1 or more"},
        {"jmp", [](DynamicParameters& p) { p.backoff_factor = 2; },
         "scaling.backoff_factor: 2 under preset jmp, expected a number above 0, at most 1"},
        {"paddle", [](DynamicParameters& p) { p.hysteresis = 0; },
         "scaling.hysteresis: 0 under preset paddle, expected 1 or more"},
        {"apex", [](DynamicParameters& p) { p.max_scale = -1; },
         "scaling.max_scale: -1 under preset apex, expected 0 or more"},
        {"apex", [](DynamicParameters& p) { p.min_scale = NAN; },
         "scaling.min_scale: nan under preset apex, expected 0 or more"},
    };
    for (const Row& row : rows) {
      DynamicParameters p = Default(row.preset);
      row.change(p);
      CHECK_THROWS_WITH_AS(MakeDynamic(p), row.message, ConfigError);
    }
    CHECK_THROWS_WITH_AS(
        FindDynamicPreset("pytroch"),
        "scaling.preset: unknown preset 'pytroch', expected one of pytorch, tensorflow, keras, "
        "apex, deepspeed, megatron, fairseq, nnabla, cerebras, openseq2seq_backoff, mindspore, "
        "paddle, jmp, flax, mxnet, chainer, marian, guided_diffusion, apex_hysteresis, mindformers",
        ConfigError);
  }

  TEST_CASE("list of policies: one line each, names as in the YAML") {
    std::vector<std::string> starts = {"none: ", "fixed: "};
    for (const DynamicPreset& preset : DynamicPresets())
      starts.push_back("dynamic, preset " + std::string(preset.name) + ": ");
    for (const char* method :
         {"approx_range", "lognormal", "abs_range", "element_wise_range", "exact_range", "fixed"})
      starts.push_back("adaptive, method " + std::string(method) + ": ");
    for (const char* policy :
         {"layerwise_dynamic: ", "layerwise_dynamic, preset dalle: ", "logmax: ", "histogram: "})
      starts.emplace_back(policy);
    const std::vector<std::string> lines = ListPolicies();
    REQUIRE(lines.size() == starts.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      CAPTURE(lines[i]);
      CHECK(lines[i].rfind(starts[i], 0) == 0);
      CHECK(lines[i].find('\n') == std::string::npos);
      CHECK(std::count(lines[i].begin(), lines[i].end(), ';') >= 2);  // meaning; source; constants
    }
    CHECK(lines[6] ==
          "dynamic, preset deepspeed: one global S; the first overflows are forgiven (hysteresis, "
          "refilled when the scale grows); an overflow at the floor ends the run; first growth "
          "after growth_interval + 1 clean steps; microsoft/DeepSpeed "
          "deepspeed/runtime/fp16/loss_scaler.py; init_scale 65536, growth_factor 2, "
          "backoff_factor 0.5, growth_interval 1000, min_scale 1, max_scale none, hysteresis 2, "
          "consecutive_hysteresis false, error_at_min_scale true");
    CHECK(lines[9].find("on_overflow retry") != std::string::npos);
  }
}

}  // namespace
}  // namespace ada::scaling

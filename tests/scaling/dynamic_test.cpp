// The dynamic policy beyond single transitions: starts, reasons, ends, random overflow patterns
// with save and restore at every attempt, states that do not fit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "error.h"
#include "scaling/policies/policies.h"
#include "scaling/policies/presets.h"
#include "scaling/with.h"

namespace ada::scaling {
namespace {

using testing::Of;
using testing::With;

// Random parameters of a preset, small enough that every branch is taken within a few hundred
// attempts; factors are powers of two.
DynamicParameters RandomParameters(const DynamicPreset& preset, std::mt19937& random) {
  DynamicParameters p = preset.parameters;
  p.init_scale = std::ldexp(1.0, static_cast<int>(random() % 12));
  p.growth_interval = 1 + static_cast<std::int64_t>(random() % 9);
  p.growth_factor = random() % 3 == 0 ? 4 : 2;
  p.backoff_factor = random() % 3 == 0 ? 0.25 : 0.5;
  p.min_scale = std::ldexp(1.0, -static_cast<int>(random() % 6));
  p.max_scale = std::ldexp(1.0, 12 + static_cast<int>(random() % 6));
  p.error_at_min_scale = false;
  if (preset.parameters.tolerance > 0 || preset.name == "fairseq")
    p.tolerance = static_cast<double>(random() % 5) / 10;
  if (preset.name == "deepspeed" || preset.name == "megatron" || preset.name == "paddle")
    p.hysteresis = 1 + static_cast<std::int64_t>(random() % 3);
  p.consecutive_hysteresis = preset.name == "deepspeed" && random() % 2 == 0;
  return p;
}

TEST_SUITE("cpu") {
  TEST_CASE("where a run starts") {
    CHECK(MakeDynamic(With("apex", 0x1p25, 9).p)->Scale() == 0x1p24);
    CHECK(MakeDynamic(With("apex", 4, 9).Bounds(8, 64).p)->Scale() == 4);
    CHECK(MakeDynamic(With("openseq2seq_backoff", 0, 9).Bounds(1, 64).p)->Scale() == 64);
    CHECK(MakeDynamic(With("deepspeed", 0.25, 9).p)->Scale() == 0.25);
    CHECK(MakeDynamic(With("cerebras", 0x1p20, 9).p)->Scale() == 0x1p20);
    CHECK(MakeDynamic(With("mindspore", 0.1, 9).p)->Scale() == 0.1);
    CHECK(MakeDynamic(With("pytorch", 0.1, 9).p)->Scale() == static_cast<double>(0.1f));
  }

  TEST_CASE("mindspore ends at the 1001st overflow in a row") {
    const auto policy = MakeDynamic(With("mindspore", 4, 9).p);
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 1000; ++i) REQUIRE(policy->Update(Of('o')).error.empty());
      if (round == 0) REQUIRE(policy->Update(Of('.')).error.empty());
    }
    const ScaleUpdate verdict = policy->Update(Of('o'));
    CHECK(verdict.error.rfind("1001 overflows in a row", 0) == 0);
    CHECK(verdict.action == Action::kSkip);
    CHECK(verdict.after == 1);
  }

  TEST_CASE("reasons that people read") {
    struct Row {
      With with;
      const char* attempts;
      const char* reason;  // of the last attempt
    };
    const Row rows[] = {
        {{"pytorch", 8, 2}, "o", "overflow"},
        {{"pytorch", 8, 2}, "..", "2 clean steps"},
        {{"deepspeed", 8, 2}, "oo", "overflow, hysteresis spent"},
        {With("paddle", 8, 2).Hysteresis(2), "oo", "2 overflows in a row"},
        {With("fairseq", 8, 9).Tolerance(0.25), "...o", "overflow: 1 of 4 attempts"},
        {{"fairseq", 8, 9}, "o", "overflow"},
        {{"cerebras", 8, 9}, "..o", "overflow: 1 of 3 attempts"},
        {{"cerebras", 8, 2}, "..", "2 steps since the last change"},
        {{"cerebras", 0x1p17, 9}, ".", "max_scale"},
        {{"mxnet", 8, 9}, "oo", "overflow one attempt ago"},
        {{"mxnet", 8, 1}, "..", "1 clean steps, one attempt ago"},
        {{"chainer", 1, 9}, ".", "no overflow so far"},
        {{"chainer", 4, 9}, "o.", "clean step"},
    };
    for (const Row& row : rows) {
      const auto policy = MakeDynamic(row.with.p);
      CAPTURE(row.with.p.preset);
      ScaleUpdate verdict;
      for (const char* mark = row.attempts; *mark != '\0'; ++mark)
        verdict = policy->Update(Of(*mark));
      CHECK(verdict.reason == row.reason);
    }
    const ScaleUpdate end = MakeDynamic(With("deepspeed", 1, 9).Hysteresis(1).p)->Update(Of('o'));
    CHECK(end.error ==
          "gradients overflow at the smallest scale, 1 (scaling.min_scale of preset deepspeed): "
          "the scale cannot fall further; lower scaling.min_scale or the learning rate, or set "
          "scaling.error_at_min_scale: false");
  }

  TEST_CASE("random overflows: bounds, powers of two, and a restored policy goes on alike") {
    std::mt19937 random(5);
    for (const DynamicPreset& preset : DynamicPresets()) {
      CAPTURE(preset.name);
      for (int pattern = 0; pattern < 40; ++pattern) {
        CAPTURE(pattern);
        const DynamicParameters p = RandomParameters(preset, random);
        const unsigned one_in = 2 + random() % 9;
        auto straight = MakeDynamic(p), restored = MakeDynamic(p);
        for (int step = 0; step < 200; ++step) {
          CAPTURE(step);
          const StepOutcome attempt = Of(random() % one_in == 0 ? 'o' : '.');
          const ScaleUpdate verdict = straight->Update(attempt);
          auto next = MakeDynamic(p);
          next->LoadState(restored->SaveState());
          restored = std::move(next);
          const ScaleUpdate again = restored->Update(attempt);
          REQUIRE(again.after == verdict.after);
          REQUIRE(again.action == verdict.action);
          REQUIRE(again.error == verdict.error);
          REQUIRE(restored->SaveState() == straight->SaveState());
          if (!preset.common_keys) continue;  // neither bounds nor powers of two
          REQUIRE(verdict.after >= std::min(p.min_scale, verdict.before));
          REQUIRE(verdict.after <= std::max(p.max_scale, verdict.before));
          if (preset.name == "chainer") continue;  // its scales are no powers of two
          int exponent = 0;
          REQUIRE(std::frexp(verdict.after, &exponent) == 0.5);
          if (preset.name == "mxnet" || preset.name == "cerebras") continue;  // late; counts both
          if (verdict.action == Action::kSkip) REQUIRE(verdict.after <= verdict.before);
          if (verdict.action == Action::kUpdate) REQUIRE(verdict.after >= verdict.before);
        }
      }
    }
  }

  TEST_CASE("states that do not fit are refused and change nothing") {
    for (const DynamicPreset& preset : DynamicPresets()) {
      CAPTURE(preset.name);
      DynamicParameters p = preset.parameters;
      p.init_scale = 8;
      p.growth_interval = 4;
      const auto policy = MakeDynamic(p);
      const StateMap good = policy->SaveState();
      policy->LoadState(good);
      std::vector<StateMap> states = {{}};
      for (const auto& [key, text] : good) {
        states.push_back(good);
        states.back().erase(key);
        for (const char* bad : {"", "eight", "-1", "0x1p+3 ", "nan", "-0x1p+3"}) {
          states.push_back(good);
          states.back()[key] = bad;
        }
      }
      states.push_back(good);
      states.back()["more"] = "1";
      for (const StateMap& state : states) {
        CHECK_THROWS_AS(policy->LoadState(state), DataError);
        CHECK(policy->SaveState() == good);
      }
    }
  }

  TEST_CASE("states out of a machine's range") {
    struct Row {
      std::string preset, key, value;
    };
    const Row rows[] = {{"pytorch", "scale", "inf"},
                        {"pytorch", "scale", "0x1.0000000000001p+3"},  // no fp32
                        {"apex", "scale", "inf"},
                        {"pytorch", "growth_tracker", "4"},
                        {"deepspeed", "growth_tracker", "5"},
                        {"nnabla", "growth_tracker", "6"},
                        {"deepspeed", "overflows_left", "0"},
                        {"deepspeed", "overflows_left", "3"},
                        {"mindspore", "overflows_in_a_row", "1001"},
                        {"chainer", "overflowed", "2"},
                        {"cerebras", "attempts_since_rescale", "4"}};
    for (const Row& row : rows) {
      CAPTURE(row.preset);
      CAPTURE(row.key);
      const auto policy = MakeDynamic(With(row.preset.c_str(), 8, 4).p);
      StateMap state = policy->SaveState();
      state[row.key] = row.value;
      CHECK_THROWS_AS(policy->LoadState(state), DataError);
    }
    StateMap grown = MakeDynamic(With("keras", 8, 4).p)->SaveState();
    grown["scale"] = "inf";
    MakeDynamic(With("keras", 8, 4).p)->LoadState(grown);  // keras can get there
  }

  TEST_CASE("layers under dynamic pass S on") {
    LayerInfo layer;
    layer.u_max = 65504;
    const LayerRule rule = MakeDynamic({})->RuleFor(layer);
    CHECK(rule.method == LayerMethod::kPass);
    CHECK(rule.u_max == 65504);
  }
}

}  // namespace
}  // namespace ada::scaling

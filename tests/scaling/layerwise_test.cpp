// layerwise_dynamic: the recorded traces of fairscale on the policy object, every transition,
// restoring.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "error.h"
#include "golden_table.h"
#include "scaling/policies/policies.h"

namespace ada::scaling {
namespace {

LayerInfo Named(const std::string& name) {
  LayerInfo layer;
  layer.name = name;
  layer.u_max = 65504;
  return layer;
}

LayerwiseSettings Settings(double start, std::int64_t window, double min = 0x1p-126,
                           double max = 0x1p126) {
  LayerwiseSettings s;
  s.init_scale = start;
  s.growth_interval = window;
  s.min_scale = min;
  s.max_scale = max;
  return s;
}

using Table = std::map<std::string, LayerwiseSettings>;
std::unique_ptr<Policy> Make(const Table& table) {
  auto policy =
      MakeLayerwiseDynamic(2, [table](const std::string& name) { return table.at(name); });
  for (const auto& [name, settings] : table) {
    const LayerRule rule = policy->RuleFor(Named(name));
    CHECK(rule.method == LayerMethod::kState);
    CHECK(rule.u_max == 65504);
  }
  return policy;
}

// The layers that overflow, by their one-letter names.
StepOutcome Bad(const std::string& layers) {
  StepOutcome attempt;
  attempt.overflow = !layers.empty();
  for (const char c : layers) attempt.layer_overflow[std::string(1, c)] = true;
  return attempt;
}

// A recorded trace's settings: the layers that fairscale was told of. Others it leaves alone.
Table TableOf(const testing::GoldenTable& golden) {
  LayerwiseSettings base = Settings(1, 10000);
  Table table;
  for (const std::string& comment : golden.comments) {
    if (comment.rfind("params: ", 0) != 0) continue;
    for (const std::string& word : testing::Words(comment.substr(8))) {
      if (word.rfind("(of", 0) == 0) break;
      const std::string name = word.substr(0, word.find('='));
      const std::string value = word.substr(word.find('=') + 1);
      if (name == "growth_interval") base.growth_interval = std::stoll(value);
      if (name == "min_scale") base.min_scale = std::stod(value);
      if (name == "max_scale") base.max_scale = std::stod(value);
      if (name != "layers") continue;
      for (std::size_t at = 0; at < value.size();) {
        const std::size_t end = std::min(value.find('/', at), value.size());
        const std::size_t colon = value.find(':', at);
        LayerwiseSettings layer = base;
        layer.init_scale = std::stod(value.substr(colon + 1, end - colon - 1));
        table[value.substr(at, colon - at)] = layer;
        at = end + 1;
      }
    }
  }
  return table;
}

TEST_SUITE("cpu") {
  TEST_CASE("every row of the recorded traces of fairscale") {
    int traces = 0;
    const std::string folder =
        std::string(ADA_SOURCE_DIR) + "/tests/golden/dynamic/fairscale_layerwise";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string file = entry.path().filename();
      CAPTURE(file);
      const testing::GoldenTable golden =
          testing::ReadGolden("dynamic/fairscale_layerwise/" + file);
      const Table table = TableOf(golden);
      REQUIRE(table.size() >= 2);
      const auto policy = Make(table);
      REQUIRE(golden.rows.size() % 4 == 0);
      for (std::size_t i = 0; i < golden.rows.size(); i += 4) {
        CAPTURE(i);
        StepOutcome attempt;
        for (std::size_t j = i; j < i + 4; ++j) {
          const testing::GoldenRow& row = golden.rows[j];
          const bool overflow = row.at("overflow") == "1";
          attempt.layer_overflow[row.at("layer")] = overflow;
          attempt.overflow = attempt.overflow || overflow;
          REQUIRE(policy->LayerScale(row.at("layer")) == testing::Number(row, "scale"));
        }
        const ScaleUpdate verdict = policy->Update(attempt);
        const StateMap state = policy->SaveState();
        for (std::size_t j = i; j < i + 4; ++j) {
          const testing::GoldenRow& row = golden.rows[j];
          REQUIRE((verdict.action == Action::kSkip) == (row.at("skipped") == "1"));
          REQUIRE(policy->LayerScale(row.at("layer")) == testing::Number(row, "scale_after"));
          if (table.count(row.at("layer")) > 0)
            REQUIRE(state.at("growth_tracker " + row.at("layer")) == row.at("growth_tracker"));
        }
      }
      ++traces;
    }
    CHECK(traces == 4);
  }

  TEST_CASE("every transition of two layers, a before b; Scale is b's") {
    struct Row {
      std::string what;
      LayerwiseSettings a, b;
      std::vector<const char*> bad;
      std::vector<double> after_a, after_b;
    };
    const Row rows[] = {
        {"both grow when their windows are full",
         Settings(8, 2),
         Settings(16, 3),
         {"", "", "", ""},
         {8, 16, 16, 32},
         {16, 16, 32, 32}},
        {"only the bad layer falls, the other one's window goes on",
         Settings(8, 2),
         Settings(16, 2),
         {"", "a", "", ""},
         {8, 4, 4, 8},
         {16, 32, 32, 64}},
        {"both fall", Settings(8, 2), Settings(16, 2), {"ab"}, {4}, {8}},
        {"floor", Settings(8, 9, 6), Settings(16, 9), {"a", "a"}, {6, 6}, {16, 16}},
        {"ceiling", Settings(8, 1, 1, 12), Settings(16, 1), {"", ""}, {12, 12}, {32, 64}},
        {"a layer that is not listed still skips the step",
         Settings(8, 9),
         Settings(16, 9),
         {"c"},
         {8},
         {16}},
    };
    for (const Row& row : rows) {
      CAPTURE(row.what);
      const auto policy = Make({{"a", row.a}, {"b", row.b}});
      CHECK(policy->Scale() == row.b.init_scale);
      CHECK(policy->RequiredStats().layers);
      for (std::size_t i = 0; i < row.bad.size(); ++i) {
        CAPTURE(i);
        const std::string bad = row.bad[i];
        const ScaleUpdate verdict = policy->Update(Bad(bad));
        CHECK(policy->LayerScale("a") == row.after_a[i]);
        CHECK(policy->LayerScale("b") == row.after_b[i]);
        CHECK(policy->Scale() == row.after_b[i]);
        CHECK(verdict.after == row.after_b[i]);
        CHECK(verdict.reason.empty() == (verdict.before == verdict.after));
        CHECK(verdict.action == (bad.empty() ? Action::kUpdate : Action::kSkip));
        CHECK(verdict.error.empty());
      }
    }
  }

  TEST_CASE("an overflow of unknown origin lowers every layer") {
    const auto policy = Make({{"a", Settings(8, 9)}, {"b", Settings(16, 9)}});
    StepOutcome attempt;
    attempt.overflow = true;
    attempt.layer_overflow = {{"a", false}, {"b", false}};
    const ScaleUpdate verdict = policy->Update(attempt);
    CHECK(verdict.action == Action::kSkip);
    CHECK(verdict.reason == "overflow in b");
    CHECK(policy->LayerScale("a") == 4);
    CHECK(policy->LayerScale("b") == 8);
  }

  TEST_CASE("factors, reasons, no layers") {
    LayerwiseSettings s = Settings(8, 1);
    s.growth_factor = 4;
    s.backoff_factor = 0.25;
    const auto policy = Make({{"a", s}});
    CHECK(policy->Update(Bad("")).reason == "1 clean steps of a");
    CHECK(policy->Scale() == 32);
    CHECK(policy->Update(Bad("a")).reason == "overflow in a");
    CHECK(policy->Scale() == 8);
    const auto empty = Make({});
    CHECK(empty->Scale() == 2);
    CHECK(empty->LayerScale("a") == 1);
    CHECK(empty->Update(Bad("x")).action == Action::kSkip);
    CHECK_THROWS_AS(Make({{"a", Settings(8, 9, 4, 2)}}), ConfigError);
    CHECK_THROWS_AS(Make({{"a", Settings(-1, 9)}}), ConfigError);
  }

  TEST_CASE("random overflows: bounds, powers of two, and a restored policy goes on alike") {
    std::mt19937 random(11);
    for (int pattern = 0; pattern < 20; ++pattern) {
      const Table table = {{"a", Settings(8, 1 + random() % 5, 2, 256)},
                           {"b", Settings(64, 1 + random() % 5, 2, 256)},
                           {"c", Settings(4, 1 + random() % 5, 2, 256)}};
      auto straight = Make(table), restored = Make(table);
      for (int step = 0; step < 150; ++step) {
        CAPTURE(pattern);
        CAPTURE(step);
        std::string bad;
        for (const char layer : {'a', 'b', 'c'})
          if (random() % 6 == 0) bad += layer;
        const StepOutcome attempt = Bad(bad);
        const ScaleUpdate verdict = straight->Update(attempt);
        auto next = Make(table);
        next->LoadState(restored->SaveState());
        restored = std::move(next);
        REQUIRE(restored->Update(attempt).after == verdict.after);
        REQUIRE(restored->SaveState() == straight->SaveState());
        for (const auto& [name, settings] : table) {
          const double scale = straight->LayerScale(name);
          REQUIRE((scale >= 2 && scale <= 256));
          int exponent = 0;
          REQUIRE(std::frexp(scale, &exponent) == 0.5);
        }
      }
    }
  }

  TEST_CASE("states that do not fit") {
    const auto policy = Make({{"a", Settings(8, 4)}, {"b", Settings(16, 4)}});
    const StateMap good = policy->SaveState();
    CHECK(good.size() == 4);
    const std::pair<const char*, const char*> changes[] = {{"scale a", "inf"},
                                                           {"scale a", "-0x1p+1"},
                                                           {"growth_tracker b", "4"},
                                                           {"growth_tracker b", "-1"},
                                                           {"scale c", "0x1p+1"}};
    for (const auto& [key, value] : changes) {
      CAPTURE(key);
      StateMap state = good;
      state[key] = value;
      CHECK_THROWS_AS(policy->LoadState(state), DataError);
      CHECK(policy->SaveState() == good);
    }
    CHECK_THROWS_AS(policy->LoadState({}), DataError);
  }
}

}  // namespace
}  // namespace ada::scaling

// Delayed scaling against recorded traces of Transformer Engine and MS-AMP, edges by hand, states.
#include "scaling/rules/tensor_scale.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "golden_table.h"
#include "scaling/rules/state_text.h"

namespace ada::scaling {
namespace {

using testing::GoldenRow;
using testing::Number;

constexpr float kLargest = std::numeric_limits<float>::max();

// amax as recorded: 9 significant digits that read back to the fp32.
float Amax(const GoldenRow& row) { return static_cast<float>(Number(row, "amax")); }

// Steps between two positive fp32 values.
int UlpsBetween(float a, float b) {
  int steps = 0;
  for (; a != b && steps < 100; ++steps) a = std::nextafter(a, b);
  return steps;
}

// "amax_history_len=16 amax_compute_algo=max margin=2 fp8_max=448" of a trace's comment lines.
TensorScaleRule RuleOf(const testing::GoldenTable& trace) {
  TensorScaleRule rule;
  rule.reference = true;
  int known = 0;
  for (const std::string& comment : trace.comments) {
    for (const std::string& word : testing::Words(comment)) {
      const std::string value = word.substr(word.find('=') + 1);
      if (word.rfind("amax_history_len=", 0) == 0) rule.history = std::stoi(value), ++known;
      if (word.rfind("amax_compute_algo=", 0) == 0) {
        rule.amax = value == "most_recent" ? Amax::kMostRecent : Amax::kMax, ++known;
      }
      if (word.rfind("margin=", 0) == 0) rule.margin = std::stod(value), ++known;
      if (word.rfind("fp8_max=", 0) == 0) rule.format_max = std::stod(value), ++known;
    }
  }
  REQUIRE(known == 4);
  return rule;
}

// A scale and what it is made of.
struct Scaled : TensorScaler, TensorScaleHistory {};
void Update(Scaled& scaler, float amax) { UpdateTensorScale(scaler, amax, scaler); }
StateMap Save(const Scaled& scaler) { return SaveTensorScale(scaler, scaler); }
void Load(const StateMap& state, Scaled& scaler) {
  LoadTensorScale(state, "conv1.y", scaler, scaler);
}

Scaled ScalerOf(std::int32_t history) {
  Scaled scaler;
  scaler.rule.history = history;
  return scaler;
}

TEST_SUITE("cpu") {
  TEST_CASE("recorded traces of Transformer Engine, within 2 ulp") {
    int steps = 0;
    for (const std::string name : {"len1-max-e4m3", "len1024-max-e4m3", "len16-max-e4m3",
                                   "len16-max-e5m2-margin2", "len16-nonfinite", "len16-zeros",
                                   "len4-recent-e4m3", "len4-recent-nonfinite", "len8-tiny"}) {
      CAPTURE(name);
      const testing::GoldenTable trace = testing::ReadGolden("delayed/te_delayed/" + name + ".csv");
      Scaled scaler;
      scaler.rule = RuleOf(trace);
      for (const GoldenRow& row : trace.rows) {
        CAPTURE(row.at("step"));
        CHECK(UlpsBetween(scaler.scale, static_cast<float>(Number(row, "scale"))) <= 2);
        Update(scaler, Amax(row));
        CHECK(UlpsBetween(scaler.scale, static_cast<float>(Number(row, "scale_after"))) <= 2);
        ++steps;
      }
    }
    CHECK(steps == 2100);
  }

  TEST_CASE("recorded factors of MS-AMP, exactly but for its slip") {
    int exact = 0, slips = 0;
    for (const GoldenRow& row : testing::ReadGolden("delayed/msamp.csv").rows) {
      CAPTURE(row.at("fp_max"));
      CAPTURE(row.at("amax"));
      Scaled scaler;
      scaler.rule.power_of_two = scaler.rule.reference = true;
      scaler.rule.history = 1;
      scaler.rule.format_max = Number(row, "fp_max");
      scaler.rule.margin = Number(row, "margin");
      scaler.scale = static_cast<float>(Number(row, "scale"));
      const float factor = DelayedScale(scaler.rule, Amax(row), scaler.scale);
      const double recorded = Number(row, "scale_after");
      Update(scaler, Amax(row));
      if (std::isinf(Amax(row))) {  // 1 / scale there, kept here
        CHECK(recorded == 0.125);
        CHECK(factor == 8);
        ++slips;
        continue;
      }
      CHECK(factor == recorded);
      CHECK(scaler.scale == (std::isinf(recorded) ? 8 : recorded));
      ++exact;
    }
    CHECK(exact > 600);
    CHECK(slips >= 3);
  }

  // fp32's log2 of a quotient just below 2^85 is 85, which would scale the largest value out of
  // range.
  TEST_CASE("a power of two is never above the quotient, but under reference") {
    TensorScaleRule rule;
    rule.format_max = 0x1.ff8p63, rule.power_of_two = true;
    const float amax = 0x1.ff8016p-22f;
    CHECK(DelayedScale(rule, amax, 1) == 0x1p84f);
    rule.reference = true;
    CHECK(DelayedScale(rule, amax, 1) == 0x1p85f);
  }

  TEST_CASE("edges of the factor") {
    struct Row {
      double format_max, margin;
      bool power_of_two;
      float amax, expected;  // current: 4
    };
    const float inf = INFINITY, nan = NAN;
    const Row rows[] = {{448, 0, false, 2, 224},
                        {448, 2, false, 2, 56},
                        {448, -1, false, 2, 448},
                        {57344, 0, false, 0.5f, 114688},
                        {448, 0, false, 0, 4},
                        {448, 0, false, inf, 4},
                        {448, 0, false, nan, 4},
                        {448, 0, false, 1e-38f, kLargest},
                        {448, 200, false, 1e-38f, kLargest},
                        {448, 0, true, 2, 128},
                        {448, 2, true, 2, 32},
                        {448, 0, true, 448, 1},
                        {448, 0, true, 449, 0.5f},
                        {448, 0, true, 0, 4},
                        {448, 0, true, inf, 4},
                        {448, 0, true, nan, 4},
                        {448, 0, true, 1e-38f, inf},
                        {448, 0, true, 3e38f, 0x1p-120f}};
    for (const Row& row : rows) {
      CAPTURE(row.amax);
      TensorScaleRule rule;
      rule.format_max = row.format_max;
      rule.margin = row.margin;
      rule.power_of_two = row.power_of_two;
      CHECK(DelayedScale(rule, row.amax, 4) == row.expected);
    }
  }

  TEST_CASE("what is not finite is passed over") {
    for (const float bad : {NAN, INFINITY}) {
      Scaled scaler = ScalerOf(4);
      Update(scaler, 1);
      Update(scaler, bad);
      CHECK(scaler.scale == 448);
      Update(scaler, 7);
      CHECK(scaler.scale == 64);
      CHECK(scaler.amax == std::vector<float>{1, 7});
    }
  }

  TEST_CASE("reference: a NaN or an inf in the history freezes the scale until it has left") {
    for (const float bad : {NAN, INFINITY}) {
      Scaled scaler = ScalerOf(4);
      scaler.rule.reference = true;
      Update(scaler, 1);
      CHECK(scaler.scale == 448);
      Update(scaler, bad);
      for (int step = 0; step < 3; ++step) {
        Update(scaler, 7);
        CHECK(scaler.scale == 448);
      }
      Update(scaler, 7);
      CHECK(scaler.scale == 64);
      scaler.rule.amax = Amax::kMostRecent;  // there it lasts for its own step alone
      Update(scaler, bad);
      CHECK(scaler.scale == 64);
      Update(scaler, 3.5f);
      CHECK(scaler.scale == 128);
    }
  }

  TEST_CASE("the scale stays a positive finite number, whatever comes") {
    std::mt19937_64 random(3);
    for (const bool power_of_two : {false, true}) {
      Scaled scaler = ScalerOf(3);
      scaler.rule.power_of_two = power_of_two;
      const float values[] = {0, 1e-45f, 1e-38f, 1e-3f, 1, 448, 1e30f, kLargest, INFINITY, NAN};
      for (int step = 0; step < 2000; ++step) {
        Update(scaler, values[random() % std::size(values)]);
        CHECK(scaler.scale > 0);
        CHECK(std::isfinite(scaler.scale));
        CHECK(scaler.amax.size() <= 3);
      }
    }
  }

  TEST_CASE("saved at any step and read back: the same scales") {
    std::mt19937_64 random(5);
    for (const std::int32_t history : {1, 3, 8}) {
      Scaled straight = ScalerOf(history), resumed = ScalerOf(history);
      for (int step = 0; step < 30; ++step) {
        const float amax = step % 11 == 7   ? NAN
                           : step % 13 == 5 ? INFINITY
                                            : std::ldexp(1.1f, static_cast<int>(random() % 20));
        Update(straight, amax);
        Update(resumed, amax);
        CHECK(straight.scale == resumed.scale);
        const StateMap saved = Save(resumed);
        resumed = ScalerOf(history);
        Load(saved, resumed);
        CHECK(Save(resumed) == saved);
        CHECK(Save(straight) == saved);
      }
    }
  }

  TEST_CASE("damaged states are refused, naming the tensor") {
    Scaled scaler = ScalerOf(2);
    Update(scaler, 1);
    const std::vector<std::pair<std::string, std::string>> rows = {{"scale", "0x0p+0"},
                                                                   {"scale", "inf"},
                                                                   {"scale", "nan"},
                                                                   {"scale", "-0x1p+0"},
                                                                   {"scale", "0x1p+200"},
                                                                   {"next", "0"},
                                                                   {"next", "2"},
                                                                   {"next", "x"},
                                                                   {"amax", ""},
                                                                   {"amax", "-0x1p+0"},
                                                                   {"amax", "0x1.00000001p+0"},
                                                                   {"amax", "0x1p+0 0x1p+0 0x1p+0"},
                                                                   {"amax", "one"},
                                                                   {"other", "1"}};
    for (const auto& [key, text] : rows) {
      CAPTURE(key);
      CAPTURE(text);
      StateMap bad = Save(scaler);
      bad[key] = text;
      Scaled loaded = ScalerOf(2);
      CHECK_THROWS_AS(Load(bad, loaded), DataError);
      CHECK(loaded.amax.empty());
      CHECK(loaded.scale == 1);
    }
    StateMap bad = Save(scaler);
    bad["scale"] = "inf";
    CHECK_THROWS_WITH_AS(Load(bad, scaler),
                         "scale of tensor conv1.y: scale is inf, expected a positive fp32; the "
                         "checkpoint is damaged or from a run with other settings: resume from an "
                         "older one",
                         DataError);
  }
}

}  // namespace
}  // namespace ada::scaling

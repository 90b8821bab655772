// exact_range: its rule on tails written by hand, and its promises on gradients at random: the
// target is met by the values that were counted, the headroom is kept, and no smaller power would
// do.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "scaling/rules/rules.h"
#include "scaling/rules/state_text.h"

namespace ada::scaling {
namespace {

LayerScaler ScalerOf(double target = 1e-3) {
  LayerScaler scaler;
  scaler.rule.method = LayerMethod::kExactRange;
  scaler.rule.underflow_target = target;
  scaler.rule.u_min = 0x1p-24;
  scaler.rule.u_max = 65504;
  return scaler;
}

// What a backend counts of |dgrad|.
ExponentTail CountOf(const std::vector<float>& values) {
  ExponentTail tail;
  for (const float value : values) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(std::fabs(value));
    if (bits == 0) continue;
    ++tail.nonzero;
    ++tail.bins[bits >> 23];
    tail.largest = std::fmax(tail.largest, std::fabs(value));
  }
  return tail;
}

// One backward pass: decides, observes where asked to.
ScaleDecision Pass(LayerScaler& scaler, const std::vector<float>& values, float scale_in) {
  Decide(scaler, {}, scale_in);
  if (WantsTail(scaler)) ObserveTail(scaler, CountOf(values));
  return scaler.decision;
}

std::vector<float> Repeated(std::initializer_list<std::pair<double, int>> groups) {
  std::vector<float> values;
  for (const auto& [value, count] : groups) {
    values.insert(values.end(), static_cast<std::size_t>(count), static_cast<float>(value));
  }
  return values;
}

TEST_SUITE("cpu") {
  TEST_CASE("the rule on small tails") {
    // Lost at alpha 1: below 2^-25. 1000 values, target 1e-3: one may be lost.
    struct Row {
      const char* what;
      std::vector<float> values;
      double target;
      float alpha;
      Limit limit;
    };
    const Row rows[] = {
        {"nothing is lost", Repeated({{1, 1000}}), 1e-3, 1, Limit::kOne},
        {"one may be lost", Repeated({{1, 999}, {0x1p-30, 1}}), 1e-3, 1, Limit::kOne},
        {"two may not: both are saved together", Repeated({{1, 998}, {0x1p-30, 2}}), 1e-3, 32,
         Limit::kTarget},
        {"the larger of two is saved", Repeated({{1, 998}, {0x1p-30, 1}, {0x1p-27, 1}}), 1e-3, 4,
         Limit::kTarget},
        {"target 0: all are saved", Repeated({{1, 998}, {0x1p-30, 1}, {0x1p-27, 1}}), 0, 32,
         Limit::kTarget},
        {"half of u_min itself counts as kept", Repeated({{1, 500}, {0x1p-25, 500}}), 1e-3, 1,
         Limit::kOne},
        {"within a bin the low end counts", Repeated({{1, 500}, {0x1.8p-26, 500}}), 1e-3, 2,
         Limit::kTarget},
        {"zeros do not count", Repeated({{1, 10}, {0x1p-26, 1}, {0, 1000000}}), 0.2, 1,
         Limit::kOne},
        {"all zero", Repeated({{0, 1000}}), 1e-3, 1, Limit::kOne},
        {"headroom 4: largest * 4094 at most", Repeated({{1, 10}, {0x1p-60, 10}}), 1e-3, 2048,
         Limit::kCap},
        {"headroom asks for less than 1", Repeated({{10000, 10}}), 1e-3, 0.25f, Limit::kCap},
        {"headroom met exactly", Repeated({{4094, 10}}), 1e-3, 1, Limit::kOne},
        {"subnormals of fp32", Repeated({{0x1p-100, 10}, {0x1p-149, 10}}), 1e-3, 0x1p111f,
         Limit::kCap},
    };
    for (const Row& row : rows) {
      CAPTURE(row.what);
      LayerScaler scaler = ScalerOf(row.target);
      CHECK_FALSE(NeedsOf(scaler).moments);
      const ScaleDecision first = Pass(scaler, row.values, 1);
      CHECK(first.alpha == 1);
      CHECK(first.limit == Limit::kOne);
      const ScaleDecision second = Pass(scaler, row.values, 1);
      CHECK(second.alpha == row.alpha);
      CHECK(second.scale_out == row.alpha);
      CHECK(second.unbound == row.alpha);
      CHECK(second.pow2 == row.alpha);
      CHECK(std::isnan(second.bound));
      CHECK(std::string(LimitName(second.limit)) == LimitName(row.limit));
    }
  }

  TEST_CASE("no bounds SB and AB, a power of two in any case, u_min and headroom as set") {
    const std::vector<float> values = Repeated({{1, 900}, {0x1p-35, 100}});
    LayerScaler scaler = ScalerOf();
    scaler.rule.scale_upper_bound = scaler.rule.accum_upper_bound = 2;
    scaler.rule.power_of_two = false;
    Pass(scaler, values, 4);
    CHECK(Pass(scaler, values, 4).alpha == 1024);
    CHECK(std::isnan(scaler.decision.pow2));
    scaler.rule.u_min = 6.0e-8;  // just above 2^-24: one bin more is lost
    CHECK(Pass(scaler, values, 4).alpha == 2048);
    scaler.rule.headroom_bits = 8;
    CHECK(Pass(scaler, values, 4).alpha == 128);
    CHECK(scaler.decision.limit == Limit::kCap);
  }

  TEST_CASE("the tail is brought to this pass's S") {
    const std::vector<float> values = Repeated({{1, 900}, {0x1p-30, 100}});
    LayerScaler scaler = ScalerOf();
    Pass(scaler, values, 8);
    for (const auto& [scale_in, alpha] :
         {std::pair{8.0f, 32.0f}, {16.0f, 16.0f}, {1.0f, 256.0f}, {256.0f, 1.0f}, {12.0f, 32.0f}}) {
      CAPTURE(scale_in);
      LayerScaler copy = scaler;
      Decide(copy, {}, scale_in);
      CHECK(copy.decision.alpha == alpha);
      CHECK(copy.decision.scale_out == scale_in * alpha);
    }
  }

  TEST_CASE("S_out falls as far as the tail allows at once") {
    LayerScaler scaler = ScalerOf();
    const std::vector<float> tiny = Repeated({{0x1p-40, 1000}}), large = Repeated({{1, 1000}});
    Pass(scaler, tiny, 1);
    CHECK(Pass(scaler, tiny, 1).alpha == 0x1p15f);
    CHECK(Pass(scaler, large, 1).alpha == 0x1p15f);  // decided by the tail of `tiny`
    CHECK(Pass(scaler, large, 1).alpha == 1);
    CHECK(scaler.decision.limit == Limit::kOne);
  }

  TEST_CASE("where S falls, or the format of dx becomes another, all exponents are known") {
    // 2^-10 at S = 2^30 leaves fp16's range far behind, and is far inside it at S = 1.
    LayerScaler scaler = ScalerOf();
    Pass(scaler, Repeated({{0x1p-10, 1000}}), 1);
    for (const double u_min : {0x1p-133, 0x1p-24, 0x1p-9}) {
      scaler.rule.u_min = u_min;
      for (int fall = 0; fall < 40; ++fall) {
        CAPTURE(fall);
        CAPTURE(u_min);
        LayerScaler now = scaler;
        Decide(now, {}, std::ldexp(1.0f, -fall));
        // Kept where 2^-10 * S * alpha is at least u_min / 2; the headroom is far away.
        const double power = std::max(1.0, u_min / 2 * std::exp2(10 + fall));
        CHECK(now.decision.alpha == power);
        CHECK((now.decision.limit == Limit::kOne) == (power == 1));
      }
    }
  }

  TEST_CASE("update_interval: which passes are observed, and which decide") {
    const std::vector<float> small = Repeated({{1, 900}, {0x1p-30, 100}}),
                             smaller = Repeated({{1, 900}, {0x1p-32, 100}});
    LayerScaler scaler = ScalerOf();
    scaler.rule.update_interval = 3;
    struct Call {
      const std::vector<float>& values;
      bool observed;
      float alpha;
      Limit limit;
    };
    const Call calls[] = {{small, true, 1, Limit::kOne},       {smaller, false, 32, Limit::kTarget},
                          {smaller, false, 32, Limit::kStale}, {smaller, true, 32, Limit::kStale},
                          {small, false, 128, Limit::kTarget}, {small, false, 128, Limit::kStale},
                          {small, true, 128, Limit::kStale},   {small, false, 32, Limit::kTarget}};
    for (const Call& call : calls) {
      CAPTURE(scaler.state.calls);
      Decide(scaler, {}, 2);
      CHECK(WantsTail(scaler) == call.observed);
      if (call.observed) ObserveTail(scaler, CountOf(call.values));
      CHECK(scaler.decision.alpha == call.alpha);
      CHECK(std::string(LimitName(scaler.decision.limit)) == LimitName(call.limit));
    }
  }

  TEST_CASE("passes that are not finite change nothing") {
    const std::vector<float> values = Repeated({{1, 900}, {0x1p-30, 100}});
    LayerScaler scaler = ScalerOf();
    scaler.rule.update_interval = 5;
    for (const double bad : {HUGE_VAL, static_cast<double>(NAN)}) {  // observed until one is finite
      Decide(scaler, {}, 2);
      CHECK(scaler.decision.limit == Limit::kOne);
      CHECK(WantsTail(scaler));
      ExponentTail tail;
      tail.largest = bad;
      ObserveTail(scaler, tail);
      CHECK(scaler.state.tail.scale_in == 0);
    }
    Pass(scaler, values, 2);
    for (const float bad : {INFINITY, NAN, 0.0f}) {
      Decide(scaler, {}, bad);
      CHECK(scaler.decision.limit == Limit::kNonfinite);
      CHECK(scaler.decision.alpha == 1);
      CHECK_FALSE(WantsTail(scaler));
    }
    CHECK(Pass(scaler, values, 2).alpha == 32);
    LayerScaler other = ScalerOf();  // other methods look at no tail
    other.rule.method = LayerMethod::kApproxRange;
    CHECK_FALSE(WantsTail(other));
  }

  TEST_CASE("at random: target and headroom hold, and no smaller power would do") {
    std::mt19937_64 random(20240614);
    std::normal_distribution<double> normal;
    int targets = 0, caps = 0, ones = 0;
    for (int round = 0; round < 300; ++round) {
      CAPTURE(round);
      LayerScaler scaler = ScalerOf(std::exp2(-2.0 - round % 9));
      scaler.rule.headroom_bits = round % 5;
      const double center = -30 + round % 37, width = 0.5 + round % 7;
      const float scale_in = std::ldexp(1.0f, static_cast<int>(random() % 9) - 2);
      for (int pass = 0; pass < 4; ++pass) {
        std::vector<float> values;
        for (int i = 0; i < 500; ++i) {
          values.push_back(static_cast<float>(std::exp2(center + width * normal(random))));
        }
        const float next = std::ldexp(scale_in, static_cast<int>(random() % 3) - 1);
        Pass(scaler, values, scale_in);
        Decide(scaler, {}, next);
        const double ratio = next / scale_in, alpha = scaler.decision.alpha;
        const auto lost = [&](double factor) {
          double count = 0;
          for (const float value : values) count += value * ratio * factor < 0x1p-25;
          return count / static_cast<double>(values.size());
        };
        double largest = 0;
        for (const float value : values) largest = std::fmax(largest, value * ratio);
        const double room = 65504 * std::exp2(-scaler.rule.headroom_bits);
        CHECK(largest * alpha <= room);
        if (scaler.decision.limit == Limit::kCap) {
          ++caps;
          CHECK(largest * alpha * 2 > room);
          if (alpha >= 1) CHECK(lost(alpha) > scaler.rule.underflow_target);
          continue;
        }
        CHECK(lost(alpha) <= scaler.rule.underflow_target);
        (alpha > 1 ? targets : ones) += 1;
        CHECK((scaler.decision.limit == Limit::kOne) == (alpha == 1));
        if (alpha == 1) continue;
        CHECK(lost(alpha / 2) > scaler.rule.underflow_target);
      }
    }
    CHECK(targets > 100);
    CHECK(caps > 50);
    CHECK(ones > 100);
  }

  TEST_CASE("saved at any step and read back: the same decisions") {
    std::mt19937_64 random(7);
    LayerScaler straight = ScalerOf(0.01);
    straight.rule.update_interval = 2;
    LayerScaler resumed = straight;
    for (int pass = 0; pass < 40; ++pass) {
      std::vector<float> values;
      for (int i = 0; i < 100; ++i) {
        values.push_back(
            std::ldexp(1.0f + static_cast<float>(i) / 100, -static_cast<int>(random() % 40)));
      }
      const float scale_in = 0.75f * static_cast<float>(1 + random() % 5);
      const ScaleDecision a = Pass(straight, values, scale_in);
      const ScaleDecision b = Pass(resumed, values, scale_in);
      CHECK(a.alpha == b.alpha);
      CHECK(a.limit == b.limit);
      const StateMap saved = SaveLayerState(resumed.state);
      resumed.state = LoadLayerState(saved, "conv1");
      CHECK(SaveLayerState(resumed.state) == saved);
      CHECK(SaveLayerState(straight.state) == saved);
    }
  }
}

}  // namespace
}  // namespace ada::scaling

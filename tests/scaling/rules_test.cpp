// Decide stage by stage: tables written by hand from src/scaling/README.md (bounds, caching,
// clamps, non-finite input, layers with a state of their own). The methods: methods_test.cpp;
// recorded calls of the authors' program: adaptive_golden_test.cpp.
#include "scaling/rules/rules.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace ada::scaling {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Zero mean, deviation sd, extremes +-extreme.
TensorMoments Centered(double sd, double extreme) {
  return {0, sd * sd, static_cast<float>(-extreme), static_cast<float>(extreme), 0};
}
Observation Seen(const TensorMoments& dy, const TensorMoments& w) { return {dy, w, 0, 0, 0, 0}; }

LayerScaler ApproxRangeScaler() {
  LayerScaler scaler;
  scaler.rule.method = LayerMethod::kApproxRange;
  scaler.rule.u_min = 6.0e-8;
  scaler.rule.u_max = 65504;
  scaler.rule.fan = 576;
  return scaler;
}
const TensorMoments kWeights = Centered(0.05, 0.2);

bool SameState(const LayerState& a, const LayerState& b) {
  return a.unbound == b.unbound && a.unbound_limit == b.unbound_limit && a.calls == b.calls;
}

TEST_SUITE("cpu") {
  TEST_CASE("approx_range: the table of test vectors") {
    struct Row {
      double sd_dy, want, unbound, pow2;
      Limit limit;
    };
    // Independent figures: sigma = sd_dy * 0.05 * sqrt(288), want = 6e-8 / (1.2533144654e-3 *
    // sigma).
    const Row rows[] = {{1e-8, 5641.894, 5641.894, 4096, Limit::kTarget},
                        {1e-6, 56.41894, 56.41894, 32, Limit::kTarget},
                        {1e-4, 0.56419, 1, 1, Limit::kOne}};
    for (const Row& row : rows) {
      CAPTURE(row.sd_dy);
      LayerScaler scaler = ApproxRangeScaler();
      scaler.rule.scale_upper_bound = scaler.rule.accum_upper_bound = kInf;
      Decide(scaler, Seen(Centered(row.sd_dy, 5 * row.sd_dy), kWeights), 1);
      CHECK(scaler.decision.unbound == doctest::Approx(row.unbound).epsilon(1e-6));
      CHECK(scaler.decision.bound == scaler.decision.unbound);
      CHECK(scaler.decision.pow2 == row.pow2);
      CHECK(scaler.decision.alpha == row.pow2);
      CHECK(scaler.decision.scale_out == row.pow2);
      CHECK(scaler.decision.limit == row.limit);
      CHECK(scaler.state.calls == 1);
    }
  }

  TEST_CASE("approx_range: which rule decides") {
    struct Row {
      const char* what;
      double sd_dy, extreme;
      float scale_in;
      double sb, ab;
      bool power_of_two;
      double bound;
      float alpha, scale_out;
      Limit limit;
    };
    // sd 1e-8 wants 5641.9. cap = (65504 / 576) / (extreme * 0.2).
    const double cap = 65504.0 / 576 / (2000 * static_cast<double>(0.2f));
    const Row rows[] = {
        {"SB", 1e-8, 5e-8, 1, 16, 1024, true, 16, 16, 16, Limit::kScaleBound},
        {"AB", 1e-8, 5e-8, 512, 16, 1024, true, 2, 2, 1024, Limit::kAccumBound},
        {"AB / S equals SB", 1e-8, 5e-8, 64, 16, 1024, true, 16, 16, 1024, Limit::kScaleBound},
        {"AB below 1", 1e-8, 5e-8, 4096, 16, 1024, true, 0.25, 0.25f, 1024, Limit::kAccumBound},
        {"AB binds u = 1", 1e-2, 5e-2, 4096, 16, 1024, true, 0.25, 0.25f, 1024, Limit::kAccumBound},
        {"AB without power of two", 1e-8, 5e-8, 300, 16, 1000, false, 1000.0 / 300,
         static_cast<float>(1000.0 / 300), 300 * static_cast<float>(1000.0 / 300),
         Limit::kAccumBound},
        {"AB with power of two", 1e-8, 5e-8, 300, 16, 1000, true, 1000.0 / 300, 2, 600,
         Limit::kAccumBound},
        {"one", 1e-2, 5e-2, 1, 16, 1024, true, 1, 1, 1, Limit::kOne},
        {"cap", 1e-2, 2000, 4, 16, 1024, true, cap, 0.25f, 1, Limit::kCap},
        {"cap without power of two", 1e-2, 2000, 1, 16, 1024, false, cap, static_cast<float>(cap),
         static_cast<float>(cap), Limit::kCap},
        {"no gradient at all, before the cap", 0, 0, 1, 16, 1024, true, 1, 1, 1, Limit::kOne},
    };
    for (const Row& row : rows) {
      CAPTURE(row.what);
      LayerScaler scaler = ApproxRangeScaler();
      scaler.rule.scale_upper_bound = row.sb;
      scaler.rule.accum_upper_bound = row.ab;
      scaler.rule.power_of_two = row.power_of_two;
      Decide(scaler, Seen(Centered(row.sd_dy, row.extreme), kWeights), row.scale_in);
      CHECK(scaler.decision.scale_in == row.scale_in);
      CHECK(scaler.decision.bound == doctest::Approx(row.bound).epsilon(1e-7));
      CHECK(std::isnan(scaler.decision.pow2) == !row.power_of_two);
      CHECK(scaler.decision.alpha == row.alpha);
      CHECK(scaler.decision.scale_out == row.scale_out);
      CHECK(std::string(LimitName(scaler.decision.limit)) == LimitName(row.limit));
    }
  }

  TEST_CASE("signed extremes: the cap uses the largest product") {
    LayerScaler scaler = ApproxRangeScaler();
    scaler.rule.power_of_two = false;
    const TensorMoments dy{100, 20000, -3, 1000, 0}, w{0, 0.01, -0.5f, 0.25f, 0};
    Decide(scaler, Seen(dy, w), 1);
    CHECK(scaler.decision.alpha == static_cast<float>(65504.0 / 576 / 500));
    CHECK(scaler.decision.limit == Limit::kCap);
  }

  TEST_CASE("update_interval: cached value, bounds anew on every call") {
    LayerScaler scaler = ApproxRangeScaler();
    scaler.rule.update_interval = 3;
    struct Call {
      double sd_dy;  // NaN: no moments are given
      float scale_in;
      bool needs;
      float alpha;
      Limit limit;
    };
    const Call calls[] = {{1e-8, 1, true, 16, Limit::kScaleBound},
                          {kNan, 1, false, 16, Limit::kScaleBound},
                          {kNan, 512, false, 2, Limit::kAccumBound},
                          {4e-6, 1, true, 8, Limit::kTarget},
                          {kNan, 1, false, 8, Limit::kStale},
                          {kNan, 512, false, 2, Limit::kAccumBound},
                          {1, 8, true, 1, Limit::kOne},
                          {kNan, 2048, false, 0.5f, Limit::kAccumBound},
                          {kNan, 1, false, 1, Limit::kStale}};
    for (const Call& call : calls) {
      CAPTURE(scaler.state.calls);
      CHECK(NeedsOf(scaler).moments == call.needs);
      Decide(scaler, Seen(Centered(call.sd_dy, 5 * call.sd_dy), kWeights), call.scale_in);
      CHECK(scaler.decision.alpha == call.alpha);
      CHECK(scaler.decision.limit == call.limit);
    }
    CHECK(scaler.state.calls == 9);
  }

  TEST_CASE("fixed: the layer's constant, no bounds, power of two applies") {
    struct Row {
      double constant;
      bool power_of_two;
      float alpha;
    };
    const Row rows[] = {{1, true, 1},       {2, true, 2},         {3, true, 2},
                        {3, false, 3},      {0.3, true, 0.25f},   {0.3, false, 0.3f},
                        {2047, true, 1024}, {70000, false, 70000}};
    for (const Row& row : rows) {
      CAPTURE(row.constant);
      LayerScaler scaler;
      scaler.rule.method = LayerMethod::kFixed;
      scaler.rule.fixed_scale = row.constant;
      scaler.rule.power_of_two = row.power_of_two;
      CHECK_FALSE(NeedsOf(scaler).moments);
      Decide(scaler, Seen({kNan, kNan, 0, 0, 0}, {kNan, kNan, 0, 0, 0}), 1024);
      CHECK(scaler.decision.unbound == row.constant);
      CHECK(std::isnan(scaler.decision.bound));
      CHECK(std::isnan(scaler.decision.pow2) == !row.power_of_two);
      CHECK(scaler.decision.alpha == row.alpha);
      CHECK(scaler.decision.scale_out == 1024 * row.alpha);
      CHECK(scaler.decision.limit == Limit::kFixed);
    }
  }

  TEST_CASE("pass: S goes through, whatever it is") {
    for (const float scale : {1.0f, 65536.0f, 0.0f, INFINITY}) {
      LayerScaler scaler;
      CHECK_FALSE(NeedsOf(scaler).moments);
      Decide(scaler, Seen({kNan, kNan, 0, 0, 0}, {}), scale);
      CHECK(scaler.decision.alpha == 1);
      CHECK(scaler.decision.scale_in == scale);
      CHECK(scaler.decision.scale_out == scale);
      CHECK(scaler.decision.limit == Limit::kNone);
      CHECK(std::isnan(scaler.decision.unbound));
      CHECK(std::isnan(scaler.decision.bound));
      CHECK(std::isnan(scaler.decision.pow2));
      CHECK(SameState(scaler.state, LayerState{}));
    }
  }

  TEST_CASE("not finite: alpha 1, state as it was, the next pass decides") {
    const TensorMoments good = Centered(1e-6, 5e-6);
    const float inf = INFINITY, nan = NAN;
    struct Row {
      const char* what;
      TensorMoments dy, w;
      float scale;
    };
    const Row rows[] = {{"inf in dy", {kInf, kInf, -1, inf}, kWeights, 4},
                        {"-inf in dy", {-kInf, kInf, -inf, 1}, kWeights, 4},
                        {"NaN in dy", {kNan, kNan, -1, 1}, kWeights, 4},
                        {"NaN extremes", {0, 1, nan, nan}, kWeights, 4},
                        {"inf in w", good, {kInf, kInf, -1, inf}, 4},
                        {"S inf", good, kWeights, inf},
                        {"S NaN", good, kWeights, nan},
                        {"S 0", good, kWeights, 0}};
    for (const Row& row : rows) {
      CAPTURE(row.what);
      LayerScaler scaler = ApproxRangeScaler();
      scaler.rule.update_interval = 2;
      scaler.state.unbound = 123.5;
      scaler.state.unbound_limit = Limit::kCap;
      scaler.state.calls = 4;
      const LayerState before = scaler.state;
      Decide(scaler, Seen(row.dy, row.w), row.scale);
      CHECK(scaler.decision.alpha == 1);
      CHECK(scaler.decision.limit == Limit::kNonfinite);
      CHECK(std::isnan(scaler.decision.unbound));
      CHECK(std::isnan(scaler.decision.bound));
      CHECK(std::isnan(scaler.decision.pow2));
      CHECK(SameState(scaler.state, before));
      if (std::isfinite(row.scale)) CHECK(scaler.decision.scale_out == row.scale);
      CHECK(NeedsOf(scaler).moments);
      Decide(scaler, Seen(good, kWeights), 4);
      CHECK(scaler.decision.limit == Limit::kScaleBound);
      CHECK(scaler.state.calls == 5);
    }
  }

  TEST_CASE("alpha is never 0 and S_out never 0 or inf; powers of two stay so") {
    for (const bool power_of_two : {true, false}) {
      for (const double constant : {1e-300, 1e-45, 1e-30, 0.7, 3.0, 1e30, 1e300}) {
        for (const float scale :
             {0x1p-149f, 0x1p-126f, 1e-30f, 0.3f, 1.0f, 3e5f, 0x1p127f, 3.4e38f}) {
          CAPTURE(constant);
          CAPTURE(scale);
          LayerScaler scaler;
          scaler.rule.method = LayerMethod::kFixed;
          scaler.rule.fixed_scale = constant;
          scaler.rule.power_of_two = power_of_two;
          Decide(scaler, {}, scale);
          const float alpha = scaler.decision.alpha, out = scaler.decision.scale_out;
          CHECK(std::isnormal(alpha));
          CHECK(alpha > 0);
          CHECK(std::isfinite(out));
          CHECK(out >= 0x1p-126f * (1 - 0x1p-23f));
          CHECK(out == scale * alpha);
          int exponent;
          if (power_of_two) CHECK(std::frexp(alpha, &exponent) == 0.5f);
          // No clamp where none is needed.
          const double plain = power_of_two ? std::exp2(std::floor(std::log2(constant))) : constant;
          if (plain >= 0x1p-126 && plain <= 0x1p127 && plain * scale >= 0x1p-126 &&
              plain * scale <= 0x1p127) {
            CHECK(alpha == static_cast<float>(plain));
          }
        }
      }
    }
  }

  TEST_CASE("power of two: exact over all exponents and their neighbours") {
    for (int exponent = -1074; exponent <= 1023; ++exponent) {
      const double power = std::ldexp(1.0, exponent);
      CHECK(detail::PowerOfTwoBelow(power) == power);
      if (exponent > -1000) {
        CHECK(detail::PowerOfTwoBelow(std::nextafter(power, 0)) == power / 2);
        CHECK(detail::PowerOfTwoBelow(std::nextafter(power, kInf)) == power);
        CHECK(detail::PowerOfTwoBelow(power * 1.999) == power);
      }
    }
    CHECK(detail::PowerOfTwoBelow(1.23) == 1);
    CHECK(detail::PowerOfTwoBelow(0.23) == 0.125);
  }

  TEST_CASE("state: S_out is the layer's own scale") {
    struct Row {
      float own, scale_in, alpha;
    };
    const Row rows[] = {{65536, 65536, 1},       {1024, 65536, 0x1p-6f},    {3, 2, 1.5f},
                        {0x1p126f, 1, 0x1p126f}, {0x1p-126f, 1, 0x1p-126f}, {5, 3, 5 / 3.0f}};
    for (const Row& row : rows) {
      LayerScaler scaler;
      scaler.rule.method = LayerMethod::kState;
      scaler.state.state_scale = row.own;
      CHECK_FALSE(NeedsOf(scaler).moments);
      Decide(scaler, {}, row.scale_in);
      CHECK(scaler.decision.alpha == row.alpha);
      CHECK(scaler.decision.scale_out == row.own);
      CHECK(scaler.decision.unbound == static_cast<double>(row.own) / row.scale_in);
      CHECK(std::isnan(scaler.decision.bound));
      CHECK(std::isnan(scaler.decision.pow2));
      CHECK(scaler.decision.limit == Limit::kState);
    }
    LayerScaler scaler;  // beyond what fp32 holds: what the gradient then carries
    scaler.rule.method = LayerMethod::kState;
    scaler.state.state_scale = 0x1p126f;
    Decide(scaler, {}, 0x1p-60f);
    CHECK(scaler.decision.alpha == 0x1p127f);
    CHECK(scaler.decision.scale_out == 0x1p67f);
    for (const float own : {0.0f, -1.0f, INFINITY, NAN}) {
      scaler.state.state_scale = own;
      Decide(scaler, {}, 4);
      CHECK(scaler.decision.alpha == 1);
      CHECK(scaler.decision.limit == Limit::kNonfinite);
    }
  }

  TEST_CASE("names") {
    const char* limits[] = {"none",  "target", "one",   "cap",       "SB",    "AB",
                            "stale", "fixed",  "state", "nonfinite", "branch"};
    for (int i = 0; i <= static_cast<int>(Limit::kBranch); ++i) {
      CHECK(std::string(LimitName(static_cast<Limit>(i))) == limits[i]);
    }
    const char* methods[] = {"none",        "fixed",     "approx_range",
                             "lognormal",   "abs_range", "element_wise_range",
                             "exact_range", "state"};
    for (int i = 0; i <= static_cast<int>(LayerMethod::kState); ++i) {
      CHECK(std::string(MethodName(static_cast<LayerMethod>(i))) == methods[i]);
    }
    CHECK(std::string(DecisionErrorText(DecisionError::kNone)).empty());
    for (int i = 1; i <= static_cast<int>(DecisionError::kNoTarget); ++i) {
      CHECK_FALSE(std::string(DecisionErrorText(static_cast<DecisionError>(i))).empty());
    }
  }
}

}  // namespace
}  // namespace ada::scaling

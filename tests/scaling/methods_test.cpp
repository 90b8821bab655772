// The statistics methods on small tables worked out by hand from src/scaling/README.md, ours and
// with the authors' errors.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "scaling/rules/inverse_erf.h"
#include "scaling/rules/rules.h"

namespace ada::scaling {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

LayerScaler ScalerOf(LayerMethod method, bool has_weight, bool reference = false) {
  LayerScaler scaler;
  scaler.rule.method = method;
  scaler.rule.u_min = 0x1p-24;
  scaler.rule.u_max = 65504;
  scaler.rule.t = GaussianThreshold(1e-3);
  scaler.rule.phi_inverse = NormalQuantile(1e-3);
  scaler.rule.has_weight = has_weight;
  scaler.rule.fan = has_weight ? 8 : 1;
  scaler.rule.scale_upper_bound = scaler.rule.accum_upper_bound = 65504;
  scaler.rule.power_of_two = false;
  scaler.rule.reference = reference;
  scaler.rule.fp16_gradients = true;
  return scaler;
}

// Magnitudes of dy and w from .._min to .._max.
Observation Seen(double dy_min, double dy_max, double w_min, double w_max) {
  Observation seen;
  seen.dy = {0, dy_max * dy_max / 2, static_cast<float>(-dy_max), static_cast<float>(dy_max),
             static_cast<float>(dy_min)};
  seen.w = {0, w_max * w_max / 2, static_cast<float>(-w_max), static_cast<float>(w_max),
            static_cast<float>(w_min)};
  seen.product_min = dy_min * w_min;
  seen.product_max = dy_max * w_max;
  return seen;
}

struct Expected {
  double unbound;
  Limit limit;
};
void CheckDecision(LayerScaler scaler, const Observation& seen, Expected expected) {
  Decide(scaler, seen, 1);
  CHECK(scaler.decision.unbound == doctest::Approx(expected.unbound).epsilon(1e-12));
  CHECK(std::string(LimitName(scaler.decision.limit)) == LimitName(expected.limit));
  CHECK(scaler.decision.error == DecisionError::kNone);
}

TEST_SUITE("cpu") {
  TEST_CASE("what each method reads") {
    struct Row {
      LayerMethod method;
      bool has_weight, moments, logs, products;
    };
    const Row rows[] = {{LayerMethod::kPass, true, false, false, false},
                        {LayerMethod::kFixed, true, false, false, false},
                        {LayerMethod::kState, true, false, false, false},
                        {LayerMethod::kExactRange, true, false, false, false},
                        {LayerMethod::kApproxRange, true, true, false, false},
                        {LayerMethod::kApproxRange, false, true, false, false},
                        {LayerMethod::kLognormal, true, true, false, false},
                        {LayerMethod::kLognormal, false, true, true, false},
                        {LayerMethod::kAbsRange, true, true, false, false},
                        {LayerMethod::kElementWiseRange, true, true, false, true},
                        {LayerMethod::kElementWiseRange, false, true, false, false}};
    for (const Row& row : rows) {
      CAPTURE(MethodName(row.method));
      LayerScaler scaler = ScalerOf(row.method, row.has_weight);
      const Needs needs = NeedsOf(scaler);
      CHECK(needs.moments == row.moments);
      CHECK(needs.logs == row.logs);
      CHECK(needs.products == row.products);
      CHECK(MayNeedMoments(scaler.rule) == row.moments);
      scaler.rule.update_interval = 3;
      scaler.state.calls = 4;
      CHECK_FALSE(NeedsOf(scaler).moments);
      CHECK_FALSE(NeedsOf(scaler).logs);
      CHECK_FALSE(NeedsOf(scaler).products);
      CHECK(MayNeedMoments(scaler.rule) == row.moments);
    }
  }

  TEST_CASE("approx_range on a cast: the deviation alone, mean left out") {
    const LayerScaler scaler = ScalerOf(LayerMethod::kApproxRange, false);
    Observation seen;
    seen.dy = {3e-6, 9e-12 + 1e-14, -1e-6f, 5e-6f, 1e-9f};
    CheckDecision(scaler, seen,
                  {0x1p-24 / (scaler.rule.t * std::sqrt((9e-12 + 1e-14) - 9e-12)), Limit::kTarget});
    seen.dy = {1e-6, 1.0000000000001e-12, 1e-6f, 1e-6f,
               1e-6f};  // constant: rounding is no deviation
    CheckDecision(scaler, seen, {1, Limit::kOne});
    seen.dy = {0, 1e10, -1e6f, 1e5f, 1};
    CheckDecision(scaler, seen, {65504 / 1e6, Limit::kCap});
    seen.dy = {};
    CheckDecision(scaler, seen, {1, Limit::kOne});
  }

  TEST_CASE("lognormal on a cast") {
    LayerScaler scaler = ScalerOf(LayerMethod::kLognormal, false);
    Observation seen = Seen(1e-9, 1e-3, 1, 1);
    seen.log_mean = -16;
    seen.log_std = 2;
    const double want = std::exp(std::log(0x1p-24) + 16 + 2 * 3.090232306167813);
    CheckDecision(scaler, seen, {want, Limit::kTarget});
    seen.log_mean = -5;
    CheckDecision(scaler, seen, {1, Limit::kOne});
    seen = Seen(1, 1e6, 1, 1);
    seen.log_mean = 5;
    seen.log_std = 1;
    CheckDecision(scaler, seen, {65504 / 1e6, Limit::kCap});
    seen = Seen(1e-8, 1e-8, 1, 1);  // one magnitude alone, whatever rounding made of its deviation
    seen.log_mean = std::log(1e-8);
    seen.log_std = 1e-15;
    CheckDecision(scaler, seen, {1, Limit::kOne});
    CheckDecision(scaler, Observation{}, {1, Limit::kOne});
    scaler.rule.scale_upper_bound = 16;  // bounds apply
    seen = Seen(1e-9, 1e-3, 1, 1);
    seen.log_mean = -16;
    seen.log_std = 2;
    Decide(scaler, seen, 1);
    CHECK(scaler.decision.bound == 16);
    CHECK(scaler.decision.limit == Limit::kScaleBound);
  }

  TEST_CASE("lognormal with a weight is approx_range") {
    Observation seen = Seen(1e-9, 1e-6, 1e-3, 0.5);
    seen.log_mean = seen.log_std = kNan;  // not read
    LayerScaler log = ScalerOf(LayerMethod::kLognormal, true),
                approx = ScalerOf(LayerMethod::kApproxRange, true);
    Decide(log, seen, 2);
    Decide(approx, seen, 2);
    CHECK(log.decision.unbound == approx.decision.unbound);
    CHECK(log.decision.bound == approx.decision.bound);
    CHECK(log.decision.alpha == approx.decision.alpha);
    CHECK(log.decision.limit == approx.decision.limit);
  }

  TEST_CASE("abs_range and element_wise_range: values, no bounds") {
    LayerScaler abs = ScalerOf(LayerMethod::kAbsRange, true),
                products = ScalerOf(LayerMethod::kElementWiseRange, true);
    abs.rule.scale_upper_bound = products.rule.scale_upper_bound = 1;
    abs.rule.accum_upper_bound = products.rule.accum_upper_bound = 1;
    const Observation small = Seen(0x1p-20, 0x1p-10, 0x1p-10, 1), large = Seen(1, 8192, 1, 64);
    CheckDecision(abs, small, {0x1p-24 / 8 / 0x1p-30, Limit::kTarget});
    CheckDecision(products, small, {0x1p-24 / 0x1p-30, Limit::kTarget});
    CheckDecision(abs, large, {65504.0 / 8 / 0x1p19, Limit::kCap});
    CheckDecision(products, large, {65504.0 / 0x1p19 / 8, Limit::kCap});
    CheckDecision(abs, Seen(1, 2, 1, 2), {1, Limit::kOne});
    CheckDecision(products, Seen(1, 2, 1, 2), {1, Limit::kOne});
    // A smallest product below 1e-15 counts as 1e-15.
    CheckDecision(abs, Seen(1e-12, 1e-9, 1e-8, 1e-6), {0x1p-24 / 8 / 1e-15, Limit::kTarget});
    Decide(abs, small, 1024);
    CHECK(std::isnan(abs.decision.bound));
  }

  TEST_CASE("abs_range and element_wise_range: casts and nothing to multiply") {
    const Observation small = Seen(0x1p-28, 0x1p-10, 0x1p-30, 0x1p-20), none = Seen(0, 0, 1, 1);
    for (const LayerMethod method : {LayerMethod::kAbsRange, LayerMethod::kElementWiseRange}) {
      CAPTURE(MethodName(method));
      CheckDecision(ScalerOf(method, false), small, {16, Limit::kTarget});  // w = 1, fan = 1
      CheckDecision(ScalerOf(method, true), none, {1, Limit::kOne});
      CheckDecision(ScalerOf(method, false), none, {1, Limit::kOne});
      CheckDecision(ScalerOf(method, true), Seen(1e-3, 1, 0, 0), {1, Limit::kOne});
    }
  }

  TEST_CASE("not finite: ours passes the gradient on, every method") {
    for (const LayerMethod method : {LayerMethod::kApproxRange, LayerMethod::kLognormal,
                                     LayerMethod::kAbsRange, LayerMethod::kElementWiseRange}) {
      CAPTURE(MethodName(method));
      for (const double bad : {kInf, kNan}) {
        for (const bool in_weight : {false, true}) {
          LayerScaler scaler = ScalerOf(method, true);
          Observation seen = Seen(1e-5, 1, 1e-5, 1);
          (in_weight ? seen.w : seen.dy).mean_square = bad;
          Decide(scaler, seen, 8);
          CHECK(scaler.decision.limit == Limit::kNonfinite);
          CHECK(scaler.decision.alpha == 1);
          CHECK(scaler.decision.scale_out == 8);
          CHECK(scaler.state.calls == 0);
        }
      }
    }
  }

  TEST_CASE("reference: what ends the run, and what it leaves behind") {
    struct Row {
      const char* what;
      LayerMethod method;
      bool has_weight;
      double dy_square, w_square, product;
      DecisionError error;
      std::int64_t calls;  // 1: counted (and cached) all the same
    };
    using E = DecisionError;
    using M = LayerMethod;
    const Row rows[] = {
        {"approx, NaN", M::kApproxRange, true, kNan, 1, 1, E::kNonfinite, 1},
        {"approx, inf", M::kApproxRange, true, kInf, 1, 1, E::kNonfinite, 1},
        {"approx, NaN in w", M::kApproxRange, true, 1, kNan, 1, E::kNonfinite, 1},
        {"lognormal cast, inf", M::kLognormal, false, kInf, 1, 1, E::kNonfinite, 1},
        {"abs, NaN", M::kAbsRange, true, kNan, 1, 1, E::kNonfinite, 0},
        {"abs, NaN in w, no dy", M::kAbsRange, true, 0, kNan, 1, E::kNone, 1},
        {"abs, inf: alpha 0, silently", M::kAbsRange, true, kInf, 1, 1, E::kNone, 1},
        {"products, NaN in w", M::kElementWiseRange, true, 0, kNan, 0, E::kNonfinite, 0},
        {"products, none", M::kElementWiseRange, true, 0, 1, 0, E::kNoProduct, 0},
        {"abs on a cast", M::kAbsRange, false, 1, 1, 1, E::kNeedsWeight, 0},
        {"products on a cast", M::kElementWiseRange, false, 1, 1, 1, E::kNeedsWeight, 0},
    };
    for (const Row& row : rows) {
      CAPTURE(row.what);
      LayerScaler scaler = ScalerOf(row.method, row.has_weight, true);
      Observation seen = Seen(0.5, 1, 0.5, 1);
      seen.dy.mean_square = row.dy_square;
      seen.w.mean_square = row.w_square;
      seen.product_min = seen.product_max = row.product;
      Decide(scaler, seen, 2);
      CHECK(scaler.decision.error == row.error);
      CHECK(scaler.state.calls == row.calls);
      if (row.error == E::kNone) continue;
      CHECK(scaler.decision.limit == Limit::kNonfinite);
      CHECK(std::isnan(scaler.decision.alpha));
      CHECK(std::isnan(scaler.decision.scale_out));
      CHECK(std::isnan(scaler.state.unbound) == (row.calls == 1));
    }
    LayerScaler scaler = ScalerOf(M::kAbsRange, true, true);
    Observation seen = Seen(0.5, 1, 0.5, 1);
    seen.dy.mean_square = kInf;
    Decide(scaler, seen, 2);
    CHECK(scaler.decision.alpha == 0);
    CHECK(scaler.decision.scale_out == 0);
  }

  TEST_CASE("reference: types of S_out") {
    struct Row {
      bool power_of_two, fp16;
      float scale_in, scale_out;  // NaN: the run ends
    };
    const Row rows[] = {{true, true, 16384, 32768},  {true, true, 32768, NAN},
                        {true, false, 32768, 65536}, {false, true, 32768, 65536},
                        {true, false, 2049, 4096},  // S_in is rounded to fp16 first
                        {true, false, 65520, NAN}};
    for (const Row& row : rows) {
      LayerScaler scaler = ScalerOf(LayerMethod::kFixed, true, true);
      scaler.rule.fixed_scale = 2;
      scaler.rule.power_of_two = row.power_of_two;
      scaler.rule.fp16_gradients = row.fp16;
      Decide(scaler, {}, row.scale_in);
      CHECK(scaler.decision.alpha == 2);
      CHECK(scaler.decision.limit == Limit::kFixed);
      if (std::isnan(row.scale_out)) {
        CHECK(std::isnan(scaler.decision.scale_out));
        CHECK(scaler.decision.error == DecisionError::kAlphaNotFinite);
      } else {
        CHECK(scaler.decision.scale_out == row.scale_out);
      }
    }
  }
}

}  // namespace
}  // namespace ada::scaling

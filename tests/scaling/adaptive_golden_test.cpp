// Decide, the power of two and BranchTarget against recorded calls of the reference implementation.
// Where ours deliberately differs (DESIGN and POLICIES 1: the reference holds bounds, powers and
// alpha in fp16 and rounds log2), the difference is a rule below, never a case number.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "golden_table.h"
#include "scaling/inverse_erf.h"
#include "scaling/rules.h"

namespace ada::scaling {
namespace {

using testing::GoldenRow;
using testing::Number;

// Representable in fp16 (inf counts: it stands for "no bound").
bool HalfHolds(double x) {
  if (x == 0 || std::isinf(x)) return true;
  int exponent;
  const double digits = std::ldexp(std::frexp(std::fabs(x), &exponent), 11);
  const double units = std::ldexp(std::fabs(x), 24);
  return std::fabs(x) <= 65504 && digits == std::floor(digits) && units == std::floor(units);
}

// The reference rounds log2 to fp32 (24 digits; under `fixed` to fp16, 11) before it takes the
// floor: just below a power of two it arrives at that power.
bool LogRoundsUp(double b, int digits) {
  int exponent;
  const double log = std::log2(b), fraction = std::frexp(log, &exponent);
  const double rounded =
      std::ldexp(std::nearbyint(std::ldexp(fraction, digits)), exponent - digits);
  return std::floor(rounded) != std::floor(log);
}

LayerRule RuleOf(const GoldenRow& row) {
  LayerRule rule;
  rule.method = row.at("method") == "fixed" ? LayerMethod::kFixed : LayerMethod::kApproxRange;
  rule.fixed_scale = Number(row, "fixed");
  rule.t = GaussianThreshold(Number(row, "n_uf"));
  rule.u_min = static_cast<float>(Number(row, "u_min"));  // the reference holds it in fp32
  rule.u_max = Number(row, "u_max");
  rule.scale_upper_bound = Number(row, "SB");
  rule.accum_upper_bound = Number(row, "AB");
  rule.fan = row.at("fan").empty() ? 1 : Number(row, "fan");
  rule.power_of_two = row.at("power_of_two") == "1";
  rule.update_interval = static_cast<int>(Number(row, "update_interval"));
  return rule;
}

TensorMoments MomentsOf(const GoldenRow& row, const std::string& tensor) {
  return {Number(row, tensor + "_mean"), Number(row, tensor + "_mean_square"),
          static_cast<float>(Number(row, tensor + "_min")),
          static_cast<float>(Number(row, tensor + "_max"))};
}

struct Compared {
  int unbound = 0, bound = 0, pow2 = 0, alpha = 0, scale_out = 0, limit = 0, nonfinite = 0;
};

void CompareStages(const GoldenRow& row, const LayerScaler& scaler, Compared& n) {
  const ScaleDecision& ours = scaler.decision;
  const bool fixed = scaler.rule.method == LayerMethod::kFixed;
  // Excluded: a constant that fp16 does not hold.
  if (!fixed || HalfHolds(scaler.rule.fixed_scale)) {
    CHECK(std::fabs(ours.unbound / Number(row, "unbound") - 1) <= 3e-6);
    ++n.unbound;
  } else {
    return;
  }
  // Excluded: bounds that fp16 does not hold.
  if (!HalfHolds(scaler.rule.scale_upper_bound) || !HalfHolds(scaler.rule.accum_upper_bound))
    return;
  const std::string word = row.at("derived_limit") == "none" ? "target" : row.at("derived_limit");
  // Excluded: SB == AB / S_in, where both words are right (ours: AB, the first to be applied).
  const bool tie = scaler.rule.scale_upper_bound * ours.scale_in == scaler.rule.accum_upper_bound;
  if (!word.empty() && !(tie && word == "SB")) {
    CHECK(std::string(LimitName(ours.limit)) == word);
    ++n.limit;
  }
  if (!row.at("bound").empty()) {
    CHECK(std::fabs(ours.bound / Number(row, "bound") - 1) <= 3e-6);
    ++n.bound;
  }
  // Excluded: log2 rounds up; beyond fp16's range above; below it, where alpha would be 0.
  if (!row.at("pow2").empty()) {
    if (fixed ? LogRoundsUp(ours.unbound, 11) : LogRoundsUp(ours.bound, 24)) return;
    if (ours.pow2 >= 65536) return;
    if (ours.pow2 < 0x1p-24) {
      CHECK(ours.alpha > 0);
      return;
    }
    CHECK(ours.pow2 == Number(row, "pow2"));
    CHECK(ours.alpha == Number(row, "alpha"));
    ++n.pow2;
  } else {  // fp16 keeps 11 bits of alpha
    CHECK(std::fabs(ours.alpha / Number(row, "alpha") - 1) <= 0x1p-11);
  }
  ++n.alpha;
  // Excluded: S_out that the reference refuses (beyond fp16), and alpha that it rounded.
  if (row.at("error") == "0" && HalfHolds(ours.alpha)) {
    CHECK(ours.scale_out == Number(row, "S_out"));
    ++n.scale_out;
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("recorded calls of approx_range with a weight and of fixed") {
    LayerScaler scaler;
    Compared n;
    bool parted = false;  // ours takes a non-finite update again at once, the reference caches NaN
    for (const GoldenRow& row : testing::ReadGolden("adaptive/approx_weight_moments.csv").rows) {
      CAPTURE(row.at("case"));
      CAPTURE(row.at("call"));
      if (row.at("call") == "0") {
        scaler = LayerScaler{RuleOf(row), {}, {}};
        parted = false;
      }
      if (parted) continue;
      const TensorMoments dy = MomentsOf(row, "dy"), w = MomentsOf(row, "w");
      const bool update = row.at("updating") == "1";
      if (scaler.rule.method == LayerMethod::kApproxRange) CHECK(NeedsMoments(scaler) == update);
      Decide(scaler, dy, w, static_cast<float>(Number(row, "S_prev")));
      if (update && !std::isfinite(dy.mean_square)) {
        CHECK(scaler.decision.limit == Limit::kNonfinite);
        CHECK(scaler.decision.alpha == 1);
        parted = true;
        ++n.nonfinite;
        continue;
      }
      CompareStages(row, scaler, n);
    }
    // How many of the 97 recorded calls each stage really compared.
    CHECK(n.unbound == 87);
    CHECK(n.limit == 68);
    CHECK(n.bound == 78);
    CHECK(n.pow2 == 62);
    CHECK(n.alpha == 82);
    CHECK(n.scale_out == 67);
    CHECK(n.nonfinite == 4);
  }

  TEST_CASE("recorded powers of two") {
    int compared = 0;
    for (const GoldenRow& row : testing::ReadGolden("adaptive/pow2.csv").rows) {
      CAPTURE(row.at("bits"));
      const auto bits = static_cast<std::uint32_t>(std::stoul(row.at("bits"), nullptr, 16));
      float b;
      std::memcpy(&b, &bits, sizeof b);
      if (!(b > 0) || !std::isfinite(b)) continue;
      const double ours = detail::PowerOfTwoBelow(b);
      if (LogRoundsUp(b, 24)) {
        CHECK(2 * ours == std::exp2(Number(row, "floor_log2_fp32")));
        continue;
      }
      CHECK(ours == std::exp2(Number(row, "floor_log2_fp32")));
      if (ours <= 32768 && ours >= 0x1p-24) CHECK(ours == Number(row, "pow2"));
      ++compared;
    }
    CHECK(compared >= 80);
  }

  TEST_CASE("recorded branch points") {
    int compared = 0;
    for (const GoldenRow& row : testing::ReadGolden("adaptive/rescaling_moments.csv").rows) {
      CAPTURE(row.at("case"));
      std::vector<float> scales;
      for (const std::string& word : testing::Words(row.at("scales"))) {
        scales.push_back(std::stof(word));
      }
      const double largest = Number(row, "largest");
      const int count = static_cast<int>(scales.size());
      const float ours = BranchTarget(scales.data(), count, largest, 65504);
      if (std::isfinite(largest) && !row.at("target").empty()) {
        CHECK(ours == static_cast<float>(Number(row, "target")));
        ++compared;
      } else if (std::isfinite(largest)) {  // an error there: the largest power of two that fits
        CHECK(largest * ours < 65504);
        CHECK(largest * ours * 2 >= 65504);
        CHECK(detail::PowerOfTwoBelow(ours) == ours);
      }
    }
    CHECK(compared == 24);
  }
}

}  // namespace
}  // namespace ada::scaling

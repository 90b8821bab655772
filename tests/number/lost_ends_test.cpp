// What a histogram says that a format loses, beside values that are rounded by each mode.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "number/random.h"
#include "number/stats.h"
#include "number/table_grid.h"
#include "number/tables/table_format.h"

namespace ada {
namespace {

struct Met {
  double underflow = 0, overflow = 0;
};

// Values of both signs, spread over the bins of the histogram as it takes them to be.
Met Rounded(const std::vector<float>& values, const NumberFormat& format, double scale) {
  Met met;
  for (const float v : values) {
    const double x = static_cast<double>(v) * scale;
    const bool table = format.table != 0;
    const float rounded = RoundTo(format, x);
    met.underflow += rounded == 0;
    met.overflow += table ? RoundByTable(TableGridAt(format.table), x, /*saturate=*/false).left
                          : std::fabs(x) >= static_cast<double>(OverflowThreshold(format));
  }
  return met;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("lost ends: what rounding by each mode loses of evenly spread values") {
    RandomStream random(7, StreamId("values"));
    std::vector<float> values;
    ExponentBins bins;
    for (int e = -20; e < 20; ++e)
      for (int i = 0; i < 2000; ++i) {
        const double place = 1 + (i + 0.5) / 2000;
        const bool negative = random.Uniform() < 0.5f;
        values.push_back(static_cast<float>(std::ldexp(negative ? -place : place, e)));
        ++bins[e];
      }
    for (const NumberFormat& plain :
         {kFp8E4M3, kFp8E5M2, kFp6E3M2, *TableNumberFormatNamed("hifloat8"),
          *TableNumberFormatNamed("binary8p4se")})
      for (int mode = 0; mode <= static_cast<int>(TableRounding::kTowardOdd); ++mode)
        for (const double scale : {1.0, 0.37, 900.0}) {
          const NumberFormat format = WithModes(plain, {static_cast<TableRounding>(mode)});
          CAPTURE(FormatName(format));
          CAPTURE(mode);
          CAPTURE(scale);
          const Met met = Rounded(values, format, scale);
          const WouldLose lose = WouldLoseOf(bins, format, scale);
          // Draws of signs differ by some roots of 2000; a step of 1/2000 at each threshold.
          CHECK(std::fabs(lose.underflow - met.underflow) <= 400);
          CHECK(std::fabs(lose.overflow - met.overflow) <= 250);
          CHECK(lose.underflow - met.underflow <= static_cast<double>(lose.underflow_unsure) + 2);
          CHECK(lose.overflow - met.overflow <= static_cast<double>(lose.overflow_unsure) + 2);
        }
  }

  TEST_CASE("lost ends: the modes of a run's format go to the one that is asked about") {
    const NumberFormat down = WithModes(kFp16, {TableRounding::kTowardZero});
    CHECK(RoundedLike(kFp8E5M2, kFp16) == kFp8E5M2);
    CHECK(RoundedLike(kFp8E5M2, down) == WithModes(kFp8E5M2, {TableRounding::kTowardZero}));
    CHECK(RoundedLike(kFp32, down) == kFp32);
    CHECK(LostEndsOf(kFp16).kept_from == 0x1p-25);
    CHECK(LostEndsOf(down).kept_from == 0x1p-24);
    CHECK(LostEndsOf(WithModes(kFp16, {TableRounding::kTowardOdd})).kept_from == 0);
    const LostEnds up = LostEndsOf(WithModes(kFp16, {TableRounding::kTowardPositive}));
    CHECK(up.zero_below == 0);
    CHECK(up.kept_from == 0x1p-24);
    CHECK(up.leave_from == 65536);
  }
}

}  // namespace ada

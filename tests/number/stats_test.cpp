// What another format or scale would lose, predicted from a histogram, against the values
// themselves: rounded one by one, in double.
#include "number/stats.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "error.h"
#include "number/independent.h"
#include "number/random.h"

namespace ada {
namespace {

ExponentBins BinsOf(const std::vector<float>& values) {
  ExponentBins bins;
  for (const float v : values) {
    if (std::isnan(v))
      ++bins.nan;
    else if (std::isinf(v))
      ++bins.inf;
    else if (v == 0)
      ++bins.zeros;
    else
      ++bins[std::ilogb(v)];
  }
  return bins;
}

struct Lost {
  std::int64_t nonzero = 0, underflow = 0, overflow = 0;
};
// Nearest even on the format's grid, as if it had no end.
Lost CountLost(const std::vector<float>& values, const NumberFormat& format, double scale) {
  Lost lost;
  for (const float v : values) {
    if (v == 0 || !std::isfinite(v)) continue;
    const double x = std::fabs(static_cast<double>(v)) * scale;  // exact
    const double spacing = test::SpacingAt(format, x), r = std::nearbyint(x / spacing) * spacing;
    ++lost.nonzero;
    lost.underflow += format.is_signed && r == 0;
    lost.overflow += r > test::LargestIndependently(format);
  }
  return lost;
}

// Exponents around both thresholds and between; places near their bins' ends among them.
std::vector<float> ValuesFor(const NumberFormat& format, double scale, std::uint64_t seed) {
  RandomStream random(seed, StreamId("values"));
  const double low = std::log2(format.smallest_subnormal() / scale) - 4,
               high = std::log2(format.largest() / scale) + 3;
  std::vector<float> values = {0.0f, -0.0f, INFINITY, -INFINITY, NAN};
  for (int i = 0; i < 4000; ++i) {
    const double u = static_cast<double>(random.Uniform());
    const double at = i % 3 == 0 ? low + 6 * u : i % 3 == 1 ? high - 6 * u : low + (high - low) * u;
    float v = static_cast<float>(std::exp2(at));
    if (i % 7 == 0) v = static_cast<float>(std::exp2(std::floor(at)));
    if (i % 11 == 0) v = std::nextafter(static_cast<float>(std::exp2(std::floor(at))), 0.0f);
    if (std::isfinite(v)) values.push_back(random.NextU32() % 2 != 0 ? v : -v);
  }
  return values;
}

std::vector<NumberFormat> Formats() {
  std::vector<NumberFormat> formats;
  for (const NamedFormat& named : NamedFormats()) {
    formats.push_back(named.format);
    formats.push_back(named.format);
    formats.back().saturate = true;
  }
  formats.push_back({5, 23, 15});
  formats.push_back({4, 0, 7, false});
  formats.push_back({1, 3, 0});
  return formats;
}
// 65520 / 65536: fp16's threshold is a power of two then.
const double kScales[] = {1, 2,    1024,       0x1p40,     0x1p-20, 0x1p100, 0x1p-100,
                          3, 0.7f, 1.9999999f, 1.0000001f, 12345,   1e-6f,   65520 / 65536.0};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("figures as if values had carried another scale; a magnitude that overflowed stays") {
    TensorStats stats;
    stats.numel = 4, stats.underflow = 1;
    stats.min_abs = 0.5f, stats.max_abs = 60000;
    stats.mean = -2, stats.std = 3, stats.l1 = 8, stats.l2 = 5;
    const TensorStats half = Rescaled(stats, 0.5, false);
    CHECK(half.min_abs == 0.25f);
    CHECK(half.max_abs == 30000);
    CHECK(std::vector<double>{half.mean, half.std, half.l1, half.l2} ==
          std::vector<double>{-1, 1.5, 4, 2.5});
    CHECK(half.numel == 4);
    CHECK(half.underflow == 1);
    stats.max_abs = 70000;
    CHECK(Rescaled(stats, 0.5, true).max_abs == 70000);
    CHECK(Rescaled(stats, INFINITY, false).l1 == 8);
  }

  TEST_CASE("bins: sums, and what is a value") {
    ExponentBins a = BinsOf({0, -0.0f, 1, 1.5f, -1.9f, 2, 0x1p-149f, INFINITY, NAN, -NAN});
    CHECK(a[0] == 3);
    CHECK(a[1] == 1);
    CHECK(a[-149] == 1);
    CHECK(a.nonzero() == 5);
    CHECK(a.zeros == 2);
    CHECK(a.inf == 1);
    CHECK(a.nan == 2);
    CHECK(a.numel() == 10);
    const ExponentBins b = BinsOf({1, 0, NAN, -INFINITY, 0x1p127f});
    a.Add(b);
    CHECK(a[0] == 4);
    CHECK(a[127] == 1);
    CHECK(a.zeros == 3);
    CHECK(a.inf == 2);
    CHECK(a.nan == 3);
    CHECK(a.numel() == 15);
    CHECK(a == a);
    CHECK_FALSE(a == b);
    a[ExponentBins::kLowest] = 1, a[ExponentBins::kHighest] = 1;
    CHECK(a.counts.front() == 1);
    CHECK(a.counts.back() == 1);
  }

  TEST_CASE("bins: fp16 by hand") {
    ExponentBins bins;
    bins[-40] = 1, bins[-26] = 7, bins[-25] = 10, bins[0] = 100, bins[15] = 2048, bins[16] = 3;
    bins.zeros = 1000, bins.inf = 5, bins.nan = 6;
    const WouldLose at_1 = WouldLoseOf(bins, kFp16, 1);
    CHECK(at_1.nonzero == 2169);
    CHECK(at_1.underflow == 8);  // of the bin of 2^-25 only 2^-25 itself is lost
    CHECK(at_1.underflow_unsure == 10);
    CHECK(at_1.overflow == 3 + 1);  // 65520 leaves 16 / 32768 of its bin
    CHECK(at_1.overflow_unsure == 2048);
    CHECK(at_1.underflow_pct() == doctest::Approx(100 * 8.0 / 2169).epsilon(1e-14));
    const WouldLose at_2 = WouldLoseOf(bins, kFp16, 2);
    CHECK(at_2.underflow == 1);
    CHECK(at_2.underflow_unsure == 7);
    CHECK(at_2.overflow == 2051);
    CHECK(at_2.overflow_unsure == 0);
    const WouldLose at_3 = WouldLoseOf(bins, kFp16, 0x1.8p0);  // 2^-25 / 1.5 = 4/3 * 2^-26
    CHECK(at_3.underflow == doctest::Approx(1 + 7 / 3.0).epsilon(1e-14));
    CHECK(at_3.underflow_unsure == 7);
    CHECK(at_3.overflow == doctest::Approx(3 + 2048 * (2 - 65520 / 1.5 / 32768)).epsilon(1e-14));
    CHECK(std::isnan(WouldLoseOf(ExponentBins(), kFp16, 1).underflow_pct()));
    CHECK_THROWS_AS(WouldLoseOf(bins, kFp16, 0), InternalError);
    CHECK_THROWS_AS(WouldLoseOf(bins, kFp16, INFINITY), InternalError);
    CHECK_THROWS_AS(WouldLoseOf(bins, kFp16, NAN), InternalError);
  }

  TEST_CASE("bins: unsigned formats have no zero, fp32 has fp32's range") {
    const NumberFormat e8m0{8, 0, 127, false, true, true, false, false};
    REQUIRE(RefuseFormat(e8m0).empty());
    ExponentBins bins;
    bins[-140] = 3, bins[5] = 4;
    CHECK(WouldLoseOf(bins, e8m0, 1).underflow == 0);
    CHECK(WouldLoseOf(bins, e8m0, 0x1p-20).underflow_unsure == 0);
    CHECK(WouldLoseOf(bins, kFp32, 1).underflow == 0);
    CHECK(WouldLoseOf(bins, kFp32, 0x1p-11).underflow == 3);  // below 2^-150
    CHECK(WouldLoseOf(bins, kFp32, 0x1p-10).underflow == 0);
    CHECK(WouldLoseOf(bins, kFp32, 0x1p-10).underflow_unsure == 3);
    CHECK(WouldLoseOf(bins, kFp32, 0x1p123).overflow == 4);
    CHECK(WouldLoseOf(bins, kFp32, 0x1p121).overflow == 0);
  }

  TEST_CASE("bins: every format and scale, against the values") {
    std::uint64_t seed = 0;
    for (const NumberFormat& format : Formats())
      for (const double scale : kScales) {
        CAPTURE(FormatName(format));
        CAPTURE(scale);
        const std::vector<float> values = ValuesFor(format, scale, ++seed);
        const ExponentBins bins = BinsOf(values);
        const Lost truth = CountLost(values, format, scale);
        const WouldLose lose = WouldLoseOf(bins, format, scale);
        CHECK(lose.nonzero == truth.nonzero);
        CHECK(std::fabs(lose.underflow - static_cast<double>(truth.underflow)) <=
              static_cast<double>(lose.underflow_unsure));
        CHECK(std::fabs(lose.overflow - static_cast<double>(truth.overflow)) <=
              static_cast<double>(lose.overflow_unsure));
        // Without the bins that are unsure nothing is.
        std::vector<float> sure;
        for (const float v : values) {
          ExponentBins one = BinsOf({v});
          const WouldLose lost = WouldLoseOf(one, format, scale);
          if (lost.underflow_unsure == 0 && lost.overflow_unsure == 0) sure.push_back(v);
        }
        const Lost sure_truth = CountLost(sure, format, scale);
        const WouldLose sure_lose = WouldLoseOf(BinsOf(sure), format, scale);
        CHECK(sure_lose.underflow == static_cast<double>(sure_truth.underflow));
        CHECK(sure_lose.overflow == static_cast<double>(sure_truth.overflow));
        CHECK(sure.size() > values.size() / 4);
      }
  }

  // What a run counts: RoundTo's result, and the threshold of its counter of overflows.
  TEST_CASE("bins: the same as RoundTo and OverflowThreshold count") {
    for (const NamedFormat& named : NamedFormats())
      for (const float scale : {1.0f, 64.0f, 0x1p-12f, 3.0f}) {
        CAPTURE(named.name);
        CAPTURE(scale);
        if (named.format == kFp32) continue;  // rounds nothing
        const std::vector<float> values = ValuesFor(named.format, scale, 77);
        const WouldLose lose = WouldLoseOf(BinsOf(values), named.format, scale);
        double underflow = 0, overflow = 0;
        for (const float v : values) {
          if (v == 0 || !std::isfinite(v)) continue;
          underflow += RoundTo(named.format, v * scale) == 0;
          overflow += std::fabs(v * scale) >= OverflowThreshold(named.format);
        }
        CHECK(std::fabs(lose.underflow - underflow) <= static_cast<double>(lose.underflow_unsure));
        CHECK(std::fabs(lose.overflow - overflow) <= static_cast<double>(lose.overflow_unsure));
      }
  }

  TEST_CASE("bins: values that are spread evenly in the threshold's bin are predicted") {
    for (const double scale : {3.0, 0.7, 1000.0, 1.5}) {
      CAPTURE(scale);
      std::vector<float> values;
      for (const double threshold : {0x1p-25 / scale, 65520 / scale}) {
        const double first = std::exp2(std::floor(std::log2(threshold)));
        for (int i = 0; i < 4096; ++i)
          values.push_back(static_cast<float>(first * (1 + (i + 0.5) / 4096)));
      }
      const Lost truth = CountLost(values, kFp16, scale);
      const WouldLose lose = WouldLoseOf(BinsOf(values), kFp16, scale);
      CHECK(std::fabs(lose.underflow - static_cast<double>(truth.underflow)) <= 1);
      CHECK(std::fabs(lose.overflow - static_cast<double>(truth.overflow)) <= 1);
      CHECK(lose.underflow_unsure == 4096);
      CHECK(truth.underflow > 0);
      CHECK(truth.overflow > 0);
    }
  }
}

}  // namespace ada

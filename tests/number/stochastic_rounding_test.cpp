// Stochastic rounding: neighbors, exact values, and probabilities counted over all random words
// that differ where it matters.
#include <doctest/doctest.h>

#include "number/independent.h"
#include "number/random.h"

namespace ada {
namespace {

using test::DecodeIndependently;
using test::LargestIndependently;
using test::PositiveCodes;
using test::Same;

constexpr std::uint32_t kAll = 0xFFFFFFFFu;

std::vector<NumberFormat> Formats() {
  std::vector<NumberFormat> formats = {{6, 9, 60},         {1, 3, 0},
                                       {1, 2, -3, false},  {4, 0, 7, false},
                                       {8, 5, 130, false}, {5, 10, 15, true, true, true, true}};
  for (const NamedFormat& named : NamedFormats())
    if (named.format != kFp32) formats.push_back(named.format);
  return formats;
}

// body(low, high) for neighboring values of the format, up to some thousands of pairs.
template <class Body>
void ForNeighbors(const NumberFormat& format, Body&& body) {
  const unsigned codes = PositiveCodes(format), step = codes > 2000 ? 37 : 1;
  for (unsigned code = 0; code + 1 < codes; code += step)
    body(DecodeIndependently(format, code), DecodeIndependently(format, code + 1));
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("between neighbours the upper one comes as often as it is near") {
    for (const NumberFormat& format : Formats()) {
      INFO(FormatName(format));
      std::int64_t wrong = 0, pairs = 0;
      ForNeighbors(format, [&](double low, double high) {
        ++pairs;
        for (unsigned part = 0; part < 64; part += 5) {
          // Exact in fp32 but where fp32 itself ends.
          const double between = low + (high - low) * part / 64;
          const auto x = static_cast<float>(between);
          if (static_cast<double>(x) != between || x == 0) continue;
          unsigned up = 0;
          for (std::uint32_t word = 0; word < 64; ++word) {
            // The bits below do not matter.
            const float r = RoundStochastically(format, x, word << 26);
            wrong += !Same(r, RoundStochastically(format, x, word << 26 | 0x3FFFFFFu));
            wrong += static_cast<double>(r) != low && static_cast<double>(r) != high;
            up += static_cast<double>(r) == high ? 1 : 0;
            if (!format.is_signed) continue;
            const float mirrored = RoundStochastically(format, -x, word << 26);
            wrong += r == 0 ? mirrored != 0 : !Same(mirrored, -r);
          }
          wrong += up != part;
        }
      });
      CHECK(pairs > 2);
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("values of the format stay, whatever the word") {
    for (const NumberFormat& format : Formats()) {
      INFO(FormatName(format));
      std::int64_t wrong = 0;
      ForNeighbors(format, [&](double value, double) {
        const auto x = static_cast<float>(value);
        for (const std::uint32_t word : {0u, 1u, 0x80000000u, kAll})
          wrong += !Same(RoundStochastically(format, x, word), RoundTo(format, x));
      });
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("the probability has 32 bits; smaller ones are zero") {
    const float least = 0x1p-24f;  // fp16's smallest
    CHECK(RoundStochastically(kFp16, least * 0x1p-32f, 0) == least);
    CHECK(RoundStochastically(kFp16, least * 0x1p-32f, 1) == 0);
    CHECK(RoundStochastically(kFp16, least * 0x1p-33f, 0) == 0);
    CHECK(RoundStochastically(kFp16, 0x1p-149f, 0) == 0);
    CHECK(RoundStochastically(kFp16, 0.75f * least, 0xBFFFFFFFu) == least);
    CHECK(RoundStochastically(kFp16, 0.75f * least, 0xC0000000u) == 0);
    CHECK(Same(RoundStochastically(kFp16, -0.75f * least, kAll), -0.0f));
    CHECK(RoundStochastically(kFp32, 0x1.234568p-140f, 0) == 0x1.234568p-140f);
  }

  TEST_CASE("from the largest value on as nearest rounding") {
    for (const NumberFormat& format : Formats()) {
      INFO(FormatName(format));
      const auto largest = static_cast<float>(LargestIndependently(format));
      const float threshold = OverflowThreshold(format);
      for (const float x : {largest, std::nextafter(largest, INFINITY),
                            std::nextafter(threshold, 0.0f), threshold, INFINITY, NAN})
        for (const float sign : {1.0f, -1.0f})
          for (const std::uint32_t word : {0u, kAll})
            CHECK(Same(RoundStochastically(format, sign * x, word), RoundTo(format, sign * x)));
    }
  }

  TEST_CASE("the mean of many draws is the value") {
    RandomStream random(7, StreamId("draws"));
    double sum = 0;
    constexpr int kDraws = 1 << 20;
    const float x = 1.0f + 0.3f / 1024;
    for (int i = 0; i < kDraws; ++i)
      sum += static_cast<double>(RoundStochastically(kFp16, x, random.NextU32())) - 1;
    // 5 standard deviations: sqrt(0.3 * 0.7 / draws) of a spacing.
    CHECK(std::fabs(sum / kDraws * 1024 - 0.3) < 5 * 0.46 / 1024);
  }
}

}  // namespace ada

// Formats and their conversions against arithmetic in double and each other.
#include "number/number_format.h"

#include <doctest/doctest.h>

#include <utility>

#include "error.h"
#include "number/independent.h"
#include "number/random.h"

namespace ada {
namespace {

using test::DecodeIndependently;
using test::RoundIndependently;
using test::Same;

float FromBits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// Every exponent with the mantissas at which roundings turn: around each bit and each half bit.
std::vector<float> BoundaryInputs() {
  std::vector<std::uint32_t> mantissas;
  for (int bit = 0; bit < 23; ++bit) {
    const std::uint32_t one = 1u << bit, ones = 0x7FFFFFu & ~(one - 1);
    for (const std::uint32_t base : {one, 3 * one, 0x7FFFFFu & (5 * one), ones, 0x400000u | one}) {
      for (const std::uint32_t near : {base - 1, base, base + 1}) mantissas.push_back(near);
    }
  }
  std::vector<float> inputs;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const std::uint32_t mantissa : mantissas) {
      const std::uint32_t bits = exponent << 23 | (mantissa & 0x7FFFFFu);
      inputs.push_back(FromBits(bits));
      inputs.push_back(FromBits(bits | 0x80000000u));
    }
  }
  return inputs;
}

std::vector<float> Samples(std::size_t count) {
  RandomStream random(1, StreamId("samples"));
  std::vector<float> inputs(count);
  for (float& x : inputs) x = FromBits(random.NextU32());
  return inputs;
}

// Doubles around every place at which roundings of floats turn, and anywhere.
std::vector<double> DoubleInputs() {
  std::vector<double> inputs = {1e300, -1e-300, 0x1.ffffffp127, 65520 - 1e-6,
                                1 + 0x1p-11 + 0x1p-40};
  for (const float x : BoundaryInputs()) {
    const auto wide = static_cast<double>(x);
    for (const double to : {-INFINITY, INFINITY}) inputs.push_back(std::nextafter(wide, to));
  }
  RandomStream random(2, StreamId("doubles"));
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t high = random.NextU32(), low = random.NextU32();
    inputs.push_back(std::bit_cast<double>(high << 32 | low));
    inputs.push_back(std::ldexp(static_cast<double>(high << 20 | low >> 12), -52 - i % 160));
  }
  return inputs;
}

std::int64_t RoundMismatches(const NumberFormat& format, const std::vector<float>& inputs) {
  std::int64_t mismatches = 0;
  for (const float x : inputs) {
    mismatches += !Same(RoundTo(format, x), RoundIndependently(format, x));
  }
  return mismatches;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("doubles are rounded once") {
    const std::vector<double> inputs = DoubleInputs();
    std::vector<NamedFormat> formats = NamedFormats();
    formats.push_back({"22 bits", NumberFormat{8, 22, 127}});
    formats.push_back({"23 bits of less range", NumberFormat{7, 23, 63}});
    for (const auto& [name, format] : formats) {
      CAPTURE(name);
      std::int64_t mismatches = 0;
      for (const double x : inputs)
        mismatches += !Same(RoundTo(format, x), RoundIndependently(format, x));
      CHECK(mismatches == 0);
    }
    // What numpy.float64(x).astype(numpy.float16) gives.
    CHECK(RoundTo(kFp16, 1.00048828125 + 1e-12) == 1.0009765625f);
    CHECK(RoundTo(kFp16, 65520 - 1e-6) == 65504.0f);
    CHECK(RoundTo(kFp32, 0x1.ffffffp127) == INFINITY);
  }

  TEST_CASE("properties of the named formats") {
    CHECK(kFp16.smallest_subnormal() == 0x1p-24);
    CHECK(kFp16.smallest_normal() == 0x1p-14);
    CHECK(kFp16.largest() == 65504);
    CHECK(kBf16.smallest_subnormal() == 0x1p-133);
    CHECK(kBf16.largest() == 0x1.FEp127);
    CHECK(kFp32.smallest_subnormal() == 0x1p-149);
    CHECK(kFp32.largest() == std::numeric_limits<float>::max());
  }

  TEST_CASE("named formats: order, range and where they overflow") {
    struct {
      const char* name;
      double smallest, normal, largest;
      float threshold;
    } const table[] = {
        {"fp32", 0x1p-149, 0x1p-126, 0x1.fffffep127, INFINITY},
        {"fp16", 0x1p-24, 0x1p-14, 65504, 65520},
        {"bf16", 0x1p-133, 0x1p-126, 0x1.FEp127, 0x1.FFp127f},
        {"cb16", 0x1p-39, 0x1p-30, 0x1.FF8p31, 0x1.FFCp31f},
        {"fp8_e4m3", 0x1p-9, 0x1p-6, 448, 464.00003f},
        {"fp8_e5m2", 0x1p-16, 0x1p-14, 57344, 61440},
        {"fp8_e3m4", 0x1p-6, 0x1p-2, 15.5, 15.75f},
        {"fp8_e4m3_ieee", 0x1p-9, 0x1p-6, 240, 248},
        {"fp8_e4m3_fnuz", 0x1p-10, 0x1p-7, 240, 248},
        {"fp8_e5m2_fnuz", 0x1p-17, 0x1p-15, 57344, 61440},
        {"fp8_e4m3_b11fnuz", 0x1p-13, 0x1p-10, 30, 31},
        {"fp6_e2m3", 0x1p-3, 1, 7.5, 7.75f},
        {"fp6_e3m2", 0x1p-4, 0x1p-2, 28, 30},
        {"fp4_e2m1", 0.5, 1, 6, 7},
        {"fp4_e1m2", 0.25, 1, 1.75, 1.875f},
        {"int8", 1, 64, 127, 127.5f},
        {"int4", 1, 4, 7, 7.5f},
        {"e8m0", 0x1p-127, 0x1p-127, 0x1p127, 0x1.8p127f},
    };
    REQUIRE(NamedFormats().size() == std::size(table));
    for (std::size_t i = 0; i < std::size(table); ++i) {
      const NamedFormat& named = NamedFormats()[i];
      CAPTURE(named.name);
      CHECK(named.name == table[i].name);
      CHECK(RefuseFormat(named.format).empty());
      CHECK(FormatName(named.format) == table[i].name);
      CHECK(named.format.smallest_subnormal() == table[i].smallest);
      CHECK(named.format.smallest_normal() == table[i].normal);
      CHECK(named.format.largest() == table[i].largest);
      CHECK(OverflowThreshold(named.format) == table[i].threshold);
    }
  }

  TEST_CASE("formats without a name are called what differs from IEEE 754") {
    const std::pair<NumberFormat, const char*> table[] = {
        {{5, 10, 15, true, true, true, true}, "fp16"},  // saturating or not
        {{4, 3, 7, false, true, true, true}, "fp8_e4m3"},
        {{4, 4, 7}, "{exponent: 4, mantissa: 4}"},
        {{6, 9, 40}, "{exponent: 6, mantissa: 9, bias: 40}"},
        {{4, 2, 7, false}, "{exponent: 4, mantissa: 2, has_inf: false}"},
        {{4, 2, 8, false, true, false},
         "{exponent: 4, mantissa: 2, bias: 8, has_inf: false, negative_zero: false}"},
        {{2, 2, 1, false, false, true, true},
         "{exponent: 2, mantissa: 2, has_inf: false, has_nan: false, saturate: true}"},
        {{4, 4, 7, true, true, true, true}, "{exponent: 4, mantissa: 4, saturate: true}"},
    };
    for (const auto& [format, name] : table) CHECK(FormatName(format) == name);
  }

  TEST_CASE("formats that fp32 cannot emulate are refused, with the reason") {
    const std::pair<NumberFormat, const char*> table[] = {
        {{0, 3, 0}, "exponent is 0"},
        {{9, 3, 255}, "exponent is 9"},
        {{4, -1, 7}, "mantissa is -1"},
        {{5, 24, 15}, "mantissa is 24"},
        {{4, 3, 2000000000}, "bias is 2000000000"},
        {{4, 3, -2147483647 - 1}, "bias is -2147483648"},
        {{8, 10, 141}, "2^-150"},  // below fp32's subnormals
        {{8, 10, 126}, "2^128"},   // beyond its largest
        {{8, 7, 127, false}, "2^128"},
        {{5, 0, 15}, "mantissa is 0"},
        {{5, 2, 15, true, false}, "has NaN"},
        {{5, 2, 15, true, true, false}, "negative zero"},
        {{5, 2, 15, false, false, false}, "negative zero"},
        {{1, 0, 0, false}, "no number but zero"},
        {{8, 1, 127, true, true, true, false, false}, "a sign"},
    };
    for (const auto& [format, reason] : table) {
      CAPTURE(reason);
      CHECK(RefuseFormat(format).find(reason) != std::string::npos);
      CHECK_THROWS_AS(RoundTo(format, 1.0f), InternalError);
    }
    for (const NumberFormat& format : {NumberFormat{8, 10, 140},
                                       {8, 7, 127},
                                       {8, 22, 128, false},
                                       {1, 23, 0},
                                       {5, 0, 15, false},
                                       {8, 23, 127},
                                       {1, 1, -126, false},
                                       {8, 0, 127, false, true, true, true, false}})
      CHECK(RefuseFormat(format).empty());
  }

  TEST_CASE("fp16 where it turns") {
    struct {
      float x, want;
    } const table[] = {
        {0x1p-25f, 0},          {0x1.000002p-25f, 0x1p-24f},  // a tie goes to the even zero
        {0x1.8p-24f, 0x1p-23f}, {0x1.FFFp-15f, 0x1p-14f},     // into the normal numbers
        {65519.996f, 65504},    {65520, INFINITY},            // half a spacing beyond the largest
        {2049, 2048},           {2051, 2052},
        {-0.0f, -0.0f},         {-0x1p-26f, -0.0f},
        {-INFINITY, -INFINITY}, {0x1p-149f, 0},
    };
    for (const auto& row : table) {
      CAPTURE(row.x);
      CHECK(Same(RoundTo(kFp16, row.x), row.want));
      CHECK(Same(DecodeFp16(EncodeFp16(row.x)), row.want));
    }
    CHECK(std::isnan(RoundTo(kFp16, NAN)));
    CHECK(std::isnan(DecodeFp16(EncodeFp16(FromBits(0x7F800001u)))));  // its payload is lost
    CHECK(std::isnan(DecodeBf16(EncodeBf16(FromBits(0xFF800001u)))));
  }

  TEST_CASE("every exponent, boundary mantissas and a million samples") {
    std::vector<float> inputs = BoundaryInputs();
    const std::vector<float> samples = Samples(1'000'000);
    inputs.insert(inputs.end(), samples.begin(), samples.end());
    CHECK(RoundMismatches(kFp32, inputs) == 0);
    CHECK(RoundMismatches(kFp16, inputs) == 0);
    CHECK(RoundMismatches(kBf16, inputs) == 0);
    std::int64_t fp16 = 0, bf16 = 0, fp32 = 0;
    for (const float x : inputs) {
      fp32 += std::bit_cast<std::uint32_t>(RoundTo(kFp32, x)) != std::bit_cast<std::uint32_t>(x);
      fp16 += !Same(DecodeFp16(EncodeFp16(x)), RoundTo(kFp16, x));
      bf16 += !Same(DecodeBf16(EncodeBf16(x)), RoundTo(kBf16, x));
    }
    CHECK(fp32 == 0);
    CHECK(fp16 == 0);
    CHECK(bf16 == 0);
  }

  TEST_CASE("every IEEE-like format that fp32 contains") {
    const std::vector<float> boundaries = BoundaryInputs(), samples = Samples(2000);
    for (int exponent = 2; exponent <= 8; ++exponent) {
      for (int mantissa = 1; mantissa <= 23; ++mantissa) {
        const NumberFormat format{exponent, mantissa, (1 << (exponent - 1)) - 1, true};
        CAPTURE(exponent);
        CAPTURE(mantissa);
        CHECK(RoundMismatches(format, boundaries) == 0);
        CHECK(RoundMismatches(format, samples) == 0);
      }
    }
    for (const int bias : {-60, 0, 31, 130}) {  // the whole range moved
      CAPTURE(bias);
      CHECK(RoundMismatches({6, 9, bias, true}, boundaries) == 0);
    }
  }

  TEST_CASE("every other format that fp32 contains") {
    std::vector<float> inputs = Samples(1000);
    const std::vector<float> boundaries = BoundaryInputs();
    for (std::size_t i = 0; i < boundaries.size(); i += 61) inputs.push_back(boundaries[i]);
    for (const float special : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, -NAN})
      inputs.push_back(special);
    int formats = 0;
    for (int exponent = 1; exponent <= 8; ++exponent)
      for (int mantissa = 0; mantissa <= 23; ++mantissa)
        for (const int shift : {-3, 0, 1, 20})
          for (const bool saturate : {false, true}) {
            const int bias = (1 << (exponent - 1)) - 1 + shift;
            for (const NumberFormat& format :
                 {NumberFormat{exponent, mantissa, bias, true, true, true, saturate},
                  NumberFormat{exponent, mantissa, bias, false, true, true, saturate},
                  NumberFormat{exponent, mantissa, bias, false, true, false, saturate},
                  NumberFormat{exponent, mantissa, bias, false, false, true, saturate},
                  NumberFormat{exponent, mantissa, bias, false, true, true, saturate, false}}) {
              if (!RefuseFormat(format).empty()) continue;
              ++formats;
              INFO(FormatName(format));
              CHECK(RoundMismatches(format, inputs) == 0);
              CHECK(format.largest() == test::LargestIndependently(format));
              const float threshold = OverflowThreshold(format);
              const auto largest = static_cast<float>(format.largest());
              const float below = std::nextafter(threshold, 0.0f);
              CHECK(RoundTo(format, below) == largest);
              NumberFormat open = format;
              open.saturate = false;
              if (format.has_nan) CHECK_FALSE(std::isfinite(RoundTo(open, threshold)));
            }
          }
    CHECK(formats > 5000);
  }

  TEST_CASE("all 65536 codes survive the way out and back") {
    int fp16_values = 0, fp16_back = 0, bf16_values = 0, bf16_back = 0;
    for (unsigned code = 0; code < 65536; ++code) {
      const auto narrow = static_cast<std::uint16_t>(code);
      const float fp16 = DecodeFp16(narrow), bf16 = DecodeBf16(narrow);
      // A signalling NaN comes back quiet.
      const unsigned quiet16 = std::isnan(fp16) ? 0x200u : 0u;
      const unsigned quiet_b = std::isnan(bf16) ? 0x40u : 0u;
      fp16_values += Same(fp16, static_cast<float>(DecodeIndependently(kFp16, code)));
      bf16_values += Same(bf16, static_cast<float>(DecodeIndependently(kBf16, code)));
      fp16_back += EncodeFp16(fp16) == (code | quiet16) && Same(RoundTo(kFp16, fp16), fp16);
      bf16_back += EncodeBf16(bf16) == (code | quiet_b) && Same(RoundTo(kBf16, bf16), bf16);
    }
    CHECK(fp16_values == 65536);
    CHECK(fp16_back == 65536);
    CHECK(bf16_values == 65536);
    CHECK(bf16_back == 65536);
  }
}

}  // namespace ada

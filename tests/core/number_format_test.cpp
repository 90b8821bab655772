// Conversions against arithmetic in double, recorded vectors and each other.
#include "core/number_format.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include "core/error.h"
#include "core/independent.h"
#include "core/random.h"

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

std::int64_t RoundMismatches(const NumberFormat& format, const std::vector<float>& inputs) {
  std::int64_t mismatches = 0;
  for (const float x : inputs) {
    mismatches += !Same(RoundTo(format, x), RoundIndependently(format, x));
  }
  return mismatches;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("properties of the named formats") {
    CHECK(kFp16.smallest_subnormal() == 0x1p-24);
    CHECK(kFp16.smallest_normal() == 0x1p-14);
    CHECK(kFp16.largest() == 65504);
    CHECK(kBf16.smallest_subnormal() == 0x1p-133);
    CHECK(kBf16.largest() == 0x1.FEp127);
    CHECK(kFp32.smallest_subnormal() == 0x1p-149);
    CHECK(kFp32.largest() == std::numeric_limits<float>::max());
    REQUIRE(NamedFormats().size() == 3);
    CHECK(NamedFormats()[0].name == "fp32");
    CHECK(NamedFormats()[1].name == "fp16");
    CHECK(NamedFormats()[2].name == "bf16");
    CHECK(FormatName(kFp32) == "fp32");
    CHECK(FormatName(kFp16) == "fp16");
    CHECK(FormatName(kBf16) == "bf16");
    CHECK(FormatName({4, 3, 7, true}) == "{exponent: 4, mantissa: 3}");
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
    CHECK_THROWS_AS(RoundTo({8, 10, 141, true}, 1), InternalError);  // below fp32's subnormals
    CHECK_THROWS_AS(RoundTo({8, 10, 126, true}, 1), InternalError);  // beyond its largest
    CHECK_THROWS_AS(RoundTo({4, 3, 7, false}, 1), InternalError);
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

  TEST_CASE("recorded conversions of torch, numpy and ml_dtypes") {
    struct {
      const char* file;
      NumberFormat format;
      int rows;
    } const table[] = {{"fp16", kFp16, 2751},
                       {"bf16", kBf16, 2744},
                       {"float8_e5m2", {5, 2, 15, true}, 1146},
                       {"float8_e4m3", {4, 3, 7, true}, 1138},
                       {"float8_e3m4", {3, 4, 3, true}, 1118}};
    for (const auto& golden : table) {
      INFO(std::string(golden.file));
      std::ifstream file(std::string(ADA_SOURCE_DIR "/tests/golden/formats/") + golden.file +
                         ".csv");
      int rows = 0, wrong = 0;
      for (std::string line; std::getline(file, line);) {
        if (line.starts_with('#') || line.starts_with("fp32")) continue;
        const float x = FromBits(static_cast<std::uint32_t>(std::stoul(line, nullptr, 16)));
        const auto code =
            static_cast<unsigned>(std::stoul(line.substr(line.rfind(',') + 1), nullptr, 16));
        const auto want = static_cast<float>(DecodeIndependently(golden.format, code));
        ++rows;
        wrong += !Same(RoundTo(golden.format, x), want);
        if (std::isnan(x)) continue;
        if (golden.format == kFp16) wrong += EncodeFp16(x) != code;
        if (golden.format == kBf16) wrong += EncodeBf16(x) != code;
      }
      CHECK(rows == golden.rows);
      CHECK(wrong == 0);
    }
  }
}

}  // namespace ada

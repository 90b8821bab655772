// Every recorded sum of tests/golden/accumulators, to the bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "golden_table.h"
#include "io/tensor_files/safetensors.h"
#include "number/number_grid.h"
#include "scaling/accumulated_product.h"

namespace ada::scaling {
namespace {

using testing::GoldenRow;

std::string Folder() {
  const char* given = std::getenv("ADA_GOLDEN_ACCUMULATORS");
  return given != nullptr ? given : std::string(ADA_SOURCE_DIR) + "/tests/golden/accumulators";
}

Accumulator OfModel(const GoldenRow& row) {
  const std::map<std::string, NumberFormat> formats = {
      {"fp32", kFp32}, {"fp16", kFp16}, {"bf16", kBf16}, {"e8m13", {8, 13, 127}}};
  Accumulator rule;
  rule.group = std::stoi(row.at("group"));
  const std::string& bits = row.at("fraction_bits");
  rule.fraction_bits = bits == "exact" ? Accumulator::kExact : std::stoi(bits);
  rule.format = formats.at(row.at("accumulator"));
  rule.rounding = row.at("rounding") == "truncate" ? AccumulatorRounding::kTruncate
                                                   : AccumulatorRounding::kNearest;
  rule.promote = std::stoi(row.at("promote"));
  return rule;
}

struct Codes {
  std::vector<float> values;
  int least = 0;
};

// The number of a code of 8 bits.
float OfFp8(std::uint8_t code, const NumberFormat& format) {
  const int mantissa = code & ((1 << format.mantissa_bits) - 1);
  const int exponent = (code & 0x7f) >> format.mantissa_bits;
  const int top = (1 << format.exponent_bits) - 1;
  const float sign = code >= 0x80 ? -1.0f : 1.0f;
  if (!format.has_inf && (code & 0x7f) == 0x7f) return std::nanf("");
  if (format.has_inf && exponent == top)
    return mantissa != 0 ? std::nanf("") : sign * OfBits(kInfinityBits);
  const double significand = exponent == 0 ? mantissa : mantissa + (1 << format.mantissa_bits);
  const int scale = std::max(exponent, 1) - format.bias - format.mantissa_bits;
  return sign * static_cast<float>(std::ldexp(significand, scale));
}

Codes Decode(const SafetensorsFile& file, const std::string& name, const std::string& format) {
  const std::vector<std::byte> bytes = file.Bytes(name);
  Codes codes;
  if (format == "fp16" || format == "bf16") {
    std::vector<std::uint16_t> words(bytes.size() / 2);
    std::memcpy(words.data(), bytes.data(), bytes.size());
    for (const std::uint16_t word : words)
      codes.values.push_back(format == "fp16" ? DecodeFp16(word) : DecodeBf16(word));
    codes.least = format == "fp16" ? -14 : -126;
    return codes;
  }
  const NumberFormat fp8 = format == "fp8_e4m3" ? kFp8E4M3 : kFp8E5M2;
  for (const std::byte byte : bytes)
    codes.values.push_back(OfFp8(static_cast<std::uint8_t>(byte), fp8));
  codes.least = 1 - fp8.bias;
  return codes;
}

bool Same(float a, float b) { return BitsOf(a) == BitsOf(b) || (std::isnan(a) && std::isnan(b)); }

TEST_SUITE("cpu") {
  TEST_CASE("recorded sums of tensor cores are met to the bit") {
    const std::string folder = Folder();
    std::map<std::string, Accumulator> models;
    for (const GoldenRow& row : testing::ReadTable(folder + "/models.csv").rows)
      models[row.at("model")] = OfModel(row);
    const SafetensorsFile operands = SafetensorsFile::Open(folder + "/operands.safetensors");
    const SafetensorsFile results = SafetensorsFile::Open(folder + "/results.safetensors");
    int sums = 0, wrong = 0;
    for (const GoldenRow& row : testing::ReadTable(folder + "/sets.csv").rows) {
      const std::string& set = row.at("set");
      const auto number = [&](const char* key) { return std::stoll(row.at(key)); };
      const std::int64_t k = number("K");
      const Codes a = Decode(operands, set + ".a", row.at("format_a"));
      const Codes b = Decode(operands, set + ".b", row.at("format_b"));
      for (const std::string& model : testing::Words(row.at("models"))) {
        AccumulatedOperand left{a.values.data(), number("M"), a.least};
        AccumulatedOperand right{b.values.data(), number("N"), b.least};
        std::vector<float> scale_a, scale_b;
        if (model.ends_with(".scaled")) {
          scale_a = operands.ReadF32(set + ".scale_a"),
          scale_b = operands.ReadF32(set + ".scale_b");
          left.scales = scale_a.data(), left.scale_block = 128;
          right.scales = scale_b.data(), right.scale_block = 128, right.scale_rows = 128;
        }
        const std::vector<float> wanted = results.ReadF32(set + "." + model);
        std::vector<float> got(wanted.size());
        AccumulatorCounts counts;
        AccumulatedProduct(models.at(model.substr(0, model.find('.'))), left, right, k, got.data(),
                           &counts);
        REQUIRE(static_cast<std::size_t>(left.rows * right.rows) == wanted.size());
        CHECK(counts.sums == left.rows * right.rows);
        for (std::size_t i = 0; i < got.size(); ++i) {
          ++sums;
          if (Same(got[i], wanted[i])) continue;
          ++wrong;
          CAPTURE(set);
          CAPTURE(model);
          CHECK(got[i] == wanted[i]);
        }
      }
    }
    CHECK(wrong == 0);
    CHECK(sums >= 1740);
  }

  TEST_CASE("names are those of the recorded models, with the same numbers") {
    int named = 0;
    for (const GoldenRow& row : testing::ReadTable(Folder() + "/models.csv").rows) {
      const Accumulator* rule = AccumulatorNamed(row.at("model"));
      if (rule == nullptr) continue;
      ++named;
      CAPTURE(row.at("model"));
      CHECK(*rule == OfModel(row));
      CHECK(AccumulatorText(*rule) == row.at("model"));
    }
    CHECK(named == 14);
    CHECK(AccumulatorNamed("tf32") == nullptr);
  }

  TEST_CASE("a promotion that does not fall on the end of a group is refused") {
    Accumulator rule = *AccumulatorNamed("hopper_fp8");
    CHECK(RefuseAccumulator(rule).empty());
    rule.promote = 48;
    CHECK(RefuseAccumulator(rule) == "promote is 48; it has to be a multiple of group, 32");
    CHECK(AccumulatorText(rule) ==
          "{group: 32, fraction_bits: 13, accumulator: {exponent: 8, mantissa: 13}, "
          "rounding: truncate, promote: 48}");
  }

  TEST_CASE("counts: what alignment cuts to zero, and which way truncation pulls") {
    // 2^-14 beside 1 lies below the 13 bits that are kept; -2^-14 too.
    const std::vector<float> a = {1, 0x1p-7f, -1, 0x1p-7f}, b = {1, 0x1p-7f};
    const AccumulatedOperand left{a.data(), 2, -6}, right{b.data(), 1, -6};
    std::vector<float> c(2);
    AccumulatorCounts counts;
    AccumulatedProduct(*AccumulatorNamed("hopper_fp8"), left, right, 2, c.data(), &counts);
    CHECK(c == std::vector<float>{1, -1});
    CHECK(counts.products == 4);
    CHECK(counts.swallowed == 2);
    CHECK(counts.swallowed_pct() == 50);
    CHECK(counts.pull == doctest::Approx(0));  // one error is toward zero, the other away from it
    CHECK(counts.max_rel == doctest::Approx(0x1p-14 / (1 + 0x1p-14)));
  }
}

}  // namespace
}  // namespace ada::scaling

// Conversions recorded from torch, numpy and ml_dtypes, bit for bit.
#include <doctest/doctest.h>

#include "golden_table.h"
#include "number/independent.h"

namespace ada {
namespace {

using test::DecodeIndependently;
using test::Same;

struct Golden {
  const char* file;
  const char* name;
  std::int64_t rows;
};
const Golden kGolden[] = {{"fp16", "fp16", 8198},
                          {"bf16", "bf16", 8179},
                          {"float8_e4m3fn", "fp8_e4m3", 5661},
                          {"float8_e5m2", "fp8_e5m2", 5625},
                          {"float8_e3m4", "fp8_e3m4", 5485},
                          {"float8_e4m3", "fp8_e4m3_ieee", 5581},
                          {"float8_e4m3fnuz", "fp8_e4m3_fnuz", 5677},
                          {"float8_e5m2fnuz", "fp8_e5m2_fnuz", 5673},
                          {"float8_e4m3b11fnuz", "fp8_e4m3_b11fnuz", 5677},
                          {"float6_e2m3fn", "fp6_e2m3", 4525},
                          {"float6_e3m2fn", "fp6_e3m2", 4525},
                          {"float4_e2m1fn", "fp4_e2m1", 4237},
                          {"float8_e8m0fnu", "e8m0", 7187}};

NumberFormat FormatOf(const std::string& name) {
  for (const NamedFormat& named : NamedFormats())
    if (named.name == name) return named.format;
  FAIL("no format is called " << name);
  return kFp32;
}
NumberFormat FormatOfFile(const std::string& file) {
  for (const Golden& golden : kGolden)
    if (golden.file == file) return FormatOf(golden.name);
  FAIL("no format belongs to " << file);
  return kFp32;
}

unsigned Hex(const std::string& text) {
  return static_cast<unsigned>(std::stoul(text, nullptr, 16));
}

// The value that the library's code stands for.
float Recorded(const NumberFormat& format, const testing::GoldenRow& row,
               const std::string& column) {
  return static_cast<float>(DecodeIndependently(format, Hex(row.at(column))));
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("every recorded code stands for the recorded value") {
    const testing::GoldenTable table = testing::ReadGolden("formats/decode.csv");
    std::int64_t wrong = 0;
    for (const testing::GoldenRow& row : table.rows) {
      const auto want = std::bit_cast<float>(Hex(row.at("fp32")));
      const NumberFormat format = FormatOfFile(row.at("format"));
      wrong += !Same(Recorded(format, row, "code"), want);
      if (!std::isnan(want)) wrong += !Same(RoundTo(format, want), want);
    }
    CHECK(table.rows.size() == 2192);
    CHECK(wrong == 0);
  }

  TEST_CASE("recorded conversions") {
    for (const Golden& golden : kGolden) {
      INFO(std::string(golden.file));
      const NumberFormat format = FormatOf(golden.name);
      const testing::GoldenTable table =
          testing::ReadGolden(std::string("formats/") + golden.file + ".csv");
      std::int64_t wrong = 0;
      for (const testing::GoldenRow& row : table.rows) {
        const auto x = std::bit_cast<float>(Hex(row.at("fp32")));
        const std::string column = row.contains("ml_dtypes") ? "ml_dtypes" : "numpy";
        wrong += !Same(RoundTo(format, x), Recorded(format, row, column));
        if (row.contains("torch")) {
          NumberFormat torch = format;
          torch.saturate = format == kFp8E4M3;
          wrong += !Same(RoundTo(torch, x), Recorded(format, row, "torch"));
        }
        if (std::isnan(x)) continue;
        if (format == kFp16) wrong += EncodeFp16(x) != Hex(row.at(column));
        if (format == kBf16) wrong += EncodeBf16(x) != Hex(row.at(column));
      }
      CHECK(static_cast<std::int64_t>(table.rows.size()) == golden.rows);
      CHECK(wrong == 0);
    }
  }
}

}  // namespace ada

// Table-driven formats beside recordings of IEEE P3109 (v4.0, exact arithmetic, gfloat), HiFloat8
// (en_dtypes) and others, where these are there.
#include "number/tables/table_format.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>

#include "io/tensor_files/safetensors.h"
#include "number/number_format.h"
#include "skip.h"

namespace ada {
namespace {

// Beside the tree, or where ADA_SHARED says.
std::string Folder() {
  const char* shared = std::getenv("ADA_SHARED");
  return std::string(shared != nullptr ? shared : ADA_SOURCE_DIR "/../shared") +
         "/golden/practice/formats";
}

const std::map<std::string, TableRounding> kRoundings = {
    {"nearest_even", TableRounding::kNearestEven},
    {"nearest_away", TableRounding::kNearestAway},
    {"toward_zero", TableRounding::kTowardZero},
    {"toward_positive", TableRounding::kTowardPositive},
    {"toward_negative", TableRounding::kTowardNegative},
    {"odd", TableRounding::kTowardOdd},
    {"stochastic_a", TableRounding::kStochasticA},
    {"stochastic_b", TableRounding::kStochasticB},
    {"stochastic_c", TableRounding::kStochasticC},
};

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::vector<std::uint8_t> Codes(const SafetensorsFile& file, const std::string& name) {
  const std::vector<std::byte> bytes = file.Bytes(name);
  std::vector<std::uint8_t> codes(bytes.size());
  std::memcpy(codes.data(), bytes.data(), bytes.size());
  return codes;
}

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("table formats: what other programs and the standard give") {
    if (!std::filesystem::exists(Folder() + "/cases.safetensors"))
      ADA_SKIP("the recordings are not there");
    const SafetensorsFile file = SafetensorsFile::Open(Folder() + "/cases.safetensors");
    int conversions = 0;
    for (const TensorEntry& entry : file.entries()) {
      CAPTURE(entry.name);
      // decode.p3109.Binary8p3se, p3109.Binary8p3se.stochastic_a.none.N4
      std::vector<std::string> parts;
      std::stringstream words(entry.name);
      for (std::string part; std::getline(words, part, '.');) parts.push_back(part);
      if (parts[0] == "decode" && parts[1] == "p3109") {
        const TableFormat format = TableFormatNamed(Lower(parts[2])).value();
        const std::vector<double> values = file.ReadF64(entry.name);
        for (std::size_t code = 0; code < values.size(); ++code)
          CHECK(Same(format.ValueOf(static_cast<std::uint16_t>(code)), values[code]));
        continue;
      }
      if (parts[0] != "p3109" || parts.size() < 4 || parts.back() == "R") continue;
      const TableFormat format = TableFormatNamed(Lower(parts[1])).value();
      TableModes modes;
      modes.rounding = kRoundings.at(parts[2]);
      modes.overflow = parts[3] == "none"     ? TableOverflow::kNone
                       : parts[3] == "finite" ? TableOverflow::kSaturate
                                              : TableOverflow::kSaturateFinite;
      std::vector<std::uint8_t> random;
      if (parts.size() > 4) {
        modes.random_bits = std::stoi(parts[4].substr(1));
        random = Codes(file, entry.name + ".R");
      }
      const std::vector<float> x = file.ReadF32("p3109." + parts[1] + ".x");
      const std::vector<std::uint8_t> codes = Codes(file, entry.name);
      const TableGrid grid = TableGridOf(format, modes);
      int differ = 0, rounded = 0;
      for (std::size_t i = 0; i < codes.size(); ++i) {
        const std::uint32_t drawn = random.empty() ? 0 : random[i];
        differ += format.CodeOf(static_cast<double>(x[i]), modes, drawn) != codes[i];
        const float value = RoundByTable(grid, static_cast<double>(x[i]), /*saturate=*/false,
                                         !random.empty(), drawn)
                                .value;
        rounded += !Same(static_cast<double>(value), format.ValueOf(codes[i]));
      }
      CHECK(differ == 0);
      CHECK(rounded == 0);
      ++conversions;
    }
    CHECK(conversions > 50);
  }

  TEST_CASE("table formats: HiFloat8, UE5M3 and FP4 E1M2") {
    if (!std::filesystem::exists(Folder() + "/cases.safetensors"))
      ADA_SKIP("the recordings are not there");
    const SafetensorsFile file = SafetensorsFile::Open(Folder() + "/cases.safetensors");
    for (const std::string name : {"hifloat8", "ue5m3", "float4_e1m2"}) {
      CAPTURE(name);
      const bool e1m2 = name == "float4_e1m2";
      const TableFormat format = e1m2 ? TableOf(kFp4E1M2) : TableFormatNamed(name).value();
      const std::vector<double> values = file.ReadF64("decode." + name);
      for (std::size_t code = 0; code < values.size(); ++code)
        CHECK(Same(format.ValueOf(static_cast<std::uint16_t>(code)), values[code]));
      const std::vector<float> x = file.ReadF32(name + ".x");
      for (const std::string tensor : {".codes", ".nan", ".saturate"}) {
        if (file.Find(name + tensor) == nullptr) continue;
        TableModes modes;
        if (tensor == ".saturate") modes.overflow = TableOverflow::kSaturate;
        const std::vector<std::uint8_t> codes = Codes(file, name + tensor);
        int differ = 0;
        for (std::size_t i = 0; i < codes.size(); ++i)
          differ += !(e1m2 && std::isnan(x[i])) &&
                    format.CodeOf(static_cast<double>(x[i]), modes) != codes[i];
        CHECK(differ == 0);
      }
    }
  }

  TEST_CASE("table formats: plain formats round as they do everywhere") {
    for (const NamedFormat& named : NamedFormats()) {
      const NumberFormat& format = named.format;
      if (!format.is_signed || format.exponent_bits + format.mantissa_bits > 15) continue;
      CAPTURE(named.name);
      const TableFormat table = TableOf(format);
      for (std::uint32_t i = 0; i < 20000; ++i) {
        const std::uint32_t bits = i * 214748u + i;
        float x = 0;
        std::memcpy(&x, &bits, sizeof x);
        if (std::isnan(x)) continue;
        const float want = RoundTo(format, x);
        CHECK(Same(table.ValueOf(table.CodeOf(static_cast<double>(x), {})),
                   static_cast<double>(want)));
        if (!std::isnan(want))
          CHECK(table.CodeOf(static_cast<double>(x), {}) == CodeOf(format, want));
      }
    }
  }

  TEST_CASE("table formats: training rounds to the values of the tables in every mode") {
    std::uint32_t word = 1;
    const auto draw = [&word] { return word = word * 1664525u + 1013904223u; };
    for (const std::string& name : TableFormatNames()) {
      CAPTURE(name);
      const TableFormat table = TableFormatNamed(name).value();
      std::vector<float> inputs = {0, -0.0f, HUGE_VALF, -HUGE_VALF, 1e-40f, -3e38f, NAN};
      for (std::size_t i = 0; i < table.magnitudes.size(); ++i) {
        const double low = table.magnitudes[i];
        const double high = i + 1 < table.magnitudes.size() ? table.magnitudes[i + 1] : table.next;
        for (const double part : {0.0, 0.25, 0.5, 0.5 + 0x1p-16, 0.9}) {
          inputs.push_back(static_cast<float>(low + part * (high - low)));
          inputs.push_back(-inputs.back());
        }
      }
      for (int mode = 0; mode < 30; ++mode) {
        TableModes modes{static_cast<TableRounding>(mode % 10),
                         static_cast<TableOverflow>(mode / 10), 1 + static_cast<int>(draw() % 16)};
        const TableGrid grid = TableGridOf(table, modes);
        const bool draws = IsStochastic(modes.rounding);
        int differ = 0;
        for (const float x : inputs) {
          const std::uint32_t random = draw() >> 8;
          const double want = table.ValueOf(table.CodeOf(static_cast<double>(x), modes, random));
          const float got =
              RoundByTable(grid, static_cast<double>(x), /*saturate=*/false, draws, random).value;
          differ += !Same(static_cast<double>(got), want) ||
                    (got == 0 && std::signbit(got) != std::signbit(want));
        }
        CHECK(differ == 0);
      }
    }
  }

  TEST_CASE("table formats: what a format says of itself follows from its values") {
    for (const std::string& name : TableFormatNames()) {
      CAPTURE(name);
      const TableFormat table = TableFormatNamed(name).value();
      const NumberFormat format = TableNumberFormatNamed(name).value();
      CHECK(FormatName(format) == name);
      CHECK(format == TableNumberFormatNamed(name).value());
      CHECK(format.smallest_subnormal() == table.magnitudes[1]);
      CHECK(format.largest() == table.magnitudes.back());
      const float from = OverflowThreshold(format);
      const auto last = static_cast<double>(std::nextafter(from, 0.0f));
      const auto wide = [&](double x) {  // the same values, and one more
        TableFormat more = table;
        more.magnitudes.push_back(more.next), more.codes.push_back(0xffff);
        more.next *= 4;
        return more.CodeOf(x, {}) == 0xffff;
      };
      CHECK(wide(static_cast<double>(from)));
      CHECK_FALSE(wide(last));
    }
    CHECK(TableNumberFormatNamed("hifloat8")->smallest_normal() == 0x1p-15);
    CHECK(TableNumberFormatNamed("binary8p3se")->smallest_normal() == 0x1p-15);
    CHECK_FALSE(TableNumberFormatNamed("fp16"));
  }

  TEST_CASE("modes: fp32 and a format's own rounding stay what they are") {
    CHECK(WithModes(kFp32, {TableRounding::kTowardZero}) == kFp32);
    CHECK(WithModes(kFp16, {TableRounding::kNearestEven}) == kFp16);
    const NumberFormat down = WithModes(kFp16, {TableRounding::kTowardZero});
    CHECK(down != kFp16);
    CHECK(down == WithModes(kFp16, {TableRounding::kTowardZero}));
    CHECK(FormatName(down) == "fp16");
    for (std::uint32_t i = 0; i < 20000; ++i) {
      const std::uint32_t bits = i * 214748u + i;
      float x = 0;
      std::memcpy(&x, &bits, sizeof x);
      if (!std::isfinite(x)) continue;
      // Toward zero: the low bits cut off, by integers of the spacing.
      const double exponent =
          std::max(std::floor(std::log2(std::fabs(static_cast<double>(x)))), -14.0);
      const double spacing = std::exp2(exponent - 10);
      const double want =
          std::min(std::floor(std::fabs(static_cast<double>(x)) / spacing) * spacing, 65504.0);
      CHECK(std::fabs(static_cast<double>(RoundTo(down, x))) == (x == 0 ? 0 : want));
    }
  }

  TEST_CASE("table formats: every name is there once, and values rise") {
    for (const std::string& name : TableFormatNames()) {
      CAPTURE(name);
      const TableFormat format = TableFormatNamed(name).value();
      CHECK(format.name == name);
      CHECK(std::is_sorted(format.magnitudes.begin(), format.magnitudes.end()));
      CHECK(format.next > format.largest());
    }
    CHECK_FALSE(TableFormatNamed("binary8p9se"));
    CHECK_FALSE(TableFormatNamed("binary8p8se"));
  }
}

}  // namespace ada

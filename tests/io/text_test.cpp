// Nearest names, globs and numbers as text.
#include "io/text.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "number/random.h"

namespace ada {

TEST_SUITE("cpu") {
  TEST_CASE("nearest name") {
    const std::vector<std::string> known = {"batch_size", "shuffle", "lr", "momentum",
                                            "fp16",       "bf16",    "a"};
    struct {
      const char *name, *want;
    } const table[] = {
        {"bacth_size", "batch_size"},  // neighbors exchanged: one edit
        {"batchsize", "batch_size"},
        {"batch_sizes", "batch_size"},
        {"shufle", "shuffle"},
        {"Momentum", "momentum"},
        {"rl", "lr"},
        {"l", "lr"},
        {"fp61", "fp16"},
        {"BF16", "bf16"},
        {"gp16", "fp16"},
        {"b", ""},
        {"", ""},
        {"weight_decay", ""},
        {"fp8", ""},
        {"xyz", ""},
    };
    for (const auto& row : table) {
      INFO(std::string(row.name));
      CHECK(NearestName(row.name, known) == row.want);
    }
    CHECK(NearestName("anything", {}) == "");
    CHECK(NearestName("ac", {"ab", "ad"}) == "ab");  // the first of equals
    CHECK(NearestName(std::string(1'000'000, 'x'), known) == "");
  }

  TEST_CASE("globs") {
    struct {
      const char *pattern, *text;
      bool want;
    } const table[] = {
        {"", "", true},
        {"", "a", false},
        {"fc", "fc", true},
        {"fc", "fc1", false},
        {"fc", "xfc", false},
        {"*", "", true},
        {"*", "stage1.block2.conv1", true},
        {"stage1.*", "stage1.block2.conv1", true},
        {"stage1.*", "stage10.conv1", false},
        {"*.conv?", "stage1.conv2", true},
        {"*.conv?", "stage1.conv", false},
        {"stage[13].*", "stage3.bn1", true},
        {"stage[13].*", "stage2.bn1", false},
        {"stage[1-3]", "stage2", true},
        {"stage[!1-2]", "stage2", false},
        {"stage[!1-2]", "stage3", true},
        {"[a-]", "-", true},
        {"[]x]", "]", true},
        {"[!]x]", "]", false},
        {"[!]x]", "y", true},
        {"a[", "a[", true},  // no end: stands for itself
        {"[", "a", false},
        {"[!]", "[!]", true},
        {"[]", "[]", true},
        {"*a*b", "xaxxb", true},
        {"*a*b", "xbxxa", false},
        {"**a**", "bab", true},
        {"?*", "", false},
        {"a*a", "a", false},
        {"[\x80-\xff]", "\xc3", true},  // bytes that are no UTF-8, not signed
        {"caf?", "caf\u00e9", true},    // a character, whatever bytes it has
        {"caf[\u00e0-\u00ef]", "caf\u00e9", true},
        {"caf[!\u00e9]", "caf\u00e9", false},
        {"caf?", "caf\u00e9s", false},
    };
    for (const auto& row : table) {
      INFO(std::string(row.pattern) << " on " << std::string(row.text));
      CHECK(GlobMatch(row.pattern, row.text) == row.want);
    }
  }

  TEST_CASE("a glob that backtracks stays polynomial") {
    std::string pattern;
    for (int i = 0; i < 50; ++i) pattern += "*a";
    CHECK_FALSE(GlobMatch(pattern + "b", std::string(5000, 'a')));
    CHECK(GlobMatch(pattern, std::string(5000, 'a')));
  }

  TEST_CASE("numbers as text") {
    const double inf = std::numeric_limits<double>::infinity();
    CHECK(ShortestText(0.1) == "0.1");
    CHECK(ShortestText(0.1f) == "0.1");
    CHECK(ShortestText(static_cast<double>(0.1f)) == "0.10000000149011612");
    CHECK(ShortestText(65536.0) == "65536");
    CHECK(ShortestText(0x1p-24) == "5.960464477539063e-08");
    CHECK(ShortestText(-0.0) == "-0");
    CHECK(ShortestText(inf) == "inf");
    CHECK(ShortestText(-inf) == "-inf");
    CHECK(ShortestText(std::nan("")) == "nan");
    CHECK(ShortestText(-std::numeric_limits<float>::quiet_NaN()) == "nan");
    CHECK(ShortestText(-std::numeric_limits<float>::infinity()) == "-inf");
    CHECK(NineDigits(1.0 / 3) == "0.333333333");
    CHECK(NineDigits(2.5) == "2.5");
    CHECK(NineDigits(1e-7) == "1e-07");
    CHECK(NineDigits(123456789012.0) == "1.23456789e+11");
    CHECK(NineDigits(-inf) == "-inf");
    CHECK(NineDigits(-std::nan("")) == "nan");
  }

  TEST_CASE("shortest text reads back to the same value") {
    RandomStream random(3, 0);
    int wrong = 0;
    for (int i = 0; i < 100'000; ++i) {
      const auto high = std::uint64_t{random.NextU32()} << 32;
      const auto value = std::bit_cast<double>(high | random.NextU32());
      const auto narrow = std::bit_cast<float>(random.NextU32());
      if (std::isfinite(value)) {
        wrong += std::strtod(ShortestText(value).c_str(), nullptr) != value;
      }
      if (std::isfinite(narrow)) {
        wrong += std::strtof(ShortestText(narrow).c_str(), nullptr) != narrow;
      }
    }
    CHECK(wrong == 0);
  }

  TEST_CASE("bytes for people") {
    CHECK(HumanBytes(0) == "0 B");
    CHECK(HumanBytes(1023) == "1023 B");
    CHECK(HumanBytes(1024) == "1.0 KiB");
    CHECK(HumanBytes(1536) == "1.5 KiB");
    CHECK(HumanBytes(1048575) == "1.0 MiB");  // not 1024.0 KiB
    CHECK(HumanBytes(std::uint64_t{5} << 30) == "5.0 GiB");
    CHECK(HumanBytes(std::numeric_limits<std::uint64_t>::max()) == "16.0 EiB");
  }
}

}  // namespace ada

// Numbers in CsvFile: texts that read back, and that no reader takes for integers.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "io/text.h"
#include "telemetry/csv.h"
#include "telemetry/csv_reader.h"
#include "temp_folder.h"

using ada::telemetry::CsvFile;
using ada::telemetry::CsvReader;
using ada::telemetry::CsvRow;
using ada::testing::TempFolder;

TEST_SUITE("cpu") {
  TEST_CASE("numbers: scales in full, others with nine digits") {
    const TempFolder folder;
    const std::vector<double> scales = {1,
                                        0.1f,
                                        128,
                                        65536,
                                        1e-45f,
                                        3e38f,
                                        std::sqrt(2),
                                        0x1p-126,
                                        1.0 / 3,
                                        0x1p60,
                                        1.00069338746258,
                                        5e-324};
    {
      CsvFile file(folder / "a.csv", "scale,number,empty");
      for (const double scale : scales) file.Add(CsvRow().Scale(scale).Number(scale).Empty());
      file.Add(CsvRow().Scale(INFINITY).Number(-INFINITY).Empty());
      file.Add(CsvRow().Scale(NAN).Number(NAN).Empty());
    }
    CsvReader reader(folder / "a.csv");
    for (const double scale : scales) {
      REQUIRE(reader.Next());
      CHECK(std::strtod(reader.Text(0).c_str(), nullptr) == scale);
      char nine[64];
      std::snprintf(nine, sizeof nine, "%.9g", scale);
      CHECK(std::strtod(reader.Text(1).c_str(), nullptr) == std::strtod(nine, nullptr));
      CHECK(ada::telemetry::AsLogged(scale) == std::strtod(nine, nullptr));
    }
    REQUIRE(reader.Next());
    CHECK(reader.Text(0) == "inf");
    CHECK(reader.Text(1) == "-inf");
    CHECK(reader.Number(0) == INFINITY);
    CHECK(reader.Number(1) == -INFINITY);
    REQUIRE(reader.Next());
    CHECK(reader.Text(0) == "");
    CHECK(reader.Text(1) == "nan");
    CHECK(std::isnan(reader.Number(1)));
  }

  TEST_CASE("whole numbers of real columns have a point; integers, and texts of numbers, do not") {
    struct Case {
      double value;
      const char *scale, *number, *exact, *digits;
    };
    const std::vector<Case> cases = {
        {65536, "65536.0", "65536.0", "65536", "65536"},
        {0, "0.0", "0.0", "0", "0"},
        {-0.0, "-0.0", "-0.0", "-0", "-0"},
        {-3, "-3.0", "-3.0", "-3", "-3"},
        {0.25, "0.25", "0.25", "0.25", "0.25"},
        {1e20, "1e+20", "1e+20", "1e+20", "1e+20"},
        {0x1p40, "1099511627776.0", "1.09951163e+12", "1099511627776", "1.09951163e+12"},
        {999999999.75, "999999999.75", "1e+09", "999999999.75", "1e+09"},
        {1.00000000001, "1.00000000001", "1.0", "1.00000000001", "1"},
        {INFINITY, "inf", "inf", "inf", "inf"},
        {-INFINITY, "-inf", "-inf", "-inf", "-inf"},
        {NAN, "", "nan", "nan", "nan"},
        {-NAN, "", "nan", "nan", "nan"},
    };
    const TempFolder folder;
    std::string expected = "scale,number,integer\n";
    {
      CsvFile file(folder / "a.csv", "scale,number,integer");
      for (const Case& c : cases) {
        file.Add(CsvRow().Scale(c.value).Number(c.value).Integer(-7));
        expected += c.scale + ("," + std::string(c.number)) + ",-7\n";
        CHECK(CsvRow().Scale(c.value).text() == c.scale);
        CHECK(CsvRow().Number(c.value).text() == c.number);
        CHECK(ada::ShortestText(c.value) == c.exact);
        CHECK(ada::NineDigits(c.value) == c.digits);
      }
    }
    CHECK(folder.Read("a.csv") == expected);
  }
}

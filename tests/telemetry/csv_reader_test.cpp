// CsvReader: what RFC 4180 allows, and a message with file and line for what it does not.
#include "telemetry/csv_reader.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "temp_folder.h"

using ada::telemetry::CsvReader;
using ada::testing::TempFolder;

namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows ReadAll(const std::string& path) {
  CsvReader reader(path);
  Rows rows;
  while (reader.Next()) {
    rows.emplace_back();
    for (std::size_t i = 0; i < reader.header().size(); ++i) rows.back().push_back(reader.Text(i));
  }
  return rows;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("what is read") {
    struct Case {
      const char* text;
      Rows rows;
    };
    const std::vector<Case> cases = {
        {"a,b\n", {}},
        {"a,b\n1,2\n,\n", {{"1", "2"}, {"", ""}}},
        {"a,b\r\n1,2\r\n", {{"1", "2"}}},
        {"a,b\n\"1,5\",\"x\"\"y\"\n", {{"1,5", "x\"y"}}},
        {"a,b\n\"two\nlines\",\"\"\n3,4\n", {{"two\nlines", ""}, {"3", "4"}}},
        {"a,b\n\"cr\r\nlf\",z\r\n", {{"cr\r\nlf", "z"}}},
        {"a\n\n1\n", {{""}, {"1"}}},
    };
    for (const Case& c : cases) {
      CAPTURE(c.text);
      const TempFolder folder;
      folder.Write("a.csv", c.text);
      CHECK(ReadAll(folder / "a.csv") == c.rows);
    }
  }

  TEST_CASE("what is refused, with file and line") {
    struct Case {
      const char* text;
      const char* message;
    };
    const std::vector<Case> cases = {
        {"", ":1: empty file, expected a header line"},
        {"a,b", ":1: the last row has no line end: it was cut off"},
        {"a,b\n1,2\n3,4", ":3: the last row has no line end: it was cut off"},
        {"a,b\n1,2\n3,", ":3: the last row has no line end: it was cut off"},
        {"a,b\n1,2\n3\n", ":3: 1 fields, expected the header's 2"},
        {"a,b\n1,2,3\n", ":2: 3 fields, expected the header's 2"},
        {"a,b\n\"x\ny\",2\n\n", ":4: 1 fields, expected the header's 2"},
        {"a,b\n1,x\"y\"\n", ":2: a quote within an unquoted field"},
        {"a,b\n1,\"x\"y\n", ":2: text behind a closing quote; a comma or line end was expected"},
        {"a,b\n1,\"x\n3,4\n", ":2: a quoted field has no closing quote"},
    };
    for (const Case& c : cases) {
      CAPTURE(c.text);
      const TempFolder folder;
      folder.Write("a.csv", c.text);
      const std::string message = folder / "a.csv" + c.message;
      CHECK_THROWS_WITH_AS(ReadAll(folder / "a.csv"), message.c_str(), ada::DataError);
    }
    const TempFolder folder;
    const std::string message = folder / "no.csv" + ": No such file or directory";
    CHECK_THROWS_WITH_AS(CsvReader(folder / "no.csv"), message.c_str(), ada::DataError);
  }

  TEST_CASE("fields as numbers") {
    const TempFolder folder;
    folder.Write("a.csv", "n,x\n12,1e-3\n1.5,one\n,\n");
    CsvReader reader(folder / "a.csv");
    const std::size_t n = reader.Column("n"), x = reader.Column("x");
    REQUIRE(reader.Next());
    CHECK(reader.Integer(n) == 12);
    CHECK(reader.Number(x) == 1e-3);
    CHECK(reader.line() == 2);
    CHECK(reader.offset() == 12);
    REQUIRE(reader.Next());
    const std::string path = folder / "a.csv";
    CHECK_THROWS_WITH_AS(reader.Integer(n),
                         (path + ":3: column n is '1.5', expected an integer").c_str(),
                         ada::DataError);
    CHECK_THROWS_WITH_AS(reader.Number(x),
                         (path + ":3: column x is 'one', expected a number").c_str(),
                         ada::DataError);
    REQUIRE(reader.Next());
    CHECK_THROWS_WITH_AS(reader.Number(x), (path + ":4: column x is '', expected a number").c_str(),
                         ada::DataError);
    CHECK_THROWS_WITH_AS(reader.Column("y"), (path + ":1: no column 'y'; the file has n,x").c_str(),
                         ada::DataError);
  }
}

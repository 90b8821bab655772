// CsvReader: what RFC 4180 allows, and a message with file and line for what it does not.
#include "telemetry/csv_reader.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "error.h"
#include "temp_folder.h"

using ada::telemetry::CsvReader;
using ada::telemetry::LastRow;
using ada::testing::TempFolder;

namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows ReadAll(const std::string& path, LastRow last = LastRow::kMustBeWhole) {
  CsvReader reader(path, last);
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
        {"# a comment, \"\n#another\na,b\n#1,2\n", {{"#1", "2"}}},
        {"\xEF\xBB\xBF"
         "a,b\n1,2\n",
         {{"1", "2"}}},
        {"\xEF\xBB\xBF# a comment\na,b\n1,2\n", {{"1", "2"}}},
    };
    for (const Case& c : cases) {
      CAPTURE(c.text);
      const TempFolder folder;
      folder.Write("a.csv", c.text);
      CHECK(ReadAll(folder / "a.csv") == c.rows);
    }
  }

  TEST_CASE("a first line that is no header; a byte order mark, whole or in part") {
    const TempFolder folder;
    folder.Write("a.csv", "7,8\n9,x\n");
    CsvReader reader(folder / "a.csv");
    reader.TakeHeaderAsRow({"a", "b"});
    REQUIRE(reader.Next());
    CHECK(reader.Integer(reader.Column("b")) == 8);
    CHECK(reader.line() == 1);
    REQUIRE(reader.Next());
    CHECK(reader.line() == 2);
    CHECK_THROWS_WITH(reader.Integer(reader.Column("b")),
                      (folder / "a.csv:2: column b is 'x', expected an integer").c_str());
    CHECK_FALSE(reader.Next());
    folder.Write("b.csv", "\xEF\xBB\xBF");
    CHECK(CsvReader(folder / "b.csv", LastRow::kMayBeTorn).header().empty());
    folder.Write("d.csv", "a,,\n1,,\n");  // columns without a name may be several
    CHECK(CsvReader(folder / "d.csv").header().size() == 3);
  }

  TEST_CASE("what is refused, with file and line") {
    struct Case {
      const char* text;
      const char* message;
    };
    const std::vector<Case> cases = {
        {"", ":1: empty file, expected a header line"},
        {"# made by hand\na,b,a\n", ":2: two columns are called 'a'; expected each name once"},
        {",a,,b,b\n", ":1: two columns are called 'b'; expected each name once"},
        {"a,b", ":1: the last row has no line end: it was cut off"},
        {"a,b\n1,2\n3,4", ":3: the last row has no line end: it was cut off"},
        {"a,b\n1,2\n3,", ":3: the last row has no line end: it was cut off"},
        {"a,b\n1,2\n3\n", ":3: 1 fields, expected the header's 2"},
        {"a,b\n1,2,3\n", ":2: 3 fields, expected the header's 2"},
        {"a,b\n\"x\ny\",2\n\n", ":4: 1 fields, expected the header's 2"},
        {"a,b\n1,x\"y\"\n", ":2: a quote within an unquoted field"},
        {"a,b\n1,\"x\"y\n", ":2: text after a closing quote; a comma or line end was expected"},
        {"a,b\n1,\"x\n3,4\n", ":2: a quoted field has no closing quote"},
        {"a,b\n1,\xC4nt\n",
         ":2: the byte '\\xc4' is no UTF-8; expected UTF-8: save the file in that encoding"},
        {"\xEF\xBB\n1\n",
         ":1: the byte '\\xef' is no UTF-8; expected UTF-8: save the file in that encoding"},
        {"\xFF\xFE,\n",
         ":1: the file is UTF-16, as its byte order mark says; expected UTF-8: save the file in "
         "that "
         "encoding"},
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
    const std::string folders = folder.path() + ": it is a folder, not a regular file";
    CHECK_THROWS_WITH_AS(CsvReader(folder.path()), folders.c_str(), ada::DataError);
  }

  TEST_CASE("cut off at any byte, a file's whole rows are read and nothing else") {
    const std::string text = "# c\na,b\r\n1,\"x, \"\"y\"\"\"\r\n22,\"two\nlines\"\n,\"\"\n";
    const Rows rows = {{"1", "x, \"y\""}, {"22", "two\nlines"}, {"", ""}};
    // Ends of comment, header and rows, counted by hand.
    const std::vector<std::size_t> ends = {4, 9, 23, 38, 42};
    REQUIRE(text.size() == ends.back());
    for (std::size_t size = 0; size <= text.size(); ++size) {
      CAPTURE(size);
      std::size_t whole = 0;
      while (whole < ends.size() && ends[whole] <= size) ++whole;
      const TempFolder folder;
      folder.Write("a.csv", text.substr(0, size));
      CsvReader reader(folder / "a.csv", LastRow::kMayBeTorn);
      CHECK(reader.header() ==
            (whole < 2 ? std::vector<std::string>() : std::vector<std::string>{"a", "b"}));
      for (std::size_t row = 0; row + 2 < whole; ++row) {
        REQUIRE(reader.Next());
        CHECK(std::vector<std::string>{reader.Text(0), reader.Text(1)} == rows[row]);
      }
      CHECK_FALSE(reader.Next());
      CHECK_FALSE(reader.Next());
      if (whole >= 2) CHECK(reader.offset() == static_cast<std::int64_t>(ends[whole - 1]));
      if (whole < 2) CHECK_THROWS_AS(reader.Column("a"), ada::DataError);
    }
  }

  TEST_CASE("where the last row may be torn, a bad row before it stays an error") {
    const std::vector<std::pair<const char*, const char*>> cases = {
        {"a,b\n1\n3,4\n", ":2: 1 fields, expected the header's 2"},
        {"a,b\n1\n3,", ":2: 1 fields, expected the header's 2"},
        {"a,b\n1,\"x\"y\n3,4\n",
         ":2: text after a closing quote; a comma or line end was expected"},
        {"a,b\n1,x\"\n3,4", ":2: a quote within an unquoted field"},
    };
    for (const auto& [text, message] : cases) {
      CAPTURE(text);
      const TempFolder folder;
      folder.Write("a.csv", text);
      CHECK_THROWS_WITH_AS(ReadAll(folder / "a.csv", LastRow::kMayBeTorn),
                           (folder / "a.csv" + message).c_str(), ada::DataError);
    }
  }

  TEST_CASE("a last row that may lack its line end") {
    const TempFolder folder;
    const auto read = [&](const char* text) {
      folder.Write("a.csv", text);
      return ReadAll(folder / "a.csv", LastRow::kMayLackLineEnd);
    };
    CHECK(read("a,b\n1,2\n3,4") == Rows{{"1", "2"}, {"3", "4"}});
    CHECK(read("a,b\n3,\"4\"") == Rows{{"3", "4"}});
    CHECK(read("a,b\n3,") == Rows{{"3", ""}});
    CHECK(read("a,b").empty());
    CHECK(read("").empty());
    const std::string path = folder / "a.csv";
    CHECK_THROWS_WITH_AS(read("a,b\n1,2\n3"),
                         (path + ":3: 1 fields, expected the header's 2").c_str(), ada::DataError);
    CHECK_THROWS_WITH_AS(read("a,b\n3,\"4"),
                         (path + ":2: a quoted field has no closing quote").c_str(),
                         ada::DataError);
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
    folder.Write("b.csv", "# c\n# d\nn\n");
    CHECK_THROWS_WITH_AS(CsvReader(folder / "b.csv").Column("y"),
                         (folder / "b.csv" + ":3: no column 'y'; the file has n").c_str(),
                         ada::DataError);
  }

  TEST_CASE("integers beyond 10^12, whose sums could overflow, are refused") {
    const TempFolder folder;
    folder.Write("a.csv", "n\n1000000000000\n1000000000001\n-9223372036854775808\n");
    CsvReader reader(folder / "a.csv");
    REQUIRE(reader.Next());
    CHECK(reader.Integer(0) == CsvReader::kMostInteger);
    for (const char* text :
         {":3: column n is '1000000000001'", ":4: column n is '-9223372036854775808'"}) {
      REQUIRE(reader.Next());
      CHECK_THROWS_WITH_AS(
          reader.Integer(0),
          (folder / "a.csv" + text + ", expected an integer of at most 10^12").c_str(),
          ada::DataError);
    }
  }

  TEST_CASE("what a message quotes of a file is short and visible") {
    const TempFolder folder;
    folder.Write("a.csv", "n\n\x1b[2J" + std::string(1000, 'z') + "\n");
    CsvReader reader(folder / "a.csv");
    REQUIRE(reader.Next());
    const std::string message = folder / "a.csv" + ":2: column n is '\\x1b[2J" +
                                std::string(76, 'z') + "...', expected an integer";
    CHECK_THROWS_WITH_AS(reader.Integer(0), message.c_str(), ada::DataError);
    std::string header;
    for (int i = 0; i < 4000; ++i) header += "c" + std::to_string(i) + ",";
    folder.Write("b.csv", header + "end\n");
    try {
      CsvReader(folder / "b.csv").Column("y");
      FAIL("nothing was thrown");
    } catch (const ada::DataError& e) {
      CHECK(std::string(e.what()).size() < 1200 + folder.path().size());
    }
  }

  TEST_CASE("rows and comments have a bound: a file of gigabytes without one is told at once") {
    const TempFolder folder;
    const std::string path = folder / "a.csv";
    const char* why =
        ": more than 1 MiB without the end of a row (an open quote, or no CSV file at all); "
        "expected "
        "rows of some hundred bytes";
    const std::string longest(1 << 20, 'z');
    const auto refused = [&](const std::string& text, int line) {
      folder.Write("a.csv", text);
      for (const LastRow last :
           {LastRow::kMustBeWhole, LastRow::kMayBeTorn, LastRow::kMayLackLineEnd})
        CHECK_THROWS_WITH_AS(ReadAll(path, last), (path + ":" + std::to_string(line) + why).c_str(),
                             ada::DataError);
    };
    refused(longest + "z", 1);
    refused("#" + longest + "\na\n", 1);
    refused("a\n1\n" + longest + "\n", 3);
    refused("a,b\n1,\"" + longest + "\n" + longest + "\n", 2);
    folder.Write("a.csv", "a\n" + longest.substr(1) + "\n");
    CHECK(ReadAll(path).size() == 1);

    // A hole of 3 GB is read as zeros.
    folder.Write("a.csv", "a\n1\n");
    std::filesystem::resize_file(path, 3'000'000'000);
    CHECK_THROWS_WITH_AS(ReadAll(path), (path + ":3" + why).c_str(), ada::DataError);

    std::string header = "a";
    for (int i = 0; i < 4096; ++i) header += ",a";
    folder.Write("a.csv", header + "\n");
    CHECK_THROWS_WITH_AS(ReadAll(path), (path + ":1: 4097 columns, expected at most 4096").c_str(),
                         ada::DataError);
  }
}

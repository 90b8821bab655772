// CsvFollower: files that grow, are torn, cut, replaced or deleted while they are read.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "telemetry/csv_reader.h"
#include "temp_folder.h"

using ada::telemetry::CsvFollower;
using ada::telemetry::CsvReader;
using ada::testing::TempFolder;

namespace {

using Rows = std::vector<std::vector<std::string>>;

// The fields of the new rows, in the order of the names of their columns.
Rows Read(CsvFollower& file) {
  Rows rows;
  file.Read([&](CsvReader& reader) {
    while (reader.Next()) {
      rows.push_back({reader.Text(reader.Column("a")), reader.Text(reader.Column("b"))});
    }
  });
  return rows;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("records of RFC 4180; the last is left where it is not whole") {
    const TempFolder folder;
    CsvFollower file(folder / "t.csv");
    folder.Write("t.csv", "a,b\n\"x, \"\"y\"\"\nz\",\n1,2");
    CHECK(Read(file) == Rows{{"x, \"y\"\nz", ""}});
    folder.Write("t.csv", "a,b\n\"x, \"\"y\"\"\nz\",\n1,2\n\"open\n");
    CHECK(Read(file) == Rows{{"1", "2"}});
    CHECK(Read(file).empty());
    folder.Write("t.csv", "a,b\n\"x, \"\"y\"\"\nz\",\n1,2\n\"open\n\",3\n");
    CHECK(Read(file) == Rows{{"open\n", "3"}});
  }

  TEST_CASE("rows that are not as they should be are passed over") {
    const TempFolder folder;
    CsvFollower file(folder / "t.csv");
    folder.Write("t.csv", "a,b\n1\n1,2,3\n\"x\"y,1\n1,x\"y\n4,5\n");
    CHECK(Read(file) == Rows{{"4", "5"}});
  }

  TEST_CASE("a header that begins with a quote, or is no header at all") {
    for (const char* header : {"\"", "\"\"", "\"a,b\n\"", "\"a\"b", "\"a\",b", "a\",b", ",", ""}) {
      CAPTURE(header);
      const TempFolder folder;
      CsvFollower file(folder / "t.csv");
      for (const char* rows : {"", "\n", "\n1,2\n", "\n1,2\n3,4\n5"}) {
        folder.Write("t.csv", std::string(header) + rows);
        for (int look = 0; look < 2; ++look) {
          if (file.Changed()) file.Restart();
          file.Read([](CsvReader& reader) {
            while (reader.Next()) CHECK(reader.Text(reader.header().size() - 1).size() < 3);
          });
        }
      }
    }
  }

  TEST_CASE("a row that never ends is passed over, in little memory, and what follows is read") {
    const TempFolder folder;
    CsvFollower file(folder / "t.csv");
    folder.Write("t.csv", "a,b\n1,2\n" + std::string(3 << 20, 'z'));
    CHECK(Read(file) == Rows{{"1", "2"}});
    CHECK_FALSE(file.Changed());
    std::string text = "a,b\n1,2\n" + std::string(3 << 20, 'z') + "zz\n3,4\n\"";
    folder.Write("t.csv", text);
    CHECK(Read(file) == Rows{{"3", "4"}});
    text += std::string(2 << 20, 'y') + "\n5,6\n";  // the quote stays open
    folder.Write("t.csv", text);
    CHECK(Read(file) == Rows{{"5", "6"}});
  }

  TEST_CASE("every byte of a file that grows byte by byte") {
    const std::string text = "a,b\r\n1,\"x, \"\"y\"\"\"\r\n22,\"two\nlines\"\n,\"\"\n";
    const TempFolder folder;
    CsvFollower file(folder / "t.csv");
    Rows rows;
    for (std::size_t size = 0; size <= text.size(); ++size) {
      folder.Write("t.csv", text.substr(0, size));
      CHECK_FALSE(file.Changed());
      for (const auto& row : Read(file)) rows.push_back(row);
    }
    CHECK(rows == Rows{{"1", "x, \"y\""}, {"22", "two\nlines"}, {"", ""}});
  }

  TEST_CASE("rows longer than what is read at once") {
    const TempFolder folder;
    CsvFollower file(folder / "t.csv");
    const std::string longest(300'000, 'z');
    std::string text = "a,b\n";
    Rows rows;
    for (const std::size_t size : {1u, 70'000u, 3u, 300'000u, 2u}) {
      text += "1,\"" + longest.substr(0, size) + "\"\n";
      rows.push_back({"1", longest.substr(0, size)});
    }
    folder.Write("t.csv", text);
    CHECK((Read(file) == rows));
    CHECK_FALSE(file.Changed());
  }

  TEST_CASE("a file that grows is read once") {
    const TempFolder folder;
    CsvFollower file(folder / "t.csv");
    CHECK(Read(file).empty());
    folder.Write("t.csv", "a,");
    CHECK(Read(file).empty());
    folder.Write("t.csv", "a,b\n1,2\n3");
    CHECK(Read(file) == Rows{{"1", "2"}});
    CHECK_FALSE(file.Changed());
    folder.Write("t.csv", "a,b\n1,2\n3,4\n5,6\n");
    CHECK_FALSE(file.Changed());
    CHECK(Read(file) == Rows{{"3", "4"}, {"5", "6"}});
    CHECK(Read(file).empty());
  }

  TEST_CASE("a file that was cut, replaced or deleted is read anew") {
    const TempFolder folder;
    CsvFollower file(folder / "t.csv");
    folder.Write("t.csv", "a,b\n1,2\n3,4\n");
    Read(file);
    SUBCASE("cut") { folder.Write("t.csv", "a,b\n1,2\n"); }
    SUBCASE("cut, and longer again, with other rows") {
      folder.Write("t.csv", "a,b\n1,2\n7,8\n9,9\n");
    }
    SUBCASE("deleted") { std::filesystem::remove(folder / "t.csv"); }
    CHECK(file.Changed());
    file.Restart();
    folder.Write("t.csv", "b,a\n1,2\n");
    CHECK(Read(file) == Rows{{"2", "1"}});
    CHECK_FALSE(file.Changed());
  }

  TEST_CASE("cut and written again with the same rows, as a resume does: nothing is read twice") {
    const TempFolder folder;
    CsvFollower file(folder / "t.csv");
    folder.Write("t.csv", "a,b\n1,2\n3,4\n");
    Read(file);
    folder.Write("t.csv", "a,b\n1,2\n3,4\n5,6\n");
    CHECK_FALSE(file.Changed());
    CHECK(Read(file) == Rows{{"5", "6"}});
  }

  TEST_CASE("of a long file only the end") {
    const TempFolder folder;
    std::string text = "a,b\n";
    for (int i = 1000; i < 2000; ++i) text += std::to_string(i) + ",x\n";
    folder.Write("t.csv", text);
    CsvFollower file(folder / "t.csv", 30);
    const Rows rows = Read(file);
    REQUIRE(rows.size() == 4);
    CHECK(rows.front()[0] == "1996");
    CHECK(rows.back()[0] == "1999");
    folder.Write("t.csv", text + "2000,x\n");
    CHECK_FALSE(file.Changed());
    CHECK(Read(file) == Rows{{"2000", "x"}});
  }
}

// CsvFile: quoting, cutting on a resume, full disks.
#include "telemetry/csv.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>
#include <vector>

#include "error.h"
#include "telemetry/csv_reader.h"
#include "temp_folder.h"

using ada::telemetry::CsvField;
using ada::telemetry::CsvFile;
using ada::telemetry::CsvReader;
using ada::telemetry::CsvRow;
using ada::testing::TempFolder;

namespace {

// What `body` throws as E, or "" (and a failed check) where it throws nothing.
template <class E, class Body>
std::string Message(Body body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  }
  FAIL_CHECK("nothing was thrown");
  return "";
}

bool Holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// While it lives no file grows beyond `bytes` (errno EFBIG, as a full disk's ENOSPC).
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit lower = {bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &lower);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit old_ = {};
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("fields are quoted as RFC 4180 asks") {
    struct Case {
      std::string field, text;
    };
    const std::vector<Case> cases = {
        {"conv1", "conv1"},
        {"", ""},
        {"a,b", "\"a,b\""},
        {"say \"no\"", "\"say \"\"no\"\"\""},
        {"two\nlines", "\"two\nlines\""},
        {"cr\r", "\"cr\r\""},
        {" blank ", " blank "},
        {"{exponent: 4, mantissa: 3}", "\"{exponent: 4, mantissa: 3}\""},
    };
    for (const Case& c : cases) {
      const TempFolder folder;
      {
        CsvFile file(folder / "a.csv", "x,y");
        file.Add(CsvRow().Integer(1).Text(c.field));
      }
      CHECK(folder.Read("a.csv") == "x,y\n1," + c.text + "\n");
      CsvReader reader(folder / "a.csv");
      REQUIRE(reader.Next());
      CHECK(reader.Text(1) == c.field);
      CHECK_FALSE(reader.Next());
    }
  }

  TEST_CASE("bytes that are no UTF-8 are written as text") {
    CHECK(CsvField("caf\xE9, \xC3\x84nt") == "\"caf\\xe9, \xC3\x84nt\"");
    CHECK(CsvField("\xC3\x84nt\t") == "\xC3\x84nt\t");
  }

  TEST_CASE("a row has as many fields as the header") {
    const TempFolder folder;
    CsvFile file(folder / "a.csv", "x,y");
    CHECK_THROWS_AS(file.Add(CsvRow().Integer(1)), ada::InternalError);
    file.Add(CsvRow().Integer(1).Integer(2));
    CHECK_THROWS_AS(file.Add(CsvRow().Integer(1).Integer(2).Integer(3)), ada::InternalError);
    file.Flush();
    CHECK(folder.Read("a.csv") == "x,y\n1,2\n");
  }

  TEST_CASE("rows reach the file whole and in order, across pages") {
    const TempFolder folder;
    CsvFile file(folder / "a.csv", "x,y");
    CHECK(folder.Read("a.csv") == "x,y\n");
    std::string expected = "x,y\n";
    for (int i = 0; i < 3000; ++i) {
      const std::string text(i % 7 == 0 ? 5000 : i % 50, 'z');
      file.Add(CsvRow().Integer(i).Text(text));
      expected += std::to_string(i) + "," + text + "\n";
      if (i % 100 == 0) {
        file.Flush();
        CHECK((folder.Read("a.csv") == expected));
      }
    }
    CHECK(file.Sync() == static_cast<std::int64_t>(expected.size()));
    CHECK((folder.Read("a.csv") == expected));
  }

  TEST_CASE("a resume cuts the file and goes on") {
    const TempFolder folder;
    std::int64_t length = 0;
    {
      CsvFile file(folder / "a.csv", "x,y");
      file.Add(CsvRow().Integer(1).Integer(2));
      length = file.Sync();
      file.Add(CsvRow().Integer(3).Integer(4));
    }
    CHECK(length == 8);
    {
      CsvFile file(folder / "a.csv", "x,y", length);
      CHECK(folder.Read("a.csv") == "x,y\n1,2\n");
      file.Add(CsvRow().Integer(5).Integer(6));
      CHECK(file.Sync() == 12);
    }
    CHECK(folder.Read("a.csv") == "x,y\n1,2\n5,6\n");
    { CsvFile file(folder / "a.csv", "x,y", 0); }
    CHECK(folder.Read("a.csv") == "x,y\n");
    { CsvFile file(folder / "a.csv", "z"); }
    CHECK(folder.Read("a.csv") == "z\n");
  }

  TEST_CASE("a resume refuses a file that is not the one of the checkpoint") {
    struct Case {
      const char* text;
      std::int64_t keep;
      const char* message;
    };
    const std::vector<Case> cases = {
        {"x,y\n1,2\n", 12,
         ": 8 bytes, but the checkpoint goes on from 12 bytes of it: the file was"},
        {"x,z\n1,2\n", 8, ": the first line is not 'x,y', the columns of this version"},
        {"", 4, ": the first line is not 'x,y'"},
        {"x,y\n1,2\n", 7, ": no row ends at byte 7, where the checkpoint goes on"},
    };
    for (const Case& c : cases) {
      const TempFolder folder;
      folder.Write("a.csv", c.text);
      const std::string message =
          Message<ada::DataError>([&] { CsvFile file(folder / "a.csv", "x,y", c.keep); });
      CHECK(Holds(message, folder / "a.csv" + c.message));
      CHECK(Holds(message, "--overwrite"));
      CHECK(folder.Read("a.csv") == c.text);
    }
    const TempFolder folder;
    const std::string message =
        Message<ada::DataError>([&] { CsvFile file(folder / "a.csv", "x,y", 8); });
    CHECK(Holds(message, "a.csv: missing, but the checkpoint goes on from 8 bytes"));
    CHECK_FALSE(folder.Has("a.csv"));
  }

  TEST_CASE("what links lead to stays as it is: the file gets a copy of its own") {
    const std::string text = "x,y\n1,2\n3,4\n";
    for (const bool symbolic : {true, false}) {
      for (const std::int64_t keep : {-1, 8}) {
        CAPTURE(symbolic);
        CAPTURE(keep);
        const TempFolder folder;
        folder.Write("other/a.csv", text);
        if (symbolic)
          std::filesystem::create_symlink("other/a.csv", folder / "a.csv");
        else
          std::filesystem::create_hard_link(folder / "other/a.csv", folder / "a.csv");
        {
          CsvFile file(folder / "a.csv", "x,y", keep);
          file.Add(CsvRow().Integer(5).Integer(6));
          file.Flush();
        }
        CHECK(folder.Read("other/a.csv") == text);
        CHECK(folder.Read("a.csv") == (keep < 0 ? "x,y\n5,6\n" : "x,y\n1,2\n5,6\n"));
        CHECK_FALSE(std::filesystem::is_symlink(folder / "a.csv"));
      }
    }
    const TempFolder folder;  // a link that leads nowhere creates nothing there
    std::filesystem::create_symlink("other.csv", folder / "a.csv");
    { CsvFile file(folder / "a.csv", "x,y"); }
    CHECK_FALSE(folder.Has("other.csv"));
    CHECK(folder.Read("a.csv") == "x,y\n");
  }

  TEST_CASE("a disk without room is an OutputError that names file and reason") {
    const TempFolder folder;
    std::filesystem::create_symlink("/dev/full", folder / "full.csv");
    const std::string message =
        Message<ada::OutputError>([&] { CsvFile file(folder / "full.csv", "x,y"); });
    CHECK(message == folder / "full.csv" +
                         ": cannot be written: No space left on device; make room, then go on with "
                         "--resume from the last checkpoint");
  }

  TEST_CASE("a folder that is missing, a folder in the file's place") {
    const TempFolder folder;
    CHECK(Message<ada::OutputError>([&] { CsvFile file(folder / "no/a.csv", "x"); }) ==
          folder / "no/a.csv" + ": cannot be created: No such file or directory");
    folder.Write("d/file", "");
    CHECK(Message<ada::OutputError>([&] { CsvFile file(folder / "d", "x"); }) ==
          folder / "d" + ": cannot be created: Is a directory");
  }

  TEST_CASE("what a full disk took of a row is cut off; the rows are written when there is room") {
    const TempFolder folder;
    CsvFile file(folder / "a.csv", "x,y");
    std::string expected = "x,y\n";
    const std::string text(40, 'z');
    for (int i = 100; i < 400; ++i) {
      file.Add(CsvRow().Integer(i).Text(text));
      expected += std::to_string(i) + "," + text + "\n";
    }
    {
      const FileSizeLimit limit(5000);
      const std::string message = Message<ada::OutputError>([&] { file.Flush(); });
      CHECK(Holds(message, folder / "a.csv" + ": cannot be written: File too large; make room"));
      const std::string written = folder.Read("a.csv");
      CHECK(written.size() > 4000);
      CHECK(written.back() == '\n');
      CHECK(expected.starts_with(written));
    }
    CHECK(file.Sync() == static_cast<std::int64_t>(expected.size()));
    CHECK((folder.Read("a.csv") == expected));
  }
}

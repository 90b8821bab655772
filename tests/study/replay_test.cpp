// `replay`: all recorded traces of global policies through the files, numbering and columns, and
// the message for each way in which a trace can be wrong.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "error.h"
#include "golden_table.h"
#include "scaling/policies/policies.h"
#include "scaling/policies/presets.h"
#include "study/commands.h"
#include "temp_folder.h"

namespace ada::study {
namespace {

using scaling::DynamicParameters;
using testing::TempFolder;

std::unique_ptr<scaling::Policy> Preset(const char* name, double start, std::int64_t window) {
  DynamicParameters p = scaling::FindDynamicPreset(name).parameters;
  p.init_scale = start;
  p.growth_interval = window;
  return scaling::MakeDynamic(p);
}

std::string Run(scaling::Policy& policy, std::int64_t retries, const std::string& path) {
  std::ostringstream out, notes;
  ReplayOptions options;
  options.trace = path;
  options.max_retries = retries;
  Replay(policy, options, out, notes);
  return out.str();
}

const std::string kHeader = "attempt,step,overflow,scale,skipped,scale_after,error\n";
std::string Golden(const std::string& name) {
  return std::string(ADA_SOURCE_DIR) + "/tests/golden/dynamic/" + name;
}

// Checks replay's rows against the recording's columns.
void CompareRows(const std::string& text, const testing::GoldenTable& recorded) {
  std::istringstream lines(text);
  std::string line;
  REQUIRE(std::getline(lines, line));
  REQUIRE(line + "\n" == kHeader);
  for (const testing::GoldenRow& row : recorded.rows) {
    CAPTURE(row.at("attempt"));
    REQUIRE(std::getline(lines, line));
    const std::vector<std::string> fields = testing::SplitCsvLine(line);
    REQUIRE(fields.size() == 7);
    REQUIRE(fields[0] == row.at("attempt"));
    REQUIRE(fields[1] == row.at("step"));
    REQUIRE(fields[2] == row.at("overflow"));
    REQUIRE(std::stod(fields[3]) == testing::Number(row, "scale"));
    REQUIRE(fields[4] == row.at("skipped"));
    REQUIRE(std::stod(fields[5]) == testing::Number(row, "scale_after"));
    REQUIRE(fields[6].empty() == row.at("error").empty());
  }
  REQUIRE_FALSE(std::getline(lines, line));
}

TEST_SUITE("cpu") {
  TEST_CASE("recorded traces with the systems' own defaults, but for start and window") {
    struct Row {
      std::string trace;
      const char* preset;
      double start;
      std::int64_t window;
    };
    const Row rows[] = {{"pytorch/w5-p0.2.csv", "pytorch", 65536, 5},
                        {"nnabla/low-all-floor.csv", "nnabla", 8, 5},
                        {"nnabla/w7-burst5.csv", "nnabla", 8, 7},
                        {"chainer/w5-p0.2.csv", "chainer", 1, 5},
                        {"mxnet/w7-burst5.csv", "mxnet", 65536, 7},
                        {"keras/w2-none-ceiling.csv", "keras", 32768, 2},
                        {"cerebras/w2000-rare.csv", "cerebras", 32768, 2000},
                        {"deepspeed/w5-p0.2.csv", "deepspeed", 65536, 5},
                        {"fairseq/low-all-floor.csv", "fairseq", 8, 5},
                        {"mindspore/low-all-floor.csv", "mindspore", 8, 5}};
    for (const Row& row : rows) {
      CAPTURE(row.trace);
      const auto policy = Preset(row.preset, row.start, row.window);
      const std::int64_t retries = scaling::FindDynamicPreset(row.preset).max_retries;
      CompareRows(Run(*policy, retries, Golden(row.trace)),
                  testing::ReadGolden("dynamic/" + row.trace));
    }
  }

  TEST_CASE("the last row of a run that the policy ends") {
    const auto policy = Preset("deepspeed", 8, 5);
    const std::string text = Run(*policy, 0, Golden("deepspeed/low-all-floor.csv"));
    const std::string end = "4,4,1,1,1,1,\"gradients overflow at the smallest scale, 1 (";
    REQUIRE(text.find(end) != std::string::npos);
    CHECK(text.find('\n', text.find(end)) + 1 == text.size());
  }

  TEST_CASE("numbering, comments, extra columns, quotes, line ends") {
    struct Row {
      std::string trace, rows;
    };
    const Row rows[] = {
        {"overflow\n0\n1\n", "1,1,0,8,0,8,\n2,2,1,8,1,4,\n"},
        {"overflow\n0\n1", "1,1,0,8,0,8,\n2,2,1,8,1,4,\n"},
        {"overflow\r\n1\r\n", "1,1,1,8,1,4,\n"},
        {"# a, comment \"\n# another\nstep,overflow\n0,0\n1,1\n", "0,0,0,8,0,8,\n1,1,1,8,1,4,\n"},
        {"attempt,overflow\n7,0\n", "7,7,0,8,0,8,\n"},
        {"attempt,step,overflow\n7,3,1\n9,9,1\n", "7,3,1,8,1,4,\n8,4,1,4,1,2,\n"},
        {"note,overflow\n\"a, \"\"b\"\"\",1\n", "1,1,1,8,1,4,\n"},
        {"overflow\n", ""},
        {"amax,overflow\nnonsense,0\n", "1,1,0,8,0,8,\n"},
    };
    for (const Row& row : rows) {
      CAPTURE(row.trace);
      const TempFolder folder;
      folder.Write("t.csv", row.trace);
      CHECK(Run(*Preset("pytorch", 8, 5), 0, folder / "t.csv") == kHeader + row.rows);
    }
  }

  TEST_CASE("a retried attempt keeps its step, up to max_retries") {
    const TempFolder folder;
    folder.Write("t.csv", "overflow\n1\n0\n1\n1\n1\n1\n0\n");
    CHECK(Run(*Preset("nnabla", 64, 9), 2, folder / "t.csv") ==
          kHeader +
              "1,1,1,64,1,32,\n2,1,0,32,0,32,\n3,2,1,32,1,16,\n4,2,1,16,1,8,\n5,2,1,8,1,4,\n"
              "6,3,1,4,1,2,\n7,3,0,2,0,2,\n");
  }

  TEST_CASE("a repaired attempt is no skipped one") {
    const TempFolder folder;
    folder.Write("t.csv", "overflow\n1\n");
    CHECK(Run(*Preset("marian", 8, 9), 0, folder / "t.csv") == kHeader + "1,1,1,8,0,8,\n");
  }

  TEST_CASE("constant policies; logmax with and without a column overflow") {
    const TempFolder folder;
    folder.Write("t.csv", "overflow\n1\n");
    CHECK(Run(*scaling::MakeNone(1), 0, folder / "t.csv") == kHeader + "1,1,1,1,1,1,\n");
    CHECK(Run(*scaling::MakeFixed(1024), 0, folder / "t.csv") == kHeader + "1,1,1,1024,1,1024,\n");
    scaling::LogMaxParameters p;
    p.reference = true;
    folder.Write("amax.csv", "amax\n0.5\ninf\nNaN\n");
    folder.Write("both.csv", "overflow,amax\n0,0.5\n1,0.5\n0,nan\n");
    const std::string expected = Run(*scaling::MakeLogMax(p), 0, folder / "amax.csv");
    CHECK(expected.rfind(kHeader + "1,1,0,1,0,16384,\n2,2,1,16384,1,1,\n3,3,1,1,1,1,\n", 0) == 0);
    CHECK(Run(*scaling::MakeLogMax(p), 0, folder / "both.csv") == expected);
  }

  TEST_CASE("a trace of logmax, as it was recorded") {
    const std::string name = "openseq2seq_logmax/steady-overflow.csv";
    scaling::LogMaxParameters p;
    p.reference = true;
    std::istringstream text(Run(*scaling::MakeLogMax(p), 0, Golden(name)));
    std::string line;
    std::getline(text, line);
    for (const testing::GoldenRow& row : testing::ReadGolden("dynamic/" + name).rows) {
      REQUIRE(std::getline(text, line));
      const std::vector<std::string> fields = testing::SplitCsvLine(line);
      REQUIRE(fields.at(1) == row.at("step"));
      REQUIRE((fields.at(4) == "1") == !std::isfinite(testing::Number(row, "amax")));
      const double recorded = testing::Number(row, "scale_after");
      REQUIRE(std::fabs(std::stod(fields.at(5)) / recorded - 1) <= 3e-5);
    }
    CHECK_FALSE(std::getline(text, line));
  }

  TEST_CASE("policies that a trace cannot drive") {
    for (const auto& make : {+[] { return scaling::MakeAdaptive(1, {}); },
                             +[] { return scaling::MakeHistogram({}); }}) {
      const auto policy = make();
      CHECK_THROWS_WITH_AS(Run(*policy, 0, "/nonexistent"),
                           ("scaling.policy: " + std::string(policy->name()) +
                            " decides from the gradients themselves, which a trace does not hold; "
                            "replay takes none, "
                            "fixed, dynamic, logmax and, with a trace, layerwise_dynamic")
                               .c_str(),
                           ConfigError);
    }
  }

  TEST_CASE(
      "rows with an empty cell are no attempts; a column of numbers overflows where it is not "
      "finite") {
    const TempFolder folder;
    const auto attempts = [&](const std::string& text, const std::string& column) {
      folder.Write("t.csv", text);
      std::ostringstream out, notes;
      ReplayOptions options;
      options.trace = folder / "t.csv";
      options.column = column;
      Replay(*Preset("pytorch", 8, 5), options, out, notes);
      return out.str();
    };
    const std::string want = kHeader + "1,1,0,8,0,8,\n2,2,1,8,1,4,\n3,3,1,4,1,2,\n4,4,0,2,0,2,\n";
    CHECK(attempts("overflow\n0\n\n1\n1\n0\n", "") == want);
    CHECK(attempts("norm\n0.5\ninf\nnan\n1.0\n", "norm") == want);
    CHECK(attempts("flag\n0.0\n1.0\n1.0\n0.0\n", "flag") == want);
  }

  TEST_CASE("lines of DeepSpeed, Megatron and apex, and the first scale that differs") {
    const TempFolder folder;
    const auto replay = [&](const std::string& text, const char* preset, double start) {
      folder.Write("log.txt", text);
      std::ostringstream out, notes;
      ReplayOptions options;
      options.trace = folder / "log.txt";
      options.view = View::kTable;
      Replay(*Preset(preset, start, 2000), options, out, notes);
      return out.str() + notes.str();
    };
    const std::string apex =
        "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n";
    CHECK(replay(apex, "apex", 65536).find("all 1 scale of the record are the same") !=
          std::string::npos);
    CHECK(replay(apex, "apex", 1024).find("after attempt 1: 32768\n  there, 512 here") !=
          std::string::npos);
    const std::string megatron =
        " iteration        1/     100 | loss scale: 65536.0 | number of skipped iterations:   0 |\n"
        " iteration        3/     100 | loss scale: 32768.0 | number of skipped iterations:   1 "
        "|\n";
    CHECK(replay(megatron, "pytorch", 65536).find("3 attempts: 1 overflowed") != std::string::npos);
    // The first line stands for as many iterations as the next, in a run from the start as in one
    // that goes on after a checkpoint.
    const auto interval = [](int iteration, int skipped) {
      return " iteration " + std::to_string(iteration) +
             "/ 1000 | loss scale: 65536.0 | number of skipped iterations: " +
             std::to_string(skipped) + " |\n";
    };
    for (const int before : {0, 500}) {
      const std::string lines = interval(before + 100, 3) + interval(before + 200, 0);
      CHECK(replay(lines, "pytorch", 65536).find("200 attempts: 3 overflowed") !=
            std::string::npos);
    }
    CHECK(replay(interval(5, 0) + interval(105, 0), "pytorch", 65536).find("105 attempts: 0") !=
          std::string::npos);
    const std::string deepspeed =
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 64, reducing to 32\n"
        "[deepspeed] OVERFLOW! Rank 1 Skipping step. Attempted loss scale: 64, reducing to 32\n"
        "[Rank 0] step=10, skipped=1, lr=[0.1], mom=[0.9]\n";
    const std::string replayed = replay(deepspeed, "pytorch", 64);
    CHECK(replayed.find("10 attempts: 1 overflowed") != std::string::npos);
    CHECK(replayed.find("those that were skipped are taken as the first of them") !=
          std::string::npos);
    // Its place is not known, so no scale is compared there.
    CHECK(replay(deepspeed, "pytorch", 128).find("scale that differs") == std::string::npos);
    CHECK(replay(deepspeed.substr(0, deepspeed.find('[', 9)), "pytorch", 128)
              .find("scale that differs") != std::string::npos);
  }

  TEST_CASE("a trace is read row by row, and a row without an end is refused") {
    const TempFolder folder;
    const auto policy = Preset("pytorch", 8, 5);
    const auto refusal = [&](const std::string& path) -> std::string {
      try {
        Run(*policy, 0, path);
      } catch (const DataError& error) {
        return error.what();
      }
      return "";
    };
    // 40 GB of zeros take no room here; a reader of whole files would need as much memory.
    folder.Write("sparse.csv", "");
    std::filesystem::resize_file(folder / "sparse.csv", std::uintmax_t{40} << 30);
    folder.Write("begun.csv", "overflow\n0\n");
    std::filesystem::resize_file(folder / "begun.csv", std::uintmax_t{40} << 30);
    for (const std::string& path :
         {folder / "sparse.csv", folder / "begun.csv", std::string("/dev/zero")}) {
      CAPTURE(path);
      CHECK(refusal(path).find("more than 1 MiB without the end of a row") != std::string::npos);
    }
    const std::string event =
        "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 8, reducing to 4";
    folder.Write("cut.log", event + "\n" + std::string(std::size_t{2} << 20, ' '));
    CHECK(refusal(folder / "cut.log").find("a line of more than 1 MiB") != std::string::npos);
    // A progress bar rewrites one line, however long that is.
    std::string bar;
    while (bar.size() < std::size_t{3} << 20) bar += "\r 12%|###      | 1234/10000 [00:12<01:23]";
    folder.Write("bar.log", bar + "\r" + event + "\n");
    const std::string rows = Run(*policy, 0, folder / "bar.log");
    CHECK(rows == kHeader + "1,1,1,8,1,4,\n");
  }

  TEST_CASE("what is wrong with a trace, and where") {
    struct Row {
      std::string text, message;  // after the file's name
    };
    const Row rows[] = {
        {"", ":0: no header line, expected one with the column overflow"},
        {"# only a comment\n", ":1: no header line, expected one with the column overflow"},
        {"a,b\n0,1\n",
         ":1: no column 'overflow', which replay needs: 1 where an attempt's gradients were not "
         "finite, else 0; the file has: a, b; --column NAME takes another"},
        {"overflow,overflow\n", ":1: two columns are called 'overflow'; expected each name once"},
        {" Overflow,OVERFLOW\n",
         ":1: two columns are called ' Overflow' and 'OVERFLOW': either may be overflow"},
        {"# c\noverflow\n0\n2\n", ":4: column overflow is '2', expected 0 or 1, False or True"},
        {"overflow\n01\n", ":2: column overflow is '01', expected 0 or 1, False or True"},
        {"overflow,x\n0\n", ":2: 1 fields, expected the header's 2"},
        {"overflow\n0,1\n", ":2: 2 fields, expected the header's 1"},
        {"overflow\n\"0\n", ":2: a quoted field has no closing quote"},
        {"overflow\n\"0\"1\n", ":2: text after a closing quote; a comma or line end was expected"},
        {"overflow\n0\"\n", ":2: a quote within an unquoted field"},
        {"step,overflow\nx,0\n", ":2: column step is 'x', expected an integer"},
    };
    for (const Row& row : rows) {
      CAPTURE(row.text);
      const TempFolder folder;
      const std::string path = folder / "t.csv";
      folder.Write("t.csv", row.text);
      CHECK_THROWS_WITH_AS(Run(*Preset("pytorch", 8, 5), 0, path), (path + row.message).c_str(),
                           DataError);
    }
    const TempFolder folder;
    const std::string path = folder / "t.csv";
    folder.Write("t.csv", "overflow\n0\n");
    CHECK_THROWS_WITH_AS(
        Run(*scaling::MakeLogMax({}), 0, path),
        (path +
         ":1: no column 'amax', which policy logmax needs: the largest "
         "unscaled gradient of each attempt; the file has: overflow; --column NAME takes another")
            .c_str(),
        DataError);
    for (const char* amax : {"-1", "x", "1e999"}) {
      folder.Write("t.csv", std::string("amax\n") + amax + "\n");
      CHECK_THROWS_WITH_AS(
          Run(*scaling::MakeLogMax({}), 0, path),
          (path + ":2: column amax is '" + amax + "', expected a number from 0 on, inf or nan")
              .c_str(),
          DataError);
    }
    CHECK_THROWS_WITH_AS(Run(*scaling::MakeNone(1), 0, folder / "missing.csv"),
                         (folder / "missing.csv: No such file or directory").c_str(), DataError);
    CHECK_THROWS_AS(Run(*scaling::MakeNone(1), 0, folder.path()), DataError);
  }
}

}  // namespace
}  // namespace ada::study

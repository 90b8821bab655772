// `replay`: traces as other programs write them, traces that are made up, and the table for people.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "error.h"
#include "scaling/policies/presets.h"
#include "study/commands.h"
#include "study/text_table.h"
#include "temp_folder.h"

namespace ada::study {
namespace {

using testing::TempFolder;

struct Shown {
  std::string out, notes;
};

Shown Run(const ReplayOptions& options, const char* preset = "pytorch", double start = 8) {
  scaling::DynamicParameters p = scaling::FindDynamicPreset(preset).parameters;
  p.init_scale = start;
  p.growth_interval = 5;
  std::ostringstream out, notes;
  Replay(*scaling::MakeDynamic(p), options, out, notes);
  return {out.str(), notes.str()};
}

Shown RunOn(const std::string& trace, const std::string& column = "") {
  const TempFolder folder;
  folder.Write("t.csv", trace);
  ReplayOptions options;
  options.trace = folder / "t.csv";
  options.column = column;
  return Run(options);
}

std::size_t Lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// Standard input is the file while it lives.
class Input {
 public:
  explicit Input(const std::string& path) : before_(dup(STDIN_FILENO)) {
    const int fd = open(path.c_str(), O_RDONLY);
    REQUIRE(dup2(fd, STDIN_FILENO) == STDIN_FILENO);
    close(fd);
  }
  ~Input() {
    dup2(before_, STDIN_FILENO);
    close(before_);
  }

 private:
  int before_;
};

const std::string kHeader = "attempt,step,overflow,scale,skipped,scale_after,error\n";
const std::string kTwo = kHeader + "1,1,0,8,0,8,\n2,2,1,8,1,4,\n";

TEST_SUITE("cpu") {
  TEST_CASE("booleans, floats, no header, blanks, a byte order mark") {
    for (const char* trace :
         {"overflow\nFalse\nTrue\n", "overflow\nfalse\nTRUE\n", "overflow\n0.0\n1.0\n",
          "overflow\n0.000000000000000000e+00\n1.000000000000000000e+00\n", "0\n1\n",
          "False\nTrue\n", "0.0\n1.0", "# a note\n0\n1\n", "\xEF\xBB\xBFoverflow\r\n0\r\n1\r\n",
          "\xEF\xBB\xBF# a note\n0\n1\n", "step, Overflow\n1, 0\n2, 1\n",
          "step,overflow\n1.0,False\n2.0,True\n", ",overflow\n0,False\n1,True\n"}) {
      CAPTURE(trace);
      CHECK(RunOn(trace).out == kTwo);
    }
    CHECK(RunOn("0\nFalse\nTrue\n", "0").out == kTwo);
    CHECK(RunOn("found_inf,loss\n0,1\n1,2\n", "found_inf").out == kTwo);
  }

  TEST_CASE("that a first line is taken as an attempt is said") {
    CHECK(RunOn("0\n1\n").notes.find(
              "t.csv: no header line; its first line is the first attempt") != std::string::npos);
    CHECK(RunOn("overflow\n0\n").notes.find("header") == std::string::npos);
  }

  TEST_CASE("what is neither a header nor an attempt") {
    struct Row {
      std::string text, column, message;
    };
    const Row rows[] = {
        {"0,1\n1,0\n", "",
         ":1: no header line, and 2 columns; expected one column, or a first line "},
        {"0\nTrue\n", "", ":2: the first line is '0', this one 'True': expected the same kind"},
        {"2\n0\n", "", ":1: column overflow is '2', expected 0 or 1, False or True"},
        {"overflow\n2.0\n", "", ":2: column overflow is '2.0', expected 0 or 1"},
        {"overflow\nyes\n", "", ":2: column overflow is 'yes', expected 0 or 1"},
        {"a,b\n0,1\n", "c", ":1: no column 'c', which replay needs: 1 where"},
    };
    for (const Row& row : rows) {
      CAPTURE(row.text);
      std::string message;
      try {
        RunOn(row.text, row.column);
      } catch (const DataError& e) {
        message = e.what();
      }
      CHECK(message.find("t.csv" + row.message) != std::string::npos);
    }
  }

  TEST_CASE("standard input, a file and a pipe") {
    const TempFolder folder;
    folder.Write("t.csv", "overflow\n0\n1\n");
    ReplayOptions options;
    options.trace = "-";
    {
      const Input input(folder / "t.csv");
      CHECK(Run(options).out == kTwo);
    }
    folder.Write("bad.csv", "overflow\n7\n");
    const Input input(folder / "bad.csv");
    CHECK_THROWS_WITH_AS(Run(options),
                         "standard input:2: column overflow is '7', expected 0 or 1, False or True",
                         DataError);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    std::string text = "overflow\n";
    for (int i = 0; i < 10000; ++i) text += "0\n";  // more than is read at once
    REQUIRE(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    close(ends[1]);
    options.trace = "/dev/fd/" + std::to_string(ends[0]);
    CHECK(Lines(Run(options).out) == 10001);
    close(ends[0]);
  }

  TEST_CASE("a made-up trace overflows as often as it says, and the same each time") {
    ReplayOptions options;
    options.pattern = {.steps = 1000, .every = 50, .overflow = 0};
    CHECK(Run(options).notes.find("1000 attempts: 20 overflowed (2 %), 20 skipped") !=
          std::string::npos);
    options.pattern = {.steps = 20000, .every = 0, .overflow = 0.01};
    const Shown first = Run(options);
    const std::size_t at = first.notes.find("20000 attempts: ");
    REQUIRE(at != std::string::npos);
    const int overflows = std::stoi(first.notes.substr(at + 16));
    CHECK(overflows > 150);
    CHECK(overflows < 250);
    CHECK(Run(options).out == first.out);
    options.pattern.seed = 2;
    CHECK(Run(options).out != first.out);
    options.pattern = {.steps = 3, .every = 0, .overflow = 0};
    CHECK(Lines(Run(options).out) == 4);
    CHECK(Run(options).notes.find("3 steps: nothing overflows") != std::string::npos);
  }

  TEST_CASE("retried attempts are no steps of a made-up trace") {
    ReplayOptions options;
    options.pattern = {.steps = 10, .every = 2, .overflow = 0};
    options.max_retries = 100;
    CHECK(Run(options, "nnabla").notes.find("19 attempts at 10 steps: 9 overflowed") !=
          std::string::npos);
  }

  TEST_CASE("a made-up trace of the largest gradient") {
    scaling::LogMaxParameters p;
    std::ostringstream out, notes;
    ReplayOptions options;
    options.pattern = {.steps = 100, .every = 10, .overflow = 0};
    Replay(*scaling::MakeLogMax(p), options, out, notes);
    CHECK(notes.str().find("10 overflowed") != std::string::npos);
  }

  TEST_CASE("the table has a line for each stretch of one scale") {
    ReplayOptions options;
    options.title = "policy dynamic, preset pytorch";
    options.pattern = {.steps = 12, .every = 8, .overflow = 0};
    options.view = View::kTable;
    const Shown shown = Run(options);
    CHECK(shown.notes.empty());
    CHECK(shown.out ==
          "policy dynamic, preset pytorch\n"
          "made-up trace of 12 steps: 1 attempt in 8 overflows\n"
          "  attempts   S  overflows  then S\n"
          "  1-5        8          0  grows: 5 clean steps\n"
          "  6-8       16          1  falls: overflow\n"
          "  9-12       8          0\n"
          "12 attempts: 1 overflowed (8.33 %), 1 skipped\n"
          "S: 8 at first, fell 1 time, grew 1 time, 8 at the end (8 to 16)\n");
  }

  TEST_CASE("skips at the floor of S are told, and skips that make it fall are not") {
    ReplayOptions options;
    options.pattern = {.steps = 100, .every = 0, .overflow = 1};
    options.view = View::kTable;
    const std::string stuck = Run(options, "megatron").out;
    CHECK(stuck.find("is skipped at S = 1, which falls no further") != std::string::npos);
    options.pattern.steps = 3;
    CHECK(Run(options, "megatron").out.find("falls no further") == std::string::npos);
  }

  TEST_CASE("the table stays short and narrow") {
    for (const std::string preset : {"chainer", "deepspeed", "fairseq", "mxnet", "cerebras"}) {
      CAPTURE(preset);
      ReplayOptions options;
      options.pattern = {.steps = 900000, .every = 3, .overflow = 0.1};
      options.view = View::kTable;
      const std::string text = Run(options, preset.c_str()).out;
      CHECK(Lines(text) < 50);
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) CHECK(TextWidth(line) <= 80);
    }
  }
}

}  // namespace
}  // namespace ada::study

// TensorBoard's files, read back record by record: tags and values, resumes, and a full disk.
#include "telemetry/tensorboard.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "error.h"
#include "event_files.h"
#include "telemetry/recorder.h"
#include "temp_folder.h"

using namespace ada::telemetry;
using ada::ExponentBins;
using ada::TensorStats;
using ada::scaling::Limit;
using ada::scaling::ScaleDecision;
using ada::testing::As;
using ada::testing::Event;
using ada::testing::Events;
using ada::testing::Field;
using ada::testing::Fields;
using ada::testing::Names;
using ada::testing::TempFolder;

namespace {

StepRow Row(std::int64_t step) { return {step, 1, 0.5, 0.25, 0.125, 1024, false, false, 8}; }

TensorStats Stats(std::int64_t numel, std::int64_t zeros, std::int64_t underflow) {
  TensorStats stats;
  stats.numel = numel;
  stats.zeros_before = zeros;
  stats.underflow = underflow;
  stats.full = true;
  return stats;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("a histogram's buckets, by log2 of the magnitude") {
    ExponentBins bins;
    bins[-2] = 3;  // 0.25 to 0.5: -2 to -1
    bins[0] = 1;   // 1 to 2: 0 to 1
    const auto check = [&] {
      const EventHistogram h = ExponentHistogram(bins);
      CHECK(h.limits == std::vector<double>{-1, 0, 1});
      CHECK(h.counts == std::vector<double>{3, 0, 1});
      CHECK(h.min == -2);
      CHECK(h.max == 1);
      CHECK(h.num == 4);
      CHECK(h.sum == 3 * -1.5 + 0.5);
      CHECK(h.sum_squares == doctest::Approx(3 * 7.0 / 3 + 1.0 / 3));
    };
    check();
    bins.zeros = 5;  // without a logarithm
    bins.inf = bins.nan = 7;
    check();
    bins[-2] = bins[0] = 0;
    CHECK(ExponentHistogram(bins).limits.empty());
    CHECK(ExponentHistogram(bins).num == 0);
    CHECK(ExponentHistogram({}).limits.empty());
  }

  TEST_CASE("a histogram's sums are those of values spread evenly in its buckets") {
    ExponentBins bins;
    for (int exponent = ExponentBins::kLowest; exponent <= ExponentBins::kHighest; exponent += 7) {
      bins[exponent] = 1 + (exponent & 15);
    }
    const EventHistogram h = ExponentHistogram(bins);
    constexpr int kParts = 1000;  // of a bucket, each at its middle
    double num = 0, sum = 0, sum_squares = 0, left = h.min;
    for (std::size_t i = 0; i < h.limits.size(); ++i) {
      CHECK(h.limits[i] == left + 1);
      CHECK(h.counts[i] == static_cast<double>(bins[static_cast<int>(left)]));
      for (int part = 0; part < kParts; ++part) {
        const double x = left + (part + 0.5) / kParts, weight = h.counts[i] / kParts;
        num += weight;
        sum += weight * x;
        sum_squares += weight * x * x;
      }
      left = h.limits[i];
    }
    CHECK(h.min == -280);
    CHECK(h.max == left);
    CHECK(h.num == doctest::Approx(num));
    CHECK(h.sum == doctest::Approx(sum));
    CHECK(h.sum_squares == doctest::Approx(sum_squares));
  }

  TEST_CASE("the tags and values of a step") {
    const TempFolder folder;
    {
      Recorder recorder(folder.path(), {}, {.histograms = true}, true);
      recorder.Step(Row(1));
      recorder.Scale(1, 1, "fc", "adaptive", {2, 3, 3, 2, 2, 4, Limit::kTarget});
      recorder.Scale(1, 1, "pool", "adaptive", {4, NAN, NAN, NAN, NAN, 4, Limit::kNone});
      recorder.Scale(1, 1, "fc", "adaptive", {4, NAN, NAN, NAN, 1, 16, Limit::kBranch});
      recorder.Underflow(1, 1, "fc", "dx", ada::kFp16, 4, Stats(100, 20, 10));
      recorder.Underflow(1, 1, "bn", "dy", ada::kFp16, 4, Stats(10, 10, 0));
      ExponentBins bins;
      bins[-1] = 6;
      recorder.Histogram(1, 1, "fc", "dx", 4, bins);
      recorder.Histogram(1, 1, "bn", "dy", 4, {});
      recorder.Event({1, 1, "skip", "fc", "dw", "inf", "text"});
      recorder.Step(Row(2));
      recorder.Evaluation({2, 1, "test", 100, 0.75, 0.5, 1});
    }
    const std::set<std::string> names = Names(folder);
    REQUIRE(names.size() == 1);
    CHECK(names.begin()->starts_with("events.out.tfevents.1"));
    const std::vector<Event> events = Events(folder, *names.begin());
    REQUIRE(events.size() == 3);  // the version, and one for each step
    CHECK(events[1].step == 1);
    CHECK(events[1].scalars == std::map<std::string, float>{{"loss", 0.5},
                                                            {"accuracy", 0.25},
                                                            {"lr", 0.125},
                                                            {"scale", 1024},
                                                            {"grad_norm", 8},
                                                            {"scale/fc", 4},
                                                            {"alpha/fc", 2},
                                                            {"scale/pool", 4},
                                                            {"scale/fc.dy", 16},
                                                            {"underflow_pct/fc.dx", 12.5}});
    REQUIRE(events[1].histograms.size() == 1);
    const std::vector<Field> histogram = Fields(events[1].histograms.at("histogram/fc.dx"));
    REQUIRE(histogram.size() == 7);
    CHECK(As<double>(histogram[0].bytes) == -1);  // min
    CHECK(As<double>(histogram[1].bytes) == 0);   // max
    CHECK(As<double>(histogram[5].bytes) == 0);   // the one limit
    CHECK(As<double>(histogram[6].bytes) == 6);   // its count
    CHECK(events[2].step == 2);
    CHECK(events[2].scalars.at("evaluation/test/loss") == 0.75f);
    CHECK(events[2].scalars.at("evaluation/test/top1") == 0.5f);
    CHECK(events[2].scalars.at("evaluation/test/top5") == 1.0f);
    CHECK(events[2].scalars.size() == 8);
  }

  TEST_CASE("flushed with the CSVs; a resumed run goes on in a later file") {
    const TempFolder folder;
    std::map<std::string, std::int64_t> lengths;
    std::string first;
    {
      Recorder recorder(folder.path(), {}, {}, true);
      first = *Names(folder).begin();
      CHECK(Events(folder, first).size() == 1);
      for (int step = 1; step <= 5; ++step) recorder.Step(Row(step));
      CHECK(Events(folder, first).size() == 1);
      recorder.Flush();
      CHECK(Events(folder, first).size() == 6);
      recorder.Step(Row(6));
      lengths = recorder.Sync();
      CHECK(Events(folder, first).size() == 7);
      for (int step = 7; step <= 9; ++step) recorder.Step(Row(step));
    }
    CHECK(Events(folder, first).size() == 10);
    for (const bool again : {false, true}) {
      Recorder recorder(folder.path(), lengths, {}, true);
      recorder.Step(Row(7));
      recorder.Flush();
      const std::set<std::string> names = Names(folder);
      REQUIRE(names.size() == (again ? 3 : 2));
      CHECK(*names.begin() == first);
      const std::vector<Event> events = Events(folder, *names.rbegin());
      REQUIRE(events.size() == 3);
      CHECK(events[1].start);
      CHECK(events[1].step == 7);
      CHECK(events[2].step == 7);
    }
    folder.Write("tensorboard/notes.txt", "mine");
    { const Recorder recorder(folder.path(), lengths); }  // resumed without: files stay
    CHECK(Names(folder).size() == 4);
    { const Recorder recorder(folder.path(), {}); }  // started afresh: they are another run's
    CHECK(Names(folder) == std::set<std::string>{"notes.txt"});
    {
      Recorder recorder(folder.path(), {}, {}, true);
      recorder.Step(Row(1));
    }
    { const Recorder recorder(folder.path(), {}, {}, true); }
    REQUIRE(Names(folder).size() == 2);
    CHECK(Events(folder, *Names(folder).begin()).size() == 1);
  }

  TEST_CASE("a name sorts after those of files with a clock that is ahead") {
    const TempFolder folder;
    folder.Write("tensorboard/events.out.tfevents.9000000000.zzz.1.0", "");
    folder.Write("tensorboard/events.out.tfevents.word.zzz.1.0", "");
    const TensorBoard board(folder.path(), 4);
    CHECK(Names(folder).size() == 3);
    CHECK(std::next(Names(folder).begin())->starts_with("events.out.tfevents.9000000001."));
  }

  TEST_CASE("a full disk, and room again: no record is lost or torn") {
    const TempFolder folder;
    TensorBoard board(folder.path(), 1);
    for (int step = 1; step <= 100; ++step) board.Step(Row(step));
    const auto old_handler = signal(SIGXFSZ, SIG_IGN);
    rlimit old_limit = {};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
    const rlimit limit = {1000, old_limit.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    std::string message;
    try {
      board.Flush();
    } catch (const ada::OutputError& error) {
      message = error.what();
    }
    setrlimit(RLIMIT_FSIZE, &old_limit);
    signal(SIGXFSZ, old_handler);
    const std::string name = *Names(folder).begin();
    CHECK(message == folder / "tensorboard/" + name + ": cannot be written: File too large");
    CHECK(folder.Read("tensorboard/" + name).size() == 1000);
    board.Flush();
    const std::vector<Event> events = Events(folder, name);
    REQUIRE(events.size() == 101);
    CHECK(events.back().step == 100);
  }

  TEST_CASE("a file in the folder's place") {
    const TempFolder folder;
    folder.Write("tensorboard", "mine");
    CHECK_THROWS_AS(TensorBoard(folder.path(), 1), ada::OutputError);
    CHECK(folder.Read("tensorboard") == "mine");
  }
}

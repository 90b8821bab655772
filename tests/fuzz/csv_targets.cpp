// CSV files: the reader itself, and the files of a run.
#include <unistd.h>

#include <array>
#include <string>

#include "fuzz/scratch.h"
#include "fuzz/targets.h"
#include "study/watch/watch_view.h"
#include "telemetry/columns.h"
#include "telemetry/rows.h"
#include "telemetry/totals.h"

namespace ada::fuzz {
namespace {

template <class Row>
void ReadAs(const std::string& path, telemetry::Expect expect) {
  Refusable([&] {
    telemetry::CsvReader file(path, telemetry::LastRow::kMayBeTorn);
    telemetry::ReadRows<Row>(file, expect, [](const Row& row) { telemetry::FieldsOf(row); });
  });
}

// One reader of each kind of row.
constexpr std::array kReadAs = {
    ReadAs<telemetry::StepRow>,      ReadAs<telemetry::ScaleRow>,      ReadAs<telemetry::TensorRow>,
    ReadAs<telemetry::EventRow>,     ReadAs<telemetry::EvaluationRow>, ReadAs<telemetry::TimingRow>,
    ReadAs<telemetry::HistogramRow>, ReadAs<telemetry::WhatIfRow>,     ReadAs<telemetry::ProbeRow>};

// What `watch` follows.
constexpr std::array<const char*, 5> kWatched = {"steps.csv", "scales.csv", "underflow.csv",
                                                 "events.csv", "evaluation.csv"};

}  // namespace

void Csv(std::string_view input) {
  static const Scratch scratch;
  const std::string path = scratch.Write("input.csv", input);
  for (const auto last : {telemetry::LastRow::kMustBeWhole, telemetry::LastRow::kMayBeTorn,
                          telemetry::LastRow::kMayLackLineEnd}) {
    Refusable([&] {
      telemetry::CsvReader file(path, last);
      const std::size_t columns = file.header().size();
      for (int row = 0; file.Next(); ++row) {
        for (std::size_t i = 0; i < columns; ++i) {
          file.Text(i);
          if (row > 2 || i > 4) continue;  // refusing takes its time
          Refusable([&] { file.Integer(i); });
          Refusable([&] { file.Number(i); });
        }
      }
      Demand(file.offset() <= static_cast<std::int64_t>(input.size()), "read past the end");
    });
  }
  // Followed while it grows, and replaced by half of itself.
  const std::size_t half = input.size() / 2;
  const std::string growing = scratch.Write("growing.csv", input.substr(0, half));
  telemetry::CsvFollower follower(growing, 64);
  const auto look = [&] {
    if (follower.Changed()) follower.Restart();
    Refusable([&] {
      follower.Read([](telemetry::CsvReader& file) {
        while (file.Next()) file.Text(0);
      });
    });
  };
  look();
  scratch.Write("growing.csv", input);
  look();
  scratch.Write("growing.csv", input.substr(half));
  look();
}

void Rows(std::string_view input) {
  static const Scratch scratch;
  const unsigned choice = TakeByte(&input);
  const auto expect = static_cast<telemetry::Expect>(choice / 16 % 3);
  const std::string path = scratch.Write("rows.csv", input);
  kReadAs[choice % kReadAs.size()](path, expect);
  static const Scratch run;
  for (const char* name :
       {"steps.csv", "evaluation.csv", "timing.csv", "scales.csv", "underflow.csv"})
    run.Write(name, input);
  Refusable([] { telemetry::RunTotals().RebuildFrom(run.path()); });
  Refusable([] { telemetry::LayerTotals().RebuildFrom(run.path()); });
}

void Watch(std::string_view input) {
  static const Scratch run;
  const std::string name = kWatched[TakeByte(&input) % kWatched.size()];
  const std::size_t half = input.size() / 2;
  study::WatchState state;
  state.folder = run.path();
  study::WatchFeed feed(run.path());
  for (const std::string_view part : {input.substr(0, half), input}) {
    run.Write(name, part);
    Refusable([&] { feed.Poll(state); });
  }
  for (const std::size_t width : {std::size_t{1}, std::size_t{80}})
    study::DrawWatch(state, {.width = width, .height = 24, .utf8 = width == 80});
  unlink((run.path() + "/" + name).c_str());
}

}  // namespace ada::fuzz

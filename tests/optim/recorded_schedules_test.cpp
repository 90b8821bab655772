// Every learning rate that chainer, ChainerCV, ada-loss and torch gave, from the tables that were
// recorded of them (tests/golden/schedules).
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "golden_table.h"
#include "optim/schedule.h"

namespace ada::optim {
namespace {

using RecordedKind = Schedule::Kind;
using Unit = Schedule::Unit;
using WarmupKind = Schedule::Warmup::Kind;

Schedule InSteps(RecordedKind kind, const std::function<void(Schedule&)>& set) {
  Schedule schedule;
  schedule.kind = kind, schedule.unit = Unit::kSteps;
  set(schedule);
  return schedule;
}

void Warm(Schedule& schedule, std::int64_t steps, double lr, bool counts) {
  schedule.warmup.kind = WarmupKind::kLinear;
  schedule.warmup.steps = steps, schedule.warmup.lr = lr, schedule.warmup.counts = counts;
}

Schedule Restarts(double period, int factor, double min_lr, Unit unit = Unit::kSteps) {
  return InSteps(RecordedKind::kCosineRestarts, [&](Schedule& s) {
    s.unit = unit, s.period = period, s.period_factor = factor, s.min_lr = min_lr;
  });
}

Schedule Poly(double length, double power) {
  return InSteps(RecordedKind::kPoly, [&](Schedule& s) { s.length = length, s.power = power; });
}

Schedule Multisteps(std::vector<int> milestones, double gamma = 0.1) {
  return InSteps(RecordedKind::kMultistep,
                 [&](Schedule& s) { s.milestones = std::move(milestones), s.gamma = gamma; });
}

// ChainerCV's train_imagenet_multi.py: rates above 0.1 are warmed up from 0.1.
Schedule ImageNet(double lr) {
  Schedule schedule = Multisteps({30, 60, 80});
  schedule.unit = Unit::kEpochs;
  if (lr > 0.1) {
    Warm(schedule, 0, 0.1, true);
    schedule.warmup.epochs = 5;
  }
  return schedule;
}

struct RecordedSchedule {
  const char* file;
  Schedule schedule;
  double lr;
  std::int64_t steps_per_epoch = 1;
  double steps_of_x = 1;  // the table's first column counts so many steps
};

std::vector<RecordedSchedule> AllRecorded() {
  Schedule sequential = Multisteps({30, 50}), chained = Multisteps({30, 50});
  Warm(sequential, 10, 0.01, false);
  Warm(chained, 10, 0.001, true);
  return {
      {"adaloss_restarts_10_2", Restarts(10, 2, 0.001), 0.1},
      {"adaloss_restarts_12_1", Restarts(12, 1, 0.001), 0.1},
      {"adaloss_restarts_5_3", Restarts(5, 3, 0.001), 0.1},
      {"chainer_multistep", Multisteps({30, 50, 65}), 0.1},
      {"chainer_poly_0.9", Poly(60, 0.9), 0.01},
      {"chainer_poly_2", Poly(70, 2), 0.01},
      {"chainer_warmup",
       InSteps(RecordedKind::kConstant, [](Schedule& s) { Warm(s, 20, 0.01, true); }), 0.1},
      {"chainercv_imagenet_lr0.1", ImageNet(0.1), 0.1, 10, 10},
      {"chainercv_imagenet_lr0.4", ImageNet(0.4), 0.4, 10, 10},
      {"ssd_steps", Multisteps({80000, 100000}), 0.001},
      {"torch_cosine",
       InSteps(RecordedKind::kCosine,
               [](Schedule& s) {
                 s.length = 60, s.min_lr = 0.001;
                 s.beyond = Schedule::Beyond::kClimb;
               }),
       0.1},
      {"torch_poly_0.9", Poly(70, 0.9), 0.01},
      {"torch_poly_2", Poly(70, 2), 0.01},
      {"torch_restarts_10_2", Restarts(10, 2, 0.001), 0.1},
      {"torch_restarts_12_1", Restarts(12, 1, 0), 0.1},
      {"torch_restarts_5_3", Restarts(5, 3, 1e-5), 0.1},
      {"torch_restarts_10_2_fractional", Restarts(10, 2, 0.001, Unit::kEpochs), 0.1, 4, 4},
      {"torch_restarts_12_1_fractional", Restarts(12, 1, 0, Unit::kEpochs), 0.1, 4, 4},
      {"torch_restarts_5_3_fractional", Restarts(5, 3, 1e-5, Unit::kEpochs), 0.1, 4, 4},
      {"torch_step", InSteps(RecordedKind::kStep, [](Schedule& s) { s.every = 30; }), 0.1},
      {"torch_warmup_chained_multistep", chained, 0.1},
      {"torch_warmup_multistep", sequential, 0.1},
  };
}

// The second of the columns: GoldenRow sorts them by name.
double RateOf(const testing::GoldenRow& row) {
  return testing::Number(row, row.contains("lr") ? "lr" : "lr_of_next_update");
}
double PlaceOf(const testing::GoldenRow& row) {
  for (const char* name : {"calls_done", "updates_done", "step", "epoch", "epoch_detail"})
    if (row.contains(name)) return testing::Number(row, name);
  FAIL("no column says where the row stands");
  return 0;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("recorded rates of chainer, ChainerCV, ada-loss and torch") {
    for (const RecordedSchedule& recorded : AllRecorded()) {
      CAPTURE(recorded.file);
      const auto table = testing::ReadGolden("schedules/" + std::string(recorded.file) + ".csv");
      CHECK(table.rows.size() >= 60);
      for (const testing::GoldenRow& row : table.rows) {
        const auto step =
            static_cast<std::int64_t>(std::llround(PlaceOf(row) * recorded.steps_of_x));
        CAPTURE(step);
        const double lr =
            LearningRate(recorded.schedule, recorded.lr, step, recorded.steps_per_epoch, 1'000'000);
        CHECK(std::fabs(lr - RateOf(row)) <= 1e-12 * recorded.lr);
      }
    }
  }

  TEST_CASE("warm-up and cosine of nanoGPT, Hugging Face and llm.c") {
    struct Program {
      const char* column;
      WarmupKind kind;
      double least;
    };
    const auto table = testing::ReadGolden("schedules/language_warmups.csv");
    REQUIRE(table.rows.size() == 40);
    for (const Program& program : {Program{"nanogpt", WarmupKind::kNanoGpt, 6e-5},
                                   Program{"huggingface", WarmupKind::kHuggingFace, 0},
                                   Program{"llmc", WarmupKind::kLlmC, 6e-5}}) {
      CAPTURE(program.column);
      Schedule schedule;
      schedule.kind = RecordedKind::kCosine, schedule.min_lr = program.least;
      schedule.warmup.kind = program.kind, schedule.warmup.steps = 5;
      for (const testing::GoldenRow& row : table.rows) {
        const auto step = static_cast<std::int64_t>(testing::Number(row, "step"));
        CAPTURE(step);
        const double lr = LearningRate(schedule, 6e-4, step, 7, 40);
        CHECK(std::fabs(lr - testing::Number(row, program.column)) <= 1e-12 * 6e-4);
        if (step <= 5) CHECK(MovesEachStep(schedule, step, 7));
      }
    }
  }

  TEST_CASE("recorded rates of torch's OneCycleLR, as long as the run and by `length`") {
    int cases = 0;
    for (const testing::GoldenRow& row :
         testing::ReadGolden("schedules/torch_one_cycle.csv").rows) {
      ++cases;
      CAPTURE(cases);
      Schedule schedule;
      schedule.kind = RecordedKind::kOneCycle, schedule.unit = Unit::kSteps;
      Schedule::OneCycle& shape = schedule.one_cycle;
      shape.rise = testing::Number(row, "pct_start");
      shape.three_phase = row.at("three_phase") == "1";
      shape.start_factor = testing::Number(row, "div_factor");
      shape.end_factor = testing::Number(row, "final_div_factor");
      if (row.at("anneal_strategy") == "linear") shape.anneal = Schedule::OneCycle::Anneal::kLinear;
      const std::vector<std::string> rates = testing::Words(row.at("rates"));
      const auto total = static_cast<std::int64_t>(rates.size());
      for (std::int64_t step = 0; step < total; ++step) {
        CAPTURE(step);
        const double want = std::stod(rates[static_cast<std::size_t>(step)]);
        schedule.length = 0;
        CHECK(std::fabs(LearningRate(schedule, 0.1, step, 7, total) - want) <= 1e-13);
        schedule.length = static_cast<double>(total);
        CHECK(std::fabs(LearningRate(schedule, 0.1, step, 7, 10 * total) - want) <= 1e-13);
      }
      CHECK(LearningRate(schedule, 0.1, 5 * total, 7, 10 * total) ==
            doctest::Approx(std::stod(rates.back())).epsilon(1e-12));
    }
    CHECK(cases == 7);
  }
}

}  // namespace ada::optim

// Learning rates against tables recorded from torch.optim.lr_scheduler; warm-up and edges by hand.
#include "optim/schedule.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "error.h"
#include "golden_table.h"

namespace ada::optim {
namespace {

using Kind = Schedule::Kind;

constexpr double kRate = 0.1;  // of the optimizer

TEST_SUITE("cpu") {
  TEST_CASE("recorded rates of torch's schedulers") {
    const std::map<std::string, Kind> kinds = {{"constant", Kind::kConstant},
                                               {"multistep", Kind::kMultistep},
                                               {"cosine", Kind::kCosine},
                                               {"linear", Kind::kLinear},
                                               {"poly", Kind::kPoly}};
    int schedules = 0;
    for (const testing::GoldenRow& row : testing::ReadGolden("optim/schedules.csv").rows) {
      Schedule spec;
      spec.kind = kinds.at(row.at("kind"));
      for (const std::string& word : testing::Words(row.at("milestones"))) {
        spec.milestones.push_back(std::stoi(word));
      }
      spec.gamma = testing::Number(row, "gamma");
      spec.power = testing::Number(row, "power");
      spec.min_lr = testing::Number(row, "min_lr");
      const std::vector<std::string> rates = testing::Words(row.at("rates"));
      REQUIRE(rates.size() == 60);
      for (int step = 0; step < 60; ++step) {
        CAPTURE(row.at("kind"));
        CAPTURE(step);
        // torch updates its rates step by step; ours are closed forms.
        const double error = LearningRate(spec, kRate, step, 5, 60) - std::stod(rates[step]);
        CHECK(std::fabs(error) <= 1e-13 * kRate);
      }
      ++schedules;
    }
    CHECK(schedules == 12);
  }

  TEST_CASE("milestones act from the first step of the epoch after") {
    Schedule spec;
    spec.kind = Kind::kMultistep;
    spec.milestones = {81, 122};
    const std::int64_t epoch = 390, total = 164 * epoch;
    const std::pair<std::int64_t, double> rows[] = {{0, 0.1},
                                                    {81 * epoch - 1, 0.1},
                                                    {81 * epoch, 0.01},
                                                    {122 * epoch - 1, 0.01},
                                                    {122 * epoch, 0.001},
                                                    {total - 1, 0.001}};
    for (const auto& [step, lr] : rows) {
      CAPTURE(step);
      CHECK(LearningRate(spec, kRate, step, epoch, total) == doctest::Approx(lr).epsilon(1e-15));
    }
    spec.milestones = {0};
    CHECK(LearningRate(spec, kRate, 0, epoch, total) == doctest::Approx(0.01).epsilon(1e-15));
  }

  TEST_CASE("periods that are a whole number of steps act in that step") {
    Schedule spec;
    spec.kind = Kind::kStep;
    spec.every = 0.28, spec.gamma = 0.5;  // of 50 steps: 14, which doubles make a little more
    for (const std::int64_t step : {13, 14, 27, 28, 41, 42})
      CHECK(LearningRate(spec, kRate, step, 50, 100) ==
            doctest::Approx(kRate * std::pow(0.5, static_cast<double>(step / 14))).epsilon(1e-15));
    spec.kind = Kind::kCosineRestarts;
    spec.period = 0.28;
    CHECK(LearningRate(spec, kRate, 14, 50, 100) == doctest::Approx(kRate).epsilon(1e-15));
    CHECK(LearningRate(spec, kRate, 13, 50, 100) > 0);
  }

  TEST_CASE("warm-up holds its rate, then the schedule is where it would be without") {
    struct Row {
      double epochs;
      std::int64_t steps;  // of warm-up, at 10 steps an epoch
    };
    const Row rows[] = {{0, 0},    {1, 10},   {0.5, 5}, {2.3, 23},
                        {0.04, 0}, {0.06, 1}, {0.7, 7}, {50, 30}};
    for (const Kind kind :
         {Kind::kConstant, Kind::kMultistep, Kind::kCosine, Kind::kLinear, Kind::kPoly}) {
      for (const Row& row : rows) {
        CAPTURE(row.epochs);
        Schedule spec;
        spec.kind = kind;
        spec.milestones = {1};
        spec.power = 2;
        Schedule plain = spec;
        spec.warmup.epochs = row.epochs;
        spec.warmup.lr = 0.0125;
        for (std::int64_t step = 0; step < 30; ++step) {
          CAPTURE(step);
          const double expected =
              step < row.steps ? 0.0125 : LearningRate(plain, kRate, step, 10, 30);
          CHECK(LearningRate(spec, kRate, step, 10, 30) == expected);
        }
      }
    }
  }

  TEST_CASE("from lr to min_lr, never rising, and min_lr from the end on") {
    for (const Kind kind : {Kind::kCosine, Kind::kLinear, Kind::kPoly}) {
      Schedule spec;
      spec.kind = kind;
      spec.power = 0.9;
      spec.min_lr = 1e-4;
      double before = LearningRate(spec, kRate, 0, 7, 100);
      CHECK(before == 0.1);
      for (int step = 1; step < 100; ++step) {
        const double lr = LearningRate(spec, kRate, step, 7, 100);
        CHECK(lr < before);
        before = lr;
      }
      for (const std::int64_t step : {100, 101, 100000}) {
        CHECK(LearningRate(spec, kRate, step, 7, 100) == doctest::Approx(1e-4).epsilon(1e-12));
      }
    }
  }

  TEST_CASE("impossible calls are bugs") {
    CHECK_THROWS_AS(LearningRate({}, kRate, -1, 1, 1), InternalError);
    CHECK_THROWS_AS(LearningRate({}, kRate, 0, 0, 1), InternalError);
    CHECK_THROWS_AS(LearningRate({}, kRate, 0, 1, 0), InternalError);
  }
}

}  // namespace
}  // namespace ada::optim

// The pure parts of the progress line: texts, smoothed rates and values, and what fits a width.
#include "telemetry/progress.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

using namespace ada::telemetry;

TEST_SUITE("cpu") {
  TEST_CASE("durations and counts") {
    const std::vector<std::pair<double, const char*>> durations = {{0, "0:00"},
                                                                   {0.4, "0:00"},
                                                                   {7, "0:07"},
                                                                   {59.6, "1:00"},
                                                                   {754, "12:34"},
                                                                   {3599.4, "59:59"},
                                                                   {3599.6, "1:00:00"},
                                                                   {3723, "1:02:03"},
                                                                   {86399, "23:59:59"},
                                                                   {86400, "1d 00:00"},
                                                                   {183870, "2d 03:04"},
                                                                   {-5, "0:00"},
                                                                   {1e300, "11574074d 01:46"}};
    for (const auto& [seconds, text] : durations) CHECK(FormatDuration(seconds) == text);
    const std::vector<std::pair<double, const char*>> counts = {
        {0, "0.00"},     {0.512, "0.51"},  {9.99, "9.99"},    {9.996, "10"},
        {540.6, "541"},  {9999.4, "9999"}, {9999.6, "10.0k"}, {12345, "12.3k"},
        {99960, "100k"}, {123456, "123k"}, {999400, "999k"},  {1234567, "1.2M"}};
    for (const auto& [value, text] : counts) CHECK(FormatCount(value) == text);
  }

  TEST_CASE("the line") {
    struct Case {
      ProgressState state;
      const char* text;
    };
    const std::vector<Case> cases = {
        {{3, 164, 1234, 64124, 1.23456, 0.567, 16, 2, 541.2, 3723},
         "epoch 3/164  step 1234/64124  loss 1.235  acc 56.7%  scale 16  skipped 2  541 img/s  "
         "left 1:02:03"},
        {{1, 0, 7, 0, NAN, 0, 1.00069339, 0, 0, -1},
         "epoch 1  step 7  loss nan  acc 0.0%  scale 1.00069339  skipped 0"},
        {{1, 0, 7, 0, -NAN, -NAN, -NAN, 0, 0, -1},
         "epoch 1  step 7  loss nan  acc nan%  scale nan  skipped 0"},
        {{1, 1, 1, 10, 2.5e-7, 1, 4294967296, 0, 1e6, 0},
         "epoch 1/1  step 1/10  loss 2.5e-07  acc 100.0%  scale 4.2949673e+09  skipped 0  1.0M "
         "img/s  left 0:00"},
        {{1, 4, 7, 80, 2.5, 0.25, 1, 0, 96.5, 9, 128},
         "epoch 1/4  step 7/80  loss 2.5  acc 25.0%  scale 1  skipped 0  12.4k tokens/s  left "
         "0:09"},
    };
    for (const Case& c : cases) CHECK(FormatProgress(c.state) == c.text);
    CHECK(std::signbit(-NAN));
    CHECK_FALSE(std::signbit(Printable(-NAN)));
    CHECK(std::isnan(Printable(-NAN)));
    for (const double value : {0.0, -1.5, -HUGE_VAL}) CHECK(Printable(value) == value);
  }

  TEST_CASE("the line in a width: skipped 0 and scale go first, rate and time left stay") {
    const ProgressState state = {3, 164, 1234, 64124, 1.23456, 0.567, 16, 2, 541.2, 3723};
    struct Case {
      int width;
      const char* text;
    };
    const std::vector<Case> cases = {
        {100,
         "epoch 3/164  step 1234/64124  loss 1.235  acc 56.7%  scale 16  skipped 2  541 img/s  "
         "left 1:02:03"},
        {90,
         "epoch 3/164  step 1234/64124  loss 1.235  acc 56.7%  skipped 2  541 img/s  left 1:02:03"},
        {79, "epoch 3/164  step 1234/64124  loss 1.235  skipped 2  541 img/s  left 1:02:03"},
        {70, "step 1234/64124  loss 1.235  skipped 2  541 img/s  left 1:02:03"},
        {60, "step 1234/64124  loss 1.235  541 img/s  left 1:02:03"},
        {40, "step 1234/64124  541 img/s  left 1:02:03"},
        {39, "541 img/s  left 1:02:03"},
        {12, "left 1:02:03"},
        {11, "left 1:02.."},
        {0, ""},
        {-1, ""}};
    for (const Case& c : cases) {
      CAPTURE(c.width);
      CHECK(FormatProgress(state, c.width) == c.text);
    }
    ProgressState none = state;
    none.skipped = 0;
    CHECK(FormatProgress(none, 90) ==
          "epoch 3/164  step 1234/64124  loss 1.235  acc 56.7%  scale 16  541 img/s  left 1:02:03");
    CHECK(FormatEvaluation("evaluating test", 3200, 10000, 541.2) ==
          "evaluating test  3200/10000 images  541 img/s  left 0:13");
    CHECK(FormatEvaluation("evaluating test", 3200, 10000, 541.2, 40) ==
          "evaluating test  541 img/s  left 0:13");
    CHECK(FormatEvaluation("evaluating test", 0, 10000, 0) == "evaluating test  0/10000 images");
    CHECK(FormatEvaluation("checking train", 256, 3000, 0) == "checking train  256/3000 images");
  }

  TEST_CASE("colours mark what is wrong, and take no room") {
    ProgressState state = {1, 2, 3, 4, 0.5, 0.5, 1, 0, 0, 5};
    const std::string left = "\033[1mleft 0:05\033[0m";
    CHECK(FormatProgress(state, 72, true) ==
          "epoch 1/2  step 3/4  loss 0.5  acc 50.0%  scale 1  skipped 0  " + left);
    state.loss = NAN;
    state.skipped = 1;
    CHECK(FormatProgress(state, 72, true) ==
          "epoch 1/2  step 3/4  \033[31mloss nan\033[0m  acc 50.0%  scale 1  "
          "\033[33mskipped 1\033[0m  " +
              left);
  }

  TEST_CASE("smoothed: right at once, follows a change, shows what is not finite for a moment") {
    Smoothed smoothed;
    CHECK(smoothed.value() == 0);
    smoothed.Add(2);
    CHECK(smoothed.value() == doctest::Approx(2));
    smoothed.Add(4);
    CHECK(smoothed.value() == doctest::Approx((0.98 * 2 + 4) / 1.98));
    for (int i = 0; i < 1000; ++i) smoothed.Add(2 + i % 2);
    CHECK(smoothed.value() == doctest::Approx(2.5).epsilon(0.01));
    smoothed.Add(NAN);
    CHECK(std::isnan(smoothed.value()));
    smoothed.Add(2.5);
    CHECK(smoothed.value() == doctest::Approx(2.5).epsilon(0.01));
  }

  TEST_CASE("epochs are told where the last one is whole") {
    CHECK(WholeEpochs(30, 6) == 5);
    CHECK(WholeEpochs(5, 6) == 0);
    CHECK(WholeEpochs(31, 6) == 0);
    CHECK(WholeEpochs(5, 0) == 0);
  }

  TEST_CASE("cut to a width") {
    const std::vector<std::pair<int, const char*>> cases = {{20, "epoch 3/164"},
                                                            {11, "epoch 3/164"},
                                                            {10, "epoch 3/.."},
                                                            {3, "e.."},
                                                            {2, ".."},
                                                            {1, "."},
                                                            {0, ""},
                                                            {-1, ""}};
    for (const auto& [width, text] : cases) CHECK(Truncate("epoch 3/164", width) == text);
  }

  TEST_CASE("a rate: right at once, follows a change by half each half-life, weighs by time") {
    RateMeter meter(10);
    CHECK(meter.per_second() == 0);
    meter.Add(128, 0.5);
    CHECK(meter.per_second() == doctest::Approx(256));
    for (int i = 0; i < 1000; ++i) meter.Add(128, 0.5);
    CHECK(meter.per_second() == doctest::Approx(256));
    for (int i = 0; i < 10; ++i) meter.Add(0, 1);
    CHECK(meter.per_second() == doctest::Approx(128).epsilon(0.03));
    meter.Add(5, 0);  // no time: not counted
    meter.Add(5, NAN);
    CHECK(meter.per_second() == doctest::Approx(128).epsilon(0.03));
  }

  TEST_CASE("time spent on other things does not count; the limit in time shortens what is left") {
    Log log(LogLevel::kError);
    double now = 0;
    Progress progress(log, false, [&] { return now; });
    for (int step = 1; step <= 5; ++step) {
      now += 1;
      progress.Update({.step = step, .steps = 100}, 10);
    }
    CHECK(progress.state().images_per_second == doctest::Approx(10));
    CHECK(progress.state().seconds_left == doctest::Approx(95));
    progress.Pause();
    now += 1000;
    progress.Update({.step = 6, .steps = 100}, 10);
    CHECK(progress.state().images_per_second == doctest::Approx(10));
    now += 1;
    progress.Update({.step = 7, .steps = 100}, 10, 30);
    CHECK(progress.state().seconds_left == doctest::Approx(30));
    now += 1;
    progress.Update({.step = 8, .steps = 0}, 10, 20);
    CHECK(progress.state().seconds_left == doctest::Approx(20));
  }
}

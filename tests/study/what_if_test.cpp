// what-if against counting the same values one by one, and its text.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "error.h"
#include "study/commands.h"
#include "study/made_run.h"
#include "telemetry/csv_reader.h"

namespace ada::study {
namespace {

using testing::MadeRun;
using testing::Values;

struct Answer {
  std::string csv, notes;
};
Answer Ask(const WhatIfOptions& options) {
  std::ostringstream out, notes;
  WhatIf(options, out, notes);
  return {out.str(), notes.str()};
}
std::string Refusal(const WhatIfOptions& options) {
  try {
    Ask(options);
  } catch (const Error& error) {
    return std::to_string(error.exit_code()) + ": " + error.what();
  }
  return "(accepted)";
}

TEST_SUITE_BEGIN("cpu");

TEST_CASE("rows, name and notes") {
  MadeRun run("precision: {format: fp16}");
  // Halves of 2^-25 and below vanish; 3 * 2^-26 is above it.
  run.Add(1, "fc", "dx", {0, 0x1.8p-20f, -0x1.8p-26f, 0x1.8p-27f}, kFp16, 1);
  run.Add(1, "fc", "w", {0.5f, 0.25f});
  run.Add(10, "fc", "dx", {0, 0, 0, 0}, kFp16, 1);
  run.Finish();
  WhatIfOptions options;
  options.folder = run.path();

  SUBCASE("as recorded") {
    const Answer answer = Ask(options);
    CHECK(answer.csv ==
          "step,epoch,layer,tensor,scenario,format,scale,underflow_pct_nonzero,overflow,"
          "underflow_unsure_pct,overflow_unsure\n"
          "1,1,fc,dx,as recorded,fp16,1.0,66.6666667,0.0,0.0,0\n"
          "1,1,fc,w,as recorded,fp16,1.0,0.0,0.0,0.0,0\n"
          "10,1,fc,dx,as recorded,fp16,1.0,,0.0,,0\n");
    CHECK(answer.notes ==
          "what if as recorded: 2 steps (1 to 10), 2 tensors\n"
          "  most of its non-zero values would lose:\n"
          "    fc.dx 66.7 % (at most 66.7 % in a step)\n"
          "  nothing overflows\n"
          "  exact: no value shares an exponent with a threshold\n");
  }
  SUBCASE("a scale and a format without a name") {
    options.scale = 4;
    options.format = config::ReadFormat("{exponent: 5, mantissa: 7}");  // u_min 2^-21
    const Answer answer = Ask(options);
    CHECK(answer.csv.find("1,1,fc,dx,format={exponent: 5 mantissa: 7} scale=4,\"{exponent: 5, "
                          "mantissa: 7}\",4.0,66.6666667,0.0,0.0,0\n") != std::string::npos);
  }
  SUBCASE("the threshold's bin is the uncertainty") {
    options.scale = 2;  // the threshold is 2^-26: one of three lies in its bin, and survives
    const Answer answer = Ask(options);
    CHECK(answer.csv.find("1,1,fc,dx,scale=2,fp16,2.0,33.3333333,0.0,33.3333333,0\n") !=
          std::string::npos);
    CHECK(answer.notes.find("uncertainty: up to 33.3 % of a tensor's values share the threshold's "
                            "exponent") != std::string::npos);
    CHECK(answer.notes.find("fc.dx in step 1") != std::string::npos);
    CHECK(answer.notes.find("all scales are powers of two") != std::string::npos);
  }
  SUBCASE("a policy") {
    options.policy = "fixed";
    options.scale = 0x1p40;
    const Answer answer = Ask(options);
    CHECK(answer.csv.find(
              "1,1,fc,dx,policy=fixed scale=1099511627776,fp16,1099511627776.0,0.0,1.0,") !=
          std::string::npos);
    CHECK(answer.csv.find("1,1,fc,w,policy=fixed scale=1099511627776,fp16,1.0,") !=
          std::string::npos);
    CHECK(
        answer.notes.find("1 tensor would overflow, most of all fc.dx: about 1 values in 1 step") !=
        std::string::npos);
  }
  SUBCASE("values in the bin of the threshold of overflow are no exact count") {
    options.scale = 0x1p35;  // 1.5 * 2^15 is below 65520, whose bin it shares
    const Answer answer = Ask(options);
    CHECK(answer.notes.find("1 value in all share the exponent above which values overflow") !=
          std::string::npos);
    CHECK(answer.notes.find("exact") == std::string::npos);
  }
}

TEST_CASE("the table: the worst first, what the run itself lost, and what all come to") {
  MadeRun run("precision: {format: fp16}");
  // Two of three values of fc.dx are lost at scale 1, one at 2; of conv2.dx one, then none.
  run.Add(1, "fc", "dx", {0, 0x1.8p-20f, -0x1.8p-27f, 0x1.8p-27f}, kFp16, 1);
  run.Add(1, "conv2", "dx", {0x1.8p-20f, 0x1.8p-25f, 0x1.8p-22f, 0x1.8p-23f}, kFp16, 1);
  run.Add(1, "conv1", "dw", {1, 2, 3});
  run.Add(1, "bn2", "dx", {0, 0});
  run.Add(1, "conv1", "dx", {1, 0x1.8p-20f}, kFp16, 1);
  run.Finish();
  WhatIfOptions options;
  options.folder = run.path();
  options.view = View::kTable;
  options.scale = 0.5;
  const Answer answer = Ask(options);
  CHECK(answer.notes.empty());
  CHECK(answer.csv ==
        "what if scale=0.5: 1 step (1 to 1), 5 tensors\n"
        "  tensor    lost %  at most  in the run  overflow    S\n"
        "  fc.dx     66.667   66.667      66.667         0  0.5\n"
        "  conv2.dx  25.000   25.000           0         0  0.5\n"
        "  2 tensors would lose nothing\n"
        "  1 tensor held zeros alone: nothing is known of it\n"
        "  nothing overflows\n"
        "  exact: no value shares an exponent with a threshold\n"
        "  of 4 dx, 1 would lose more, 0 less than in the run; mean 22.9 %, was 16.7 %\n");
  options.scale = 0x1p37;
  const std::string overflows = Ask(options).csv;
  CHECK(overflows.find("conv1.dx") < overflows.find("fc.dx"));
  CHECK(overflows.find("lose nothing") == std::string::npos);
}

TEST_CASE("tensors without a finite value are told from those that hold zeros") {
  MadeRun run("precision: {format: fp16}");
  run.Add(1, "fc", "dx", {0, 0x1.8p-27f}, kFp16, 1);
  run.Add(1, "conv2", "dx", {INFINITY, NAN, 0}, kFp16, 1);
  run.Add(1, "conv1", "dx", {0, 0}, kFp16, 1);
  run.Finish();
  WhatIfOptions options;
  options.folder = run.path();
  options.view = View::kTable;
  options.scale = 0.5;
  const std::string text = Ask(options).csv;
  CHECK(text.find("1 tensor held zeros alone: nothing is known of it") != std::string::npos);
  CHECK(text.find("1 tensor held inf, NaN and zeros alone: nothing is known of it") !=
        std::string::npos);
  CHECK(text.find("of 2 dx, 0 would lose more, 0 less than in the run; mean 50 %, was 50 %") !=
        std::string::npos);
}

TEST_CASE("steps in which a tensor was not finite are told") {
  MadeRun run("precision: {format: fp16}");
  run.Add(1, "fc", "dx", {1, 2}, kFp16, 1);
  run.Add(2, "fc", "dx", {INFINITY, 1}, kFp16, 1);
  run.Finish();
  WhatIfOptions options;
  options.folder = run.path();
  options.scale = 1;
  const std::string told = "1 tensor held inf or NaN in some of these steps: nothing is known of";
  CHECK(Ask(options).notes.find(told) != std::string::npos);
  options.view = View::kTable;
  CHECK(Ask(options).csv.find(told) != std::string::npos);
}

TEST_CASE("the table of many tensors fits a screen") {
  MadeRun run("precision: {format: fp16}");
  for (int i = 0; i < 60; ++i)
    run.Add(1, "a_layer_with_a_long_name.and_a_long_part." + std::to_string(i), "dx",
            testing::Normal(-24 - i % 7, 100, static_cast<unsigned>(i)), kFp16, 1);
  run.Finish();
  WhatIfOptions options;
  options.folder = run.path();
  options.view = View::kTable;
  for (const char* policy : {"", "adaptive", "dynamic"}) {
    options.policy = policy;
    std::istringstream lines(Ask(options).csv);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      CAPTURE(line);
      CHECK(line.size() <= 80);
    }
    CHECK(count <= 30);
  }
}

// For powers of two the share is what rounding the values gives.
TEST_CASE("shares at powers of two are those of rounding the values themselves") {
  MadeRun run("precision: {format: fp16}");
  std::map<std::string, Values> values;
  for (const int step : {1, 2}) {
    for (const auto& [layer, center] : std::map<std::string, double>{{"conv2", -22}, {"fc", -3}}) {
      const Values made = testing::Normal(center - step, 4000, 7u * static_cast<unsigned>(step));
      run.Add(step, layer, "dx", made, kFp16, 16);
      values[std::to_string(step) + layer] = made;
    }
  }
  run.Finish();
  WhatIfOptions options;
  options.folder = run.path();
  int lossy = 0;
  for (const NumberFormat& format : {kFp16, kBf16, kFp8E4M3, kFp8E5M2}) {
    for (int k = -12; k <= 24; k += 3) {
      options.format = format;
      options.scale = std::ldexp(1.0, k);
      ada::testing::TempFolder folder;
      folder.Write("rows.csv", Ask(options).csv);
      telemetry::CsvReader rows(folder / "rows.csv");
      int read = 0;
      for (; rows.Next(); ++read) {
        const Values& made = values.at(rows.Text(0) + rows.Text(2));
        const TensorStats truth = testing::CountedOneByOne(made, format, *options.scale);
        const double pct = 100.0 * static_cast<double>(truth.underflow) / 4000;
        CHECK(rows.Number(rows.Column("underflow_pct_nonzero")) == doctest::Approx(pct));
        const double overflow = rows.Number(rows.Column("overflow"));
        const double unsure = rows.Number(rows.Column("overflow_unsure"));
        CHECK(std::fabs(overflow - static_cast<double>(truth.overflow)) <= unsure);
        lossy += truth.underflow > 0;
      }
      CHECK(read == 4);
    }
  }
  CHECK(lossy > 20);
}

TEST_CASE("a policy's keys, and one that ends the run") {
  MadeRun run("precision: {format: fp16}");
  for (const int step : {1, 2, 3}) run.Add(step, "fc", "dx", {0x1p10f, 0x1p12f});
  run.Finish();
  WhatIfOptions options;
  options.folder = run.path();
  options.policy = "dynamic";
  options.overrides = {{"scaling.init_scale", "64"}, {"scaling.backoff_factor", "0.25"}};
  const Answer answer = Ask(options);
  const std::string name = "policy=dynamic init_scale=64 backoff_factor=0.25";
  CHECK(answer.csv.find("1,1,fc,dx," + name + ",fp16,64.0,0.0,2.0,") != std::string::npos);
  CHECK(answer.csv.find("2,1,fc,dx," + name + ",fp16,16.0,0.0,1.0,") != std::string::npos);
  CHECK(answer.csv.find("3,1,fc,dx," + name + ",fp16,4.0,0.0,0.0,") != std::string::npos);
  options.overrides = {{"scaling.preset", "deepspeed"},
                       {"scaling.hysteresis", "1"},
                       {"scaling.init_scale", "64"},
                       {"scaling.min_scale", "32"},
                       {"scaling.error_at_min_scale", "true"}};
  const Answer ended = Ask(options);
  CHECK(ended.notes.find("the policy would have ended the run by step 2") != std::string::npos);
  CHECK(ended.csv.find("\n2,") == std::string::npos);
}

TEST_CASE("what is refused") {
  MadeRun run("precision: {format: fp16}");
  run.Add(1, "fc", "dw", {1, 2}, kFp32);
  run.Finish();
  WhatIfOptions options;
  options.folder = run.path();
  options.policy = "dynamic";
  CHECK(Refusal(options).find("3: " + run.path() + "/histograms.csv: has no dx and no dy") == 0);
  options.scale = 2;
  CHECK(Refusal(options).find("2: --scale 2: policy dynamic chooses its scales itself") == 0);
  options.scale.reset();
  options.policy = "dynamics";
  CHECK(Refusal(options).find("2: --policy") == 0);
  options.policy = "fixed";
  CHECK(Refusal(options).find("2: --policy") == 0);
  options.policy = "";
  options.folder = "/nowhere";
  CHECK(Refusal(options).find("3: /nowhere") == 0);
  std::filesystem::remove(run.path() + "/histograms.csv");
  options.folder = run.path();
  CHECK(Refusal(options).find("log.histogram_every") != std::string::npos);
}

TEST_CASE("a run without a histogram yet") {
  MadeRun run("precision: {format: fp16}");
  run.Finish();
  WhatIfOptions options;
  options.folder = run.path();
  CHECK(Refusal(options).find("holds no histogram yet") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ada::study

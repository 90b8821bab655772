// What a run wrote, read back: rows equal those that were written, files of other versions, torn
// last rows, groups of histogram rows, and the messages for what is missing.
#include "study/run_files.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "error.h"
#include "study/run_histograms.h"
#include "study/written_run.h"
#include "telemetry/run_logs.h"
#include "temp_folder.h"

namespace ada::study {
namespace {

using testing::TempFolder;
using testing::WrittenRun;

std::vector<TensorHistogram> Histograms(const std::string& folder) {
  std::vector<TensorHistogram> rows;
  ReadHistograms(folder, [&](const TensorHistogram& row) { rows.push_back(row); });
  return rows;
}

std::vector<TensorRow> Tensors(const std::string& folder) {
  std::vector<TensorRow> rows;
  EachRow<TensorRow>(folder, [&](const TensorRow& row) { rows.push_back(row); });
  return rows;
}

// The message of the DataError that `call` throws.
template <class Call>
std::string Refusal(Call call) {
  try {
    call();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no DataError";
}

TEST_SUITE("cpu") {
  TEST_CASE("rows of a run come back as they were written") {
    const TempFolder folder;
    {
      telemetry::RunLogs logs(folder.path(), {});
      logs.Step({3, 2, 1.5, 0.25, 0.1, 1024, true, true, INFINITY});
      logs.Event({3, 2, "skip", "fc,1", "dx", "inf", "said \"no\",\nthen stopped"});
      logs.Evaluation({3, 2, "test", 500, 0.75, 0.5, 0.875});
      scaling::ScaleDecision decision;
      decision.limit = scaling::Limit::kCap;
      decision.scale_in = 2;
      decision.alpha = 4;
      decision.scale_out = 8;
      logs.Scale(3, 2, "fc,1", "adaptive", decision);
      logs.Flush();
    }
    int rows = 0;
    EachRow<StepRow>(folder.path(), [&](const telemetry::StepRow& row) {
      ++rows;
      CHECK(row.step == 3);
      CHECK(row.epoch == 2);
      CHECK(row.loss == 1.5);
      CHECK(row.accuracy == 0.25);
      CHECK(row.lr == 0.1);
      CHECK(row.scale == 1024);
      CHECK(row.overflow);
      CHECK(row.skipped);
      CHECK(row.grad_norm == INFINITY);
    });
    EachRow<EventRow>(folder.path(), [&](const telemetry::EventRow& row) {
      ++rows;
      CHECK(row.event == "skip");
      CHECK(row.layer == "fc,1");
      CHECK(row.tensor == "dx");
      CHECK(row.value == "inf");
      CHECK(row.message == "said \"no\",\nthen stopped");
    });
    EachRow<EvaluationRow>(folder.path(), [&](const telemetry::EvaluationRow& row) {
      ++rows;
      CHECK(row.split == "test");
      CHECK(row.images == 500);
      CHECK(row.loss == 0.75);
      CHECK(row.top1 == 0.5);
      CHECK(row.top5 == 0.875);
    });
    EachRow<ScaleRow>(folder.path(), [&](const ScaleRow& row) {
      ++rows;
      CHECK(row.layer == "fc,1");
      CHECK(row.policy == "adaptive");
      CHECK(row.scale_in == 2);
      CHECK(row.alpha == 4);
      CHECK(row.scale_out == 8);
      CHECK(row.limit == "cap");
      CHECK_FALSE(row.branch());
    });
    CHECK(rows == 4);
  }

  TEST_CASE("all columns of underflow.csv; empty ones are NaN") {
    const WrittenRun run;
    run.Append("underflow.csv",
               "5,1,fc,dx,fp16,16,10,1,2,3,4.5,6.5,7.5,8,9,11,12,0.25,0.5,-1,2,3,4,5,6,7,8\n"
               "5,1,fc,dw,fp32,1,10,10,10,0,,0,100,0,0,0,0,,0,0,0,0,0,,,,\n");
    const std::vector<TensorRow> rows = Tensors(run.path());
    REQUIRE(rows.size() == 2);
    const TensorRow& r = rows[0];
    CHECK(r.step == 5);
    CHECK(r.layer == "fc");
    CHECK(r.tensor == "dx");
    CHECK(r.format == "fp16");
    CHECK(r.scale == 16);
    CHECK(std::vector<std::int64_t>{r.numel, r.zeros_before, r.zeros_after, r.underflow,
                                    r.subnormal, r.overflow, r.inf,
                                    r.nan} == std::vector<std::int64_t>{10, 1, 2, 3, 8, 9, 11, 12});
    CHECK(std::vector<double>{r.underflow_pct_nonzero, r.underflow_pct_numel, r.below_min_pct,
                              r.min_abs.value(), r.max_abs, r.mean, r.std, r.l1, r.l2,
                              r.range_log2.value(), r.mse, r.sqnr_db} ==
          std::vector<double>{4.5, 6.5, 7.5, 0.25, 0.5, -1, 2, 3, 4, 5, 6, 7});
    CHECK(std::isnan(rows[1].underflow_pct_nonzero));
    CHECK(r.zero_denominators == 8);
    CHECK_FALSE(rows[1].zero_denominators.has_value());
    CHECK_FALSE(rows[1].min_abs.has_value());
    CHECK(std::isnan(rows[1].mse));
    CHECK(rows[1].below_min_pct == 100);
  }

  TEST_CASE("columns are found by name; those of later versions may be missing") {
    const TempFolder folder;
    folder.Write("underflow.csv",
                 "layer,step,tensor,underflow_pct_nonzero,new\nfc,7,dx,12.5,text\n");
    const std::vector<TensorRow> rows = Tensors(folder.path());
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].step == 7);
    CHECK(rows[0].epoch == 0);
    CHECK(rows[0].scale == 1);
    CHECK(rows[0].underflow_pct_nonzero == 12.5);
    CHECK(std::isnan(rows[0].sqnr_db));
    folder.Write("underflow.csv", "step,layer\n1,fc\n");
    CHECK(Refusal([&] { Tensors(folder.path()); }) ==
          folder.path() + "/underflow.csv:1: no column 'tensor'; the file has step,layer");
  }

  TEST_CASE("a torn last row is not read; a file without a header yet has no rows") {
    const WrittenRun run;
    run.Step(1, "2");
    run.Append("steps.csv", "2,1,1.5,0.5");
    int rows = 0;
    EachRow<StepRow>(run.path(),
                     [&](const telemetry::StepRow& row) { rows += static_cast<int>(row.step); });
    CHECK(rows == 1);
    run.files().Write("steps.csv", "");
    EachRow<StepRow>(run.path(),
                     [&](const telemetry::StepRow&) { FAIL("a row of an empty file"); });
    run.files().Write("steps.csv", "step,epo");
    EachRow<StepRow>(run.path(),
                     [&](const telemetry::StepRow&) { FAIL("a row of half a header"); });
  }

  TEST_CASE("a broken row is named with file and line") {
    const WrittenRun run;
    run.Step(1, "2");
    run.Append("steps.csv", "2,1,many,0.5,0.1,1,0,0,2\n");
    const auto read = [&] { EachRow<StepRow>(run.path(), [](const telemetry::StepRow&) {}); };
    CHECK(Refusal(read) == run.path() + "/steps.csv:3: column loss is 'many', expected a number");
  }

  TEST_CASE("rows of histograms.csv are grouped by step, layer and tensor") {
    const WrittenRun run;
    for (int step = 1; step <= 2; ++step) run.Step(step, "1");
    run.files().Write("histograms.csv", telemetry::Header<telemetry::HistogramRow>() +
                                            "\n1,1,fc,dx,16,-20,3\n1,1,fc,dx,16,-19,4\n"
                                            "1,1,fc,dx,16,zero,5\n1,1,fc,dw,1,-19,1\n"
                                            "2,1,fc,dw,1,inf,2\n2,1,fc,dw,1,nan,1\n"
                                            "2,1,conv,dw,1,280,9\n2,1,conv,dw,1,280,8\n"
                                            "3,1,fc,dx,16,-20,3\n");
    const std::vector<TensorHistogram> rows = Histograms(run.path());
    REQUIRE(rows.size() == 5);
    CHECK(rows[0].layer == "fc");
    CHECK(rows[0].tensor == "dx");
    CHECK(rows[0].scale == 16);
    CHECK(rows[0].bins[-20] == 3);
    CHECK(rows[0].bins[-19] == 4);
    CHECK(rows[0].bins.zeros == 5);
    CHECK(rows[1].tensor == "dw");
    CHECK(rows[1].bins[-19] == 1);
    CHECK(rows[1].bins.zeros == 0);
    CHECK(rows[2].step == 2);
    CHECK(rows[2].bins.inf == 2);
    CHECK(rows[2].bins.nan == 1);
    // An exponent that comes again is another attempt of the step. Step 3 has no row in steps.csv:
    // it may not be whole.
    CHECK(rows[3].bins[280] == 9);
    CHECK(rows[4].bins[280] == 8);
  }

  TEST_CASE("histograms come back as they were written; a retried step's attempts are apart") {
    const WrittenRun run;
    run.Step(1, "1");
    std::vector<ExponentBins> written(6);
    written[0][-280] = 1;
    written[0][280] = 5'000'000'000;
    written[0].nan = 2;
    written[1].zeros = 7;  // [2]: nothing at all
    written[3][0] = 4;
    written[4] = written[3];  // one tensor, three attempts: the rows follow each other
    written[5].inf = 1;
    const char* const tensors[] = {"dw", "dy", "w", "dx", "dx", "dx"};
    {
      telemetry::RunLogs logs(run.path(), {}, {.histograms = true});
      for (std::size_t i = 0; i < written.size(); ++i)
        logs.Histogram(1, 1, "fc", tensors[i], 65536, written[i]);
      logs.Step({1, 1, 1, 0.5, 0.1, 1, false, false, 1});
    }
    const std::vector<TensorHistogram> rows = Histograms(run.path());
    REQUIRE(rows.size() == written.size());
    for (std::size_t i = 0; i < written.size(); ++i) {
      CHECK(rows[i].tensor == tensors[i]);
      CHECK(rows[i].scale == 65536);
      CHECK((rows[i].bins == written[i]));
    }
  }

  TEST_CASE("steps that go back, that no run reaches, and counts below 0") {
    const WrittenRun run;
    run.Step(1, "1"), run.Step(2, "1");
    const std::string header = telemetry::Header<telemetry::HistogramRow>() + "\n";
    const std::string path = run.path() + "/histograms.csv:";
    const auto refusal = [&](const std::string& rows) {
      run.files().Write("histograms.csv", header + rows);
      return Refusal([&] { Histograms(run.path()); });
    };
    CHECK(refusal("2,1,fc,dx,16,3,3\n1,1,fc,dx,16,3,3\n") ==
          path + "3: column step is '1', expected at least 2: steps do not go back");
    CHECK(refusal("0,1,fc,dx,16,3,3\n") ==
          path + "2: column step is '0', expected at least 1: steps do not go back");
    CHECK(refusal("1,1,fc,dx,16,3,-3\n") ==
          path + "2: column count is '-3', expected none below 0");
    CHECK(refusal("1,1,fc,dx,16,3,9223372036854775807\n") ==
          path + "2: column count is '9223372036854775807', expected an integer of at most 10^12");
    // After the last whole step nothing is read; but steps.csv has a row for each of its steps.
    run.files().Write("histograms.csv", header + "1000000000,1,fc,dx,16,3,3\n");
    CHECK(Histograms(run.path()).empty());
    run.Step(1'000'000'000, "1");
    CHECK(Refusal([&] { Histograms(run.path()); }) ==
          run.path() +
              "/steps.csv:4: column step is '1000000000' in row 3: rows are missing, a run "
              "writes one for each step");
  }

  TEST_CASE("an exponent that cannot be") {
    const WrittenRun run;
    run.Step(1, "1");
    for (const char* exponent : {"281", "-281", "1.5", "", "zeros"}) {
      CAPTURE(exponent);
      run.files().Write("histograms.csv", telemetry::Header<telemetry::HistogramRow>() +
                                              "\n1,1,fc,dx,16," + exponent + ",3\n");
      CHECK(Refusal([&] { Histograms(run.path()); }) ==
            run.path() + "/histograms.csv:2: column exponent is '" + exponent +
                "', expected zero, inf, nan or an integer from -280 to 280");
    }
  }

  TEST_CASE("what is missing is named") {
    const WrittenRun run;
    CHECK(Refusal([&] { Histograms(run.path()); }) ==
          run.path() +
              "/histograms.csv: the run has no such file; log.histogram_every makes it: run again "
              "with --set log.histogram_every=100");
    CHECK_FALSE(HasFile(run.path(), "histograms.csv"));
    CHECK(HasFile(run.path(), "steps.csv"));
    const TempFolder empty;
    CHECK(Refusal([&] { Tensors(empty.path()); }) ==
          empty.path() +
              "/underflow.csv: the run has no such file; every run of this program "
              "writes it: is this the folder of a run?");
    CHECK(Refusal([&] { ReadRunConfig(empty.path()); }) ==
          empty.path() +
              ": holds no run, config.yaml is missing; expected the folder that a run "
              "of ada-train wrote");
    CHECK(Refusal([&] { ReadRunConfig(empty / "nothing"); }) ==
          empty / "nothing" + ": no such folder; expected the folder of a run");
    CHECK(ReadRunConfig(run.path()).name == "r");
  }
}

}  // namespace
}  // namespace ada::study

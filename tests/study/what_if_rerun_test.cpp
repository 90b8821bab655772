// what-if against reality: the same step run again at the scale, or in the format, that it was
// asked about. Everything but the gradient in question is fp32 and scales are powers of two, so
// that the rerun rounds the very values that the histogram counted.
#include <cmath>
#include <string>
#include <vector>

#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;

const std::string kText = std::string(kSmallNetwork) + R"(
seed: 5
scaling: {policy: fixed, scale: 1}
train: {max_steps: 3}
log: {every: 1, histogram_every: 1, statistics: [dx, dy]}
)";

// The gradient format of `maker` alone decides how `layer`.dx is rounded.
struct Case {
  std::string maker, layer, recorded_in, asked_for, scale;
};
const Case kCases[] = {
    {"fc", "loss", "fp16", "fp16", "64"},
    {"fc", "loss", "fp16", "fp8_e4m3", "1"},
    {"fc", "loss", "fp8_e4m3", "fp8_e4m3", "1024"},
    {"fc", "loss", "fp32", "fp8_e5m2", "8"},
    {"fc", "loss", "fp8_e5m2", "fp8_e4m3", "65536"},
    {"bn1", "conv2", "fp16", "fp8_e5m2", "1"},
    {"bn1", "conv2", "fp8_e4m3", "fp8_e4m3", "256"},
    {"bn1", "conv2", "fp16", "fp16", "0.0009765625"},
    {"bn1", "conv2", "fp16", "fp8_e4m3", "1048576"},
};

Arguments Options(const Case& c, const std::string& format, const std::string& scale) {
  return {"--set",
          "precision={format: fp32, layers: [{match: " + c.maker + ", gradients: " + format + "}]}",
          "--set", "scaling.scale=" + scale};
}

// The row of `layer`.dx in step 1.
GoldenRow FirstRow(const Table& table, const std::string& layer) {
  for (const GoldenRow& row : table)
    if (row.at("step") == "1" && row.at("layer") == layer && row.at("tensor") == "dx") return row;
  throw std::runtime_error("no row of " + layer + ".dx");
}
double Field(const GoldenRow& row, const std::string& name) { return std::stod(row.at(name)); }

TEST_SUITE("cpu") {
  TEST_CASE("what-if tells what the rerun counts") {
    double underflow = 0, overflow = 0;
    for (const Case& c : kCases) {
      CAPTURE(c.layer);
      CAPTURE(c.recorded_in);
      CAPTURE(c.asked_for);
      CAPTURE(c.scale);
      const TempFolder folder;
      const Arguments run = WriteConfig(folder, "run", kText);
      const Arguments rerun = WriteConfig(folder, "rerun", kText);
      ADA_REQUIRE_EXIT(Run(With(run, Options(c, c.recorded_in, "1")), folder.path()), 0);
      ADA_REQUIRE_EXIT(Run(With(rerun, Options(c, c.asked_for, c.scale)), folder.path()), 0);
      const Outcome told =
          Run({"what-if", "run", "--format", c.asked_for, "--scale", c.scale}, folder.path());
      ADA_REQUIRE_EXIT(told, 0);
      WriteBytes(folder / "told.csv", told.out);
      const GoldenRow said = FirstRow(ReadCsv(folder / "told.csv"), c.layer);
      const GoldenRow was = FirstRow(ReadCsv(folder / "rerun/underflow.csv"), c.layer);
      const double nonzero = Field(was, "numel") - Field(was, "zeros_before");
      const double predicted = std::round(Field(said, "underflow_pct_nonzero") * nonzero / 100);
      const double unsure = std::round(Field(said, "underflow_unsure_pct") * nonzero / 100);
      // The threshold is a power of two, the lower end of its bin: only values equal to it are
      // more.
      CHECK(Field(was, "underflow") >= predicted);
      CHECK(Field(was, "underflow") <= predicted + unsure);
      CHECK(std::fabs(Field(was, "overflow") - Field(said, "overflow")) <=
            Field(said, "overflow_unsure"));
      underflow += predicted, overflow += Field(said, "overflow");
    }
    CHECK(underflow > 100);
    CHECK(overflow > 100);
  }
}

}  // namespace
}  // namespace ada::testing

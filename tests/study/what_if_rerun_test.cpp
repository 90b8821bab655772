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

  TEST_CASE("what-if tells of a finished run what log.what_if told in it") {
    struct Asked {
      const char *precision, *scaling, *entry;
      Arguments options;
    };
    const Asked asked[] = {
        // A format of one's own that saturates: its name in the log is that of fp8_e5m2.
        {"{format: fp16, gradients: {exponent: 5, mantissa: 2, saturate: true}}",
         "{policy: fixed, scale: 1}",
         "{name: asked, scaling: {policy: dynamic, preset: pytorch, growth_interval: 1}}",
         {"--policy", "dynamic", "--set", "scaling.preset=pytorch", "--set",
          "scaling.growth_interval=1"}},
        // The same name, and only gradients saturate.
        {"{format: fp8_e5m2, gradients: {exponent: 5, mantissa: 2, saturate: true}}",
         "{policy: fixed, scale: 1048576}",
         "{name: asked, scaling: {policy: dynamic, preset: pytorch, growth_interval: 1}}",
         {"--policy", "dynamic", "--set", "scaling.preset=pytorch", "--set",
          "scaling.growth_interval=1"}},
        {"{format: fp8_e5m2, schedule: [{from_step: 6, format: bf16}]}",
         "{policy: fixed, scale: 1}",
         "{name: asked, scale: 0.25}",
         {"--scale", "0.25"}},
        {"{format: fp8_e4m3, tensor_scaling: delayed}",
         "{policy: fixed, scale: 8}",
         "{name: asked, scaling: {policy: fixed, scale: 2}}",
         {"--policy", "fixed", "--scale", "2"}},
        {"{format: fp16, tensor_scaling: delayed}",
         "{policy: none}",
         "{name: asked, scaling: {policy: dynamic, growth_interval: 2}}",
         {"--policy", "dynamic", "--set", "scaling.growth_interval=2"}},
    };
    for (const Asked& a : asked) {
      CAPTURE(std::string(a.precision));
      const TempFolder folder;
      const std::string text = std::string(kSmallNetwork) + "\nseed: 5\nscaling: " + a.scaling +
                               "\ntrain: {max_steps: 12}\nlog: {every: 1, histogram_every: 1, "
                               "what_if: [" +
                               a.entry + "]}\n";
      const Arguments run = With(WriteConfig(folder, "run", text),
                                 {"--set", std::string("precision=") + a.precision});
      ADA_REQUIRE_EXIT(Run(run, folder.path()), 0);
      const Outcome told = Run(With({"what-if", "run", "--csv"}, a.options), folder.path());
      ADA_REQUIRE_EXIT(told, 0);
      WriteBytes(folder / "told.csv", told.out);
      Table during = ReadCsv(folder / "run/what_if.csv"), after = ReadCsv(folder / "told.csv");
      REQUIRE(during.size() > 20);
      REQUIRE(after.size() == during.size());
      for (std::size_t i = 0; i < during.size(); ++i) {
        during[i].erase("scenario"), after[i].erase("scenario");
        CHECK(during[i] == after[i]);
      }
    }
  }
}

}  // namespace
}  // namespace ada::testing

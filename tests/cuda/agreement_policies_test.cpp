// Runs under every policy on the CUDA backend against the CPU's: the same steps are skipped, the
// same scales are decided, and losses stay as near as rounding lets them. Then the same runs op by
// op through the compare backend, where nothing may differ.
#include <doctest/doctest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "compare/training_run.h"
#include "cuda/agreement_lab.h"
#include "train/small_run.h"

namespace ada::backend::test {
namespace {

using testing::Table;

const std::string& Text() {
  static const std::string text =
      std::string(testing::kSmallNetwork) +
      "name: small\nseed: 5\ntrain: {max_steps: 5, accumulate: 2}\ncheckpoint: {best: false}\n"
      "log: {every: 2, statistics: [y, w, dx, dw, dy]}\n";
  return text;
}

struct Variant {
  std::string name;
  config::Overrides overrides;
  bool drifts = false;  // narrow formats or scales that are no powers of two amplify differences
};
// Every policy; scales that overflow at first, so that steps are skipped, cleaned and
// tried again.
std::vector<Variant> Variants() {
  const auto scaling = [](const char* name, const char* value, bool drifts = false) {
    return Variant{name, {{"scaling", value}}, drifts};
  };
  std::vector<Variant> all = {
      scaling("none", "{policy: none}"),
      scaling("fixed", "{policy: fixed, scale: 1024}"),
      scaling("approx_range", "{policy: adaptive}"),
      scaling("lognormal", "{policy: adaptive, method: lognormal, update_interval: 4}"),
      scaling("abs_range", "{policy: adaptive, method: abs_range}"),
      scaling("element_wise_range", "{policy: adaptive, method: element_wise_range}"),
      scaling("exact_range", "{policy: adaptive, method: exact_range, init_scale: 0.001}"),
      scaling("reference", "{policy: adaptive, reference: true, fan: reference}", true),
      scaling("layerwise_dynamic",
              "{policy: layerwise_dynamic, init_scale: 1e7, growth_interval: 3, layers: [{match: "
              "fc, init_scale: 64}]}"),
      scaling("logmax", "{policy: logmax}", true),
      scaling("histogram", "{policy: histogram, init_scale: 1e7, update_period: 4}"),
      scaling("nnabla", "{policy: dynamic, preset: nnabla, init_scale: 1e9, growth_interval: 3}"),
      scaling("cerebras", "{policy: dynamic, preset: cerebras, init_scale: 1e8}"),
      scaling("marian", "{policy: dynamic, preset: marian, init_scale: 1e8, min_scale: 1e8}",
              true)};
  all.push_back({"stochastic", {{"precision.rounding", "stochastic"}}, true});
  all.push_back({"bf16", {{"precision.format", "bf16"}}});
  all.push_back({"fp32", {{"precision.format", "fp32"}}});
  all.push_back(
      {"adamw, clipped", {{"optimizer", "{kind: adamw, lr: 0.001}"}, {"train.clip_norm", "0.1"}}});
  all.push_back({"delayed",
                 {{"precision",
                   "{format: fp8_e4m3, gradients: fp8_e5m2, tensor_scaling: {kind: delayed, "
                   "history: 4}}"},
                  {"scaling", "{policy: none}"}},
                 true});
  return all;
}

// Presets: the same ops under other state machines.
std::vector<Variant> Presets() {
  std::vector<Variant> all;
  for (const char* preset : {"pytorch", "tensorflow", "keras", "apex", "deepspeed", "megatron",
                             "fairseq", "openseq2seq_backoff", "mindspore", "paddle", "jmp"})
    all.push_back({preset,
                   {{"scaling", std::string("{policy: dynamic, preset: ") + preset +
                                    ", growth_interval: 2}"}}});
  return all;
}

double Number(const testing::GoldenRow& row, const std::string& column) {
  return std::stod(row.at(column));
}

void CheckSteps(const Table& cpu, const Table& cuda, double bound) {
  REQUIRE(cpu.size() == cuda.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    CAPTURE(i);
    for (const char* column : {"step", "epoch", "lr", "skipped"})
      CHECK(cpu[i].at(column) == cuda[i].at(column));
    if (bound < 0.5) CHECK(cpu[i].at("scale") == cuda[i].at("scale"));
    const double a = Number(cpu[i], "loss"), b = Number(cuda[i], "loss");
    CHECK((std::fabs(a - b) <= bound * std::fabs(a) || (std::isnan(a) && std::isnan(b))));
  }
}
void CheckScales(const Table& cpu, const Table& cuda) {
  REQUIRE(cpu.size() == cuda.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    CAPTURE(cpu[i].at("layer"));
    for (const char* column : {"step", "layer", "alpha", "scale_in", "scale_out", "limit"})
      CHECK(cpu[i].at(column) == cuda[i].at(column));
  }
}
// What is no matter of luck: numbers of values, formats, scales.
void CheckCounts(const Table& cpu, const Table& cuda) {
  REQUIRE(cpu.size() == cuda.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    CAPTURE(cpu[i].at("layer"));
    CAPTURE(cpu[i].at("tensor"));
    for (const char* column : {"step", "layer", "tensor", "numel", "inf", "nan"})
      CHECK(cpu[i].at(column) == cuda[i].at(column));
    CHECK(std::fabs(Number(cpu[i], "underflow") - Number(cuda[i], "underflow")) <=
          2 + 0.02 * Number(cpu[i], "numel"));
  }
}

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("agreement: runs under every policy, each backend by itself") {
    std::vector<Variant> all = Variants();
    for (const Variant& preset : Presets()) all.push_back(preset);
    for (const Variant& variant : all) {
      CAPTURE(variant.name);
      const testing::TempFolder folder;
      const auto cpu = cpu::MakeCpuBackend(1), cuda = MakeBackendUnderTest();
      TrainOn(*cpu, Text(), variant.overrides, folder.path() + "/cpu");
      TrainOn(*cuda, Text(), variant.overrides, folder.path() + "/cuda");
      const auto table = [&](const char* side, const char* name) {
        return testing::ReadCsv(folder.path() + "/" + side + "/" + name);
      };
      CheckSteps(table("cpu", "steps.csv"), table("cuda", "steps.csv"),
                 variant.drifts ? 0.5 : 0.02);
      if (variant.drifts) continue;
      CheckScales(table("cpu", "scales.csv"), table("cuda", "scales.csv"));
      CheckCounts(table("cpu", "underflow.csv"), table("cuda", "underflow.csv"));
    }
  }

  TEST_CASE("agreement: runs under every policy, op by op") {
    for (const Variant& variant : Variants()) {
      CAPTURE(variant.name);
      const testing::TempFolder folder;
      CompareOptions options;
      options.first_name = "cpu", options.second_name = "cuda", options.slack = kSlack;
      const auto both = MakeCompareBackend(cpu::MakeCpuBackend(1), MakeBackendUnderTest(), options);
      CHECK_NOTHROW(TrainOn(*both, Text(), variant.overrides, folder.path()));
    }
  }
}

}  // namespace
}  // namespace ada::backend::test

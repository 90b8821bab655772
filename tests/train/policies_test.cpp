// Every policy, method and way of rounding in whole runs: the same bytes for any number of threads
// and after a stop and resume; and what a step does where gradients are not finite.
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;

constexpr char kRest[] = R"(
name: small
seed: 5
train: {epochs: 3, accumulate: 2}
log: {every: 3, statistics: [y, w, dx, dw, dy]}
)";

std::string Network() { return std::string(kSmallNetwork) + kRest; }

// Settings of one variant: what it adds to the small network.
const std::map<std::string, Arguments>& Variants() {
  static const std::map<std::string, Arguments> variants = {
      {"lognormal", {"scaling={policy: adaptive, method: lognormal, update_interval: 4}"}},
      {"abs_range", {"scaling={policy: adaptive, method: abs_range}"}},
      {"element_wise_range", {"scaling={policy: adaptive, method: element_wise_range}"}},
      {"exact_range", {"scaling={policy: adaptive, method: exact_range, init_scale: 0.001}"}},
      {"batch norms", {"scaling={policy: adaptive, batch_norm: true, update_interval: 4}"}},
      {"batch norms, exact_range",
       {"scaling={policy: adaptive, method: exact_range, batch_norm: true, init_scale: 0.001}"}},
      {"reference", {"scaling={policy: adaptive, reference: true, fan: reference}"}},
      {"layerwise_dynamic",
       {"scaling={policy: layerwise_dynamic, init_scale: 1e7, growth_interval: 3, layers: [{match: "
        "fc, init_scale: 64}]}"}},
      {"logmax", {"scaling={policy: logmax}"}},
      {"histogram", {"scaling={policy: histogram, init_scale: 1e7, update_period: 4}"}},
      {"nnabla",
       {"scaling={policy: dynamic, preset: nnabla, init_scale: 1e9, growth_interval: 3}"}},
      {"cerebras", {"scaling={policy: dynamic, preset: cerebras, init_scale: 1e8}"}},
      {"marian", {"scaling={policy: dynamic, preset: marian, init_scale: 1e8, min_scale: 1e8}"}},
      {"stochastic", {"precision.rounding=stochastic"}},
      {"delayed",
       {"precision={format: fp8_e4m3, gradients: fp8_e5m2, tensor_scaling: {kind: delayed, "
        "history: "
        "4}}",
        "scaling={policy: none}"}},
      {"delayed adaptive",
       {"precision={format: fp8_e4m3, gradients: fp8_e5m2, tensor_scaling: {kind: delayed, "
        "history: "
        "4, power_of_two: true, margin: 1}, rounding: stochastic}"}},
      {"roles and layers",
       {"precision={format: fp16, gradients: fp8_e5m2, weight_gradients: bf16, layers: [{match: "
        "fc, "
        "format: fp32}, {match: 'conv2', weights: {exponent: 4, mantissa: 5}}]}",
        "scaling={policy: adaptive}"}},
  };
  return variants;
}

Arguments Settings(const Arguments& settings) {
  Arguments arguments;
  for (const std::string& setting : settings) arguments = With(arguments, {"--set", setting});
  return arguments;
}

// Trains the small network with `settings` and returns the folder.
std::string Train(const TempFolder& folder, const std::string& name, const Arguments& settings,
                  const Arguments& more = {}) {
  const Arguments arguments =
      With(With(WriteConfig(folder, name, Network()), Settings(settings)), more);
  ADA_REQUIRE_EXIT(Run(arguments, folder.path()), 0);
  return folder / name;
}

TEST_SUITE("cpu") {
  TEST_CASE("every policy: threads and resumes change no byte") {
    for (const auto& [name, settings] : Variants()) {
      CAPTURE(name);
      const TempFolder folder;
      const std::string whole = Train(folder, "whole", settings, {"--threads", "1"});
      Train(folder, "parts", settings, {"--threads", "3", "--set", "train.max_steps=4"});
      Train(folder, "parts", settings,
            {"--threads", "2", "--resume", "--set", "train.max_steps=9"});
      const std::string parts = Train(folder, "parts", settings, {"--resume"});
      CHECK(Differences(whole, parts, Ends::kSeveral) == std::vector<std::string>{});
      const Table steps = ReadCsv(whole + "/steps.csv");
      REQUIRE(steps.size() == 18);
      CHECK(Number(steps.back(), "loss") < 10);
    }
  }

  TEST_CASE("every preset resolves to a configuration that reads back, and knows its own keys") {
    const TempFolder folder;
    folder.Write("small.yaml", Network());
    const Outcome list = Run({"policies"}, folder.path());
    std::istringstream lines(list.out);
    std::set<std::string> presets;
    const std::string prefix = "dynamic, preset ";
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(prefix))
        presets.insert(line.substr(prefix.size(), line.find(':') - prefix.size()));
    CHECK(presets.size() == 20);
    const Arguments print = {"--config", "small.yaml", "--print-config", "--set"};
    for (const std::string& preset : presets) {
      CAPTURE(preset);
      const std::string scaling = "scaling={policy: dynamic, preset: " + preset;
      const Outcome plain = Run(With(print, {scaling + "}"}), folder.path());
      ADA_REQUIRE_EXIT(plain, 0);
      folder.Write("resolved.yaml", plain.out);
      const Outcome again = Run({"--config", "resolved.yaml", "--print-config"}, folder.path());
      CHECK(again.out == plain.out);
      for (const char* key : {"hysteresis: 3", "consecutive_hysteresis: true", "tolerance: 0.1"}) {
        const std::string name = std::string(key).substr(0, std::string(key).find(':'));
        const Outcome o = Run(With(print, {scaling + ", " + key + "}"}), folder.path());
        const bool known = Contains(plain.out, "\n  " + name + ": ");
        CHECK(o.code == (known ? 0 : 2));
        CHECK(Contains(known ? o.out : o.err, known ? key : "does not belong to preset"));
      }
    }
  }

  TEST_CASE("retry: the schedule waits, the next batch tries the same update") {
    const TempFolder folder;
    const Arguments linear = {"schedule={kind: linear}", "train.epochs=4"};
    const std::string skip =
        Train(folder, "skip", With(linear, {"scaling={policy: dynamic, init_scale: 1e9}"}));
    const std::string retry = Train(
        folder, "retry",
        With(linear, {"scaling={policy: dynamic, init_scale: 1e9}", "train.on_overflow=retry"}));
    const Table skipped = ReadCsv(skip + "/steps.csv"), retried = ReadCsv(retry + "/steps.csv");
    REQUIRE(skipped.size() == retried.size());
    REQUIRE(Number(skipped[0], "skipped") == 1);
    std::int64_t updates = 0;
    for (std::size_t i = 0; i < skipped.size(); ++i) {
      CHECK(Number(retried[i], "lr") == Number(skipped[updates], "lr"));
      updates += Number(retried[i], "skipped") == 0 ? 1 : 0;
    }
    CHECK(Number(skipped.back(), "lr") < Number(retried.back(), "lr"));
    CHECK(RowsWhere(ReadCsv(retry + "/events.csv"), "event", "retry").size() ==
          RowsWhere(retried, "skipped", "1").size());
    CHECK(RowsWhere(ReadCsv(skip + "/events.csv"), "event", "skip").size() ==
          RowsWhere(skipped, "skipped", "1").size());
  }

  TEST_CASE("retries are limited: then the step is given up and the schedule moves") {
    const TempFolder folder;
    const std::string run =
        Train(folder, "run",
              {"schedule={kind: linear}", "train.epochs=2", "train.on_overflow=retry",
               "train.max_retries=2", "scaling={policy: fixed, scale: 1e30}"});
    const Table steps = ReadCsv(run + "/steps.csv");
    REQUIRE(steps.size() == 12);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      CHECK(Number(steps[i], "skipped") == 1);
      CHECK(steps[i].at("lr") == steps[i - i % 3].at("lr"));
    }
    CHECK(Number(steps[3], "lr") < Number(steps[2], "lr"));
    const Table events = ReadCsv(run + "/events.csv");
    CHECK(RowsWhere(events, "event", "retry").size() == 8);
    CHECK(RowsWhere(events, "event", "skip").size() == 4);
  }

  TEST_CASE("a policy that ends the run: exit 5, the reason, nothing lost") {
    const TempFolder folder;
    const Arguments arguments =
        With(WriteConfig(folder, "run", Network()),
             Settings({"scaling={policy: dynamic, preset: deepspeed, init_scale: 1e9, min_scale: "
                       "1e9, hysteresis: 1}"}));
    const Outcome o = Run(arguments, folder.path());
    CHECK(o.code == 5);
    CHECK(Contains(o.err, "stopped by policy dynamic at step 1"));
    const std::string run = folder / "run";
    CHECK(ReadCsv(run + "/steps.csv").size() == 1);
    CHECK(RowsWhere(ReadCsv(run + "/events.csv"), "event", "policy_end").size() == 1);
    CHECK(Checkpoints(run, ".json").size() == 1);
  }

  TEST_CASE("marian at its floor: cleaned gradients, and the update is made") {
    const TempFolder folder;
    const std::string run =
        Train(folder, "run",
              {"scaling={policy: dynamic, preset: marian, init_scale: 1e8, min_scale: 1e8}",
               "train.epochs=1", "train.clip_norm=1"});
    const Table steps = ReadCsv(run + "/steps.csv");
    const Table cleaned = RowsWhere(steps, "overflow", "1");
    REQUIRE(!cleaned.empty());
    CHECK(RowsWhere(steps, "skipped", "1").empty());
    CHECK(RowsWhere(ReadCsv(run + "/events.csv"), "event", "sanitize").size() == cleaned.size());
    for (const GoldenRow& step : steps) CHECK(std::isfinite(Number(step, "loss")));
  }

  TEST_CASE("marian at scales below 1: gradients are cut to what fp32 holds") {
    // The largest value of these formats, unscaled, is beyond fp32; the update is made all the
    // same.
    for (const char* format : {"fp32", "bf16"}) {
      for (const char* scale : {"0.5", "1.2e-38"}) {
        CAPTURE(format);
        CAPTURE(scale);
        const TempFolder folder;
        const std::string run = Train(
            folder, "run",
            {"scaling={policy: dynamic, preset: marian, init_scale: " + std::string(scale) + "}",
             "train={max_steps: 3, clip_norm: 1}", "optimizer.lr=1e30",
             "precision={format: " + std::string(format) + "}"});
        CHECK(RowsWhere(ReadCsv(run + "/steps.csv"), "skipped", "0").size() == 3);
      }
    }
  }

  TEST_CASE("layerwise: only the layers that overflow fall, and the step is skipped") {
    const TempFolder folder;
    const std::string run =
        Train(folder, "run",
              {"scaling={policy: layerwise_dynamic, init_scale: 64, growth_interval: 100, layers: "
               "[{match: conv2, init_scale: 1e9}]}",
               "train={epochs: 4, accumulate: 1}", "log.every=1"});
    const Table steps = ReadCsv(run + "/steps.csv"), scales = ReadCsv(run + "/scales.csv");
    REQUIRE(Number(steps[0], "skipped") == 1);
    const Table fc = RowsWhere(scales, "layer", "fc"), conv2 = RowsWhere(scales, "layer", "conv2");
    std::int64_t skips = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      CHECK(Number(fc[i], "scale_out") == 64);  // S of the logit gradient too
      CHECK(Number(steps[i], "scale") == 64);
      CHECK(fc[i].at("limit") == "state");
      CHECK(Number(conv2[i], "scale_out") ==
            static_cast<double>(static_cast<float>(std::ldexp(1e9, -static_cast<int>(skips)))));
      skips += Number(steps[i], "skipped") == 1 ? 1 : 0;
    }
    CHECK(skips > 3);
    CHECK(skips < 24);
  }

  // relu1 passes nothing on, so that no weight gradient has what overflows in conv2.dx.
  TEST_CASE("layerwise: an overflow that a mask keeps out of the weight gradients is named") {
    const TempFolder folder;
    const std::string run =
        Train(folder, "run",
              {"scaling={policy: layerwise_dynamic, init_scale: 64, layers: [{match: conv2, "
               "init_scale: 1e9}]}",
               "model.init={parameters: [{match: bn1.bias, scheme: constant, value: -100}, {match: "
               "conv2.bias, scheme: constant, value: 1}]}",
               "train={epochs: 2, accumulate: 1}", "log.every=1"});
    const Table skipped = RowsWhere(ReadCsv(run + "/steps.csv"), "skipped", "1");
    const Table events = RowsWhere(ReadCsv(run + "/events.csv"), "event", "skip");
    REQUIRE(!skipped.empty());
    CHECK(events.size() == skipped.size());
    for (const GoldenRow& row : skipped) CHECK(row.at("overflow") == "1");
    for (const GoldenRow& row : events)
      CHECK(row.at("layer") + "." + row.at("tensor") == "conv2.dx");
  }

  TEST_CASE("a scale layer between an fp16 body and an fp32 head") {
    const TempFolder folder;
    std::string text = Network();
    const std::string fc = "    - {name: fc, kind: linear";
    text.insert(text.find(fc), "    - {name: cast, kind: scale}\n");
    const Arguments arguments =
        With(WriteConfig(folder, "run", text),
             Settings({"precision={format: fp16, layers: [{match: fc, format: fp32}, {match: cast, "
                       "format: fp32}]}",
                       "scaling={policy: adaptive, scale_upper_bound: 4096, accum_upper_bound: "
                       "65536, init_scale: 1e-5}",
                       "log.every=1"}));
    ADA_REQUIRE_EXIT(Run(arguments, folder.path()), 0);
    const Table rows = RowsWhere(ReadCsv(folder / "run/underflow.csv"), "layer", "cast");
    std::set<std::string> formats;
    for (const GoldenRow& row : rows) formats.insert(row.at("tensor") + " " + row.at("format"));
    CHECK(formats == std::set<std::string>{"dx fp16", "y fp32"});
    for (const GoldenRow& row : RowsWhere(ReadCsv(folder / "run/scales.csv"), "layer", "cast")) {
      CHECK(row.at("limit") == "target");
      CHECK(Number(row, "alpha") > 1);
    }
  }
}

}  // namespace
}  // namespace ada::testing

// Which keys a resumed run may change: one row a key, found by comparing whole documents.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "config/load.h"

namespace ada::config {

namespace {

constexpr char kFile[] =
    "data: {dataset: mnist, path: a}\nmodel: {zoo: mlp}\noptimizer: {lr: 0.1}\n"
    "scaling: {policy: adaptive, layers: [{match: fc1, underflow_target: 1e-4}]}\n";

Config Set(const Overrides& overrides) { return LoadText(kFile, "f.yaml", overrides).config; }

using Lines = std::vector<std::string>;

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("the same configuration has no conflicts") {
    CHECK(ResumeConflicts(Set({}), Set({})).empty());
    CHECK(ResumeConflicts(Set({}), LoadText(ToYaml(Set({})), "config.yaml", {}).config).empty());
  }

  TEST_CASE("free keys") {
    for (const auto& item : Overrides{{"train.epochs", "9"},
                                      {"train.max_steps", "9"},
                                      {"train.max_minutes", "9"},
                                      {"train.stop_after_skips", "9"},
                                      {"checkpoint.every_epochs", "9"},
                                      {"checkpoint.every_steps", "9"},
                                      {"checkpoint.keep", "9"},
                                      {"checkpoint.best", "false"},
                                      {"log.dump_on", "skip"},
                                      {"log.every", "9"},
                                      {"log.statistics", "[y]"},
                                      {"log.probe_every", "3"},
                                      {"log.histogram_every", "2"},
                                      {"log.dump_every", "4"},
                                      {"log.alert_underflow_pct", "1"},
                                      {"log.tensorboard", "true"},
                                      {"device.threads", "9"},
                                      {"device.kind", "cpu"},
                                      {"evaluate.every_epochs", "9"},
                                      {"name", "x"},
                                      {"output", "x"},
                                      {"data.path", "x"}}) {
      CAPTURE(item.first);
      CHECK(ToYaml(Set({item})) != ToYaml(Set({})));
      CHECK(ResumeConflicts(Set({}), Set({item})).empty());
    }
    const Overrides scenarios = {{"log.histogram_every", "2"},
                                 {"log.what_if", "[{scale: 8}, {scaling: {policy: dynamic}}]"},
                                 {"log.dump_every", "4"},
                                 {"log.dump", "[fc]"}};
    CHECK(ToYaml(Set(scenarios)) != ToYaml(Set({})));
    CHECK(ResumeConflicts(Set({}), Set(scenarios)).empty());
    CHECK(ResumeConflicts(Set(scenarios), Set({})).empty());
  }

  TEST_CASE("bound keys: exact lines") {
    struct Row {
      Overrides overrides;
      Lines conflicts;
    };
    const std::vector<Row> rows = {
        {{{"seed", "2"}}, {"seed: 1 -> 2"}},
        {{{"data.batch_size", "64"}}, {"data.batch_size: 128 -> 64"}},
        {{{"data.augment.pad", "4"}}, {"data.augment.pad: 0 -> 4"}},
        {{{"data.limit.train", "10"}}, {"data.limit.train: 0 -> 10"}},
        {{{"data.normalize", "none"}}, {"data.normalize: standard -> none"}},
        {{{"data.normalize", "{mean: [0], std: [1]}"}},
         {"data.normalize: standard -> (not set)", "data.normalize.mean: (not set) -> [0]",
          "data.normalize.std: (not set) -> [1]"}},
        {{{"model.hidden", "[8]"}}, {"model.hidden: [512, 512] -> [8]"}},
        {{{"model.init.scheme", "he_uniform"}}, {"model.init.scheme: he_normal -> he_uniform"}},
        {{{"precision.format", "fp16"}}, {"precision.format: fp32 -> fp16"}},
        {{{"precision.gradients", "bf16"}}, {"precision.gradients: (not set) -> bf16"}},
        {{{"precision.layers", "[{match: fc1, format: fp16}]"}},
         {"precision.layers: [] -> [{match: fc1, format: fp16}]"}},
        {{{"precision.rounding", "stochastic"}}, {"precision.rounding: nearest -> stochastic"}},
        {{{"precision.overflow", "saturate"}}, {"precision.overflow: default -> saturate"}},
        {{{"precision.tensor_scaling", "{kind: delayed, history: 4}"}},
         {"precision.tensor_scaling.amax: (not set) -> max",
          "precision.tensor_scaling.history: (not set) -> 4",
          "precision.tensor_scaling.kind: none -> delayed",
          "precision.tensor_scaling.margin: (not set) -> 0",
          "precision.tensor_scaling.power_of_two: (not set) -> false",
          "precision.tensor_scaling.reference: (not set) -> false"}},
        {{{"scaling.method", "abs_range"}}, {"scaling.method: approx_range -> abs_range"}},
        {{{"scaling.headroom_bits", "2"}}, {"scaling.headroom_bits: 4 -> 2"}},
        {{{"scaling.init_scale", "2"}}, {"scaling.init_scale: (not set) -> 2"}},
        {{{"scaling.reference", "true"}},
         {"scaling.fan: exact -> reference", "scaling.reference: false -> true"}},
        {{{"train.on_overflow", "retry"}}, {"train.on_overflow: (not set) -> retry"}},
        {{{"train.max_retries", "3"}}, {"train.max_retries: 100 -> 3"}},
        {{{"scaling.underflow_target", "0.5"}}, {"scaling.underflow_target: 0.001 -> 0.5"}},
        {{{"scaling.layers", "[]"}},
         {"scaling.layers: [{match: fc1, underflow_target: 1.0e-04}] -> []"}},
        {{{"optimizer.lr", "0.2"}, {"optimizer.momentum", "0.9"}},
         {"optimizer.lr: 0.1 -> 0.2", "optimizer.momentum: 0 -> 0.9"}},
        {{{"schedule.warmup", "{epochs: 1, lr: 0.1}"}},
         {"schedule.warmup.epochs: 0 -> 1", "schedule.warmup.lr: 0 -> 0.1"}},
        {{{"train.accumulate", "2"}, {"train.epochs", "5"}}, {"train.accumulate: 1 -> 2"}},
        {{{"train.clip_norm", "1"}}, {"train.clip_norm: 0 -> 1"}},
        {{{"train.label_smoothing", "0.1"}}, {"train.label_smoothing: 0 -> 0.1"}},
    };
    for (const Row& row : rows) {
      CAPTURE(row.overrides.front().first);
      CHECK(ResumeConflicts(Set({}), Set(row.overrides)) == row.conflicts);
    }
  }

  TEST_CASE("another policy: all of its keys, old and new") {
    const Lines conflicts =
        ResumeConflicts(Set({}), Set({{"scaling", "{policy: fixed, scale: 8}"}}));
    CHECK(conflicts.front() == "scaling.accum_upper_bound: 1024 -> (not set)");
    CHECK(conflicts.back() == "scaling.update_interval: 1 -> (not set)");
    CHECK(conflicts.size() == 12);
  }
}

}  // namespace ada::config

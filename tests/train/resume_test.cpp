// A run that is stopped and resumed is, byte for byte, the run that never stopped. Here: stops at
// chosen steps, extensions, damaged checkpoints, refusals. Signals and kills: interrupt_test.cpp.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;

// `text` with more keys after those that end with `after`.
std::string Extended(std::string text, const std::string& after, const std::string& keys) {
  return text.insert(text.find(after) + after.size(), ", " + keys);
}

// The small network with all that draws or keeps something of its own in each update.
std::string RecipeNetwork() {
  std::string text = kSmallNetwork;
  text = Extended(text, "horizontal_flip: true", "mixup: {alpha: 0.4}, cutmix: {alpha: 1}");
  text = Extended(text, "{format: fp16",
                  "masters: {format: bf16, rounding: stochastic}, optimizer_state: fp16");
  return Extended(text, "weight_decay: 1e-4",
                  "velocity: steps, groups: [{match: '*.bias', lr_factor: 2, decay_factor: 0}]");
}

// The small network with switches of its precision: scales of tensors that stay, go and come, an
// alpha under other formats.
std::string SwitchedNetwork() {
  return Extended(kSmallNetwork, "{format: fp16", R"(
  tensor_scaling: {kind: delayed, history: 4},
  operands: {x: fp8_e4m3, w: fp8_e4m3, dy: fp8_e5m2, tensor_scaling: {kind: delayed, history: 3}},
  schedule: [{from_step: 4, gradients: bf16, recipe: te_nvfp4},
             {from_step: 9, recipe: none, layers: [{match: conv*, format: bf16}]},
             {from_step: 13, format: fp32,
              operands: {x: fp8_e5m2, tensor_scaling: {kind: delayed, history: 2}}}])");
}

// The small network with stochastic rounding.
std::string DrawnNetwork() {
  return Extended(kSmallNetwork, "{format: fp16", "rounding: stochastic");
}

// Every kind of state there is: a scale that falls and grows with skipped steps, Adam's moments and
// counts, a schedule that skipped steps hold, a fixed layer.
const std::map<std::string, std::string> kVariants = {
    {"adaptive", SmallRun()},
    {"dynamic", std::string(kSmallNetwork) + R"(
name: dynamic
scaling: {policy: dynamic, init_scale: 1e9, growth_interval: 4}
schedule: {kind: multistep, milestones: [1, 2], gamma: 0.5}
train: {epochs: 8, schedule_on_skip: hold}
log: {every: 3}
)"},
    // Steps that are skipped, and logged only at the end: copies of weights are rounded anew by
    // each.
    {"drawn", DrawnNetwork() + R"(
scaling: {policy: dynamic, init_scale: 1e9, growth_interval: 1}
train: {epochs: 3, accumulate: 2}
log: {every: 1000}
)"},
    {"recorded", std::string(kSmallNetwork) + R"(
scaling: {policy: layerwise_dynamic, init_scale: 64, growth_interval: 3, max_scale: 4096}
schedule: {kind: multistep, milestones: [1, 2]}
train: {epochs: 3, accumulate: 2}
log:
  every: 3
  statistics: [y, w, dx, dw, dy]
  probe_every: 4
  histogram_every: 2
  dump_every: 5
  dump: ["conv*", fc]
  what_if:
    - {format: fp8_e4m3, scale: 8}
    - {scaling: {policy: dynamic, init_scale: 1e9, growth_interval: 3}}
    - {scaling: {policy: layerwise_dynamic, init_scale: 1e9, growth_interval: 4}}
    - {scaling: {policy: adaptive}}
  alert_underflow_pct: 0.1
)"},
    {"switched", SwitchedNetwork() + R"(
scaling: {policy: dynamic, init_scale: 1e9, growth_interval: 4}
train: {epochs: 3, accumulate: 2}
log: {every: 2, statistics: [y, dx, operands], probe_every: 5, dump_every: 6}
)"},
    {"recipe", RecipeNetwork() + R"(
scaling: {policy: dynamic, init_scale: 1e9, growth_interval: 4}
schedule:
  {kind: cosine_restarts, unit: steps, period: 3, period_factor: 2, min_lr: 1e-4,
   warmup: {kind: linear, steps: 4, lr: 1e-3, counts: false}}
train: {epochs: 3, accumulate: 2, label_smoothing: 0.1, ema: {decay: 0.9, every: 2, warmup: true}}
log: {every: 2, statistics: [dx, update], probe_every: 5}
)"},
};

void Train(const TempFolder& folder, const Arguments& arguments, const Arguments& more = {}) {
  ADA_REQUIRE_EXIT(Run(With(arguments, more), folder.path()), 0);
}

// Every file of a folder with its bytes.
std::map<std::string, std::string> Snapshot(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[entry.path().string()] = ReadBytes(entry.path());
  return files;
}

// As a process leaves it that is killed just before it writes its summary.
void MakeUnfinished(const std::string& run) { std::filesystem::remove(run + "/summary.json"); }

void FlipByte(const std::string& path) {
  std::string bytes = ReadBytes(path);
  bytes[bytes.size() / 2] ^= 0x10;
  WriteBytes(path, bytes);
}

TEST_SUITE("cpu") {
  TEST_CASE("stopped after each of the first steps, then resumed") {
    for (const auto& [name, text] : kVariants) {
      CAPTURE(name);
      const TempFolder folder;
      Train(folder, WriteConfig(folder, "whole", text));
      const Arguments parts = WriteConfig(folder, "parts", text);
      Train(folder, parts, {"--set", "train.max_steps=1"});
      for (const char* step : {"2", "3", "4", "7", "12", "13", "0"})
        Train(folder, parts, {"--resume", "--set", std::string("train.max_steps=") + step});
      CHECK(Differences(folder / "whole", folder / "parts", Ends::kSeveral) ==
            std::vector<std::string>{});
    }
  }

  TEST_CASE("the variants do what they are there for") {
    const TempFolder folder;
    for (const auto& [name, text] : kVariants) Train(folder, WriteConfig(folder, name, text));
    const Table steps = ReadCsv(folder / "dynamic/steps.csv");
    CHECK(RowsWhere(steps, "skipped", "1").size() > 5);
    int grew = 0;
    for (std::size_t i = 1; i < steps.size(); ++i)
      grew += Number(steps[i], "scale") > Number(steps[i - 1], "scale");
    CHECK(grew > 1);
    const Table scales = ReadCsv(folder / "adaptive/scales.csv");
    CHECK(!RowsWhere(scales, "limit", "stale").empty());
    CHECK(!RowsWhere(scales, "limit", "target").empty());
    CHECK(!RowsWhere(scales, "limit", "branch").empty());
    const Table updates = RowsWhere(ReadCsv(folder / "recipe/underflow.csv"), "tensor", "update");
    CHECK(!updates.empty());
    double lost = 0;
    for (const GoldenRow& row : updates) lost += Number(row, "underflow");
    CHECK(lost > 0);
    CHECK(!RowsWhere(ReadCsv(folder / "recipe/evaluation.csv"), "split", "test_ema").empty());
  }

  TEST_CASE("--resume FOLDER alone: the folder knows its configuration, moved or not") {
    const TempFolder folder;
    ADA_REQUIRE_EXIT(Run(WriteConfig(folder, "whole", SmallRun()), folder.path()), 0);
    const Arguments part = WriteConfig(folder, "part", SmallRun());
    ADA_REQUIRE_EXIT(Run(With(part, {"--set", "train.epochs=3"}), folder.path()), 0);
    std::filesystem::remove(folder / "part.yaml");
    const auto resume = [&](const Arguments& arguments) {
      const Outcome o = Run(With(arguments, {"--no-progress"}), folder.path());
      ADA_CHECK_EXIT(o, 0);
      return o;
    };
    CHECK(Contains(resume({"--resume", "part"}).err, "nothing to do"));
    resume({"train", "--resume", "part/", "--epochs", "5"});
    CHECK(Contains(ReadBytes(folder / "part/config.yaml"), "output: part\n"));  // as it was
    std::filesystem::rename(folder / "part", folder / "moved");
    resume({"train", "--epochs", "8", "--resume", "moved"});
    CHECK(!folder.Has("part"));
    CHECK(Contains(ReadBytes(folder / "moved/config.yaml"), "output: moved\n"));
    CHECK(Differences(folder / "whole", folder / "moved") == std::vector<std::string>{});
  }

  TEST_CASE("killed between the last checkpoint and the summary") {
    const TempFolder folder;
    Train(folder, WriteConfig(folder, "whole", SmallRun()));
    const Arguments killed = WriteConfig(folder, "killed", SmallRun());
    Train(folder, killed);
    MakeUnfinished(folder / "killed");
    Train(folder, killed, {"--resume"});
    CHECK(Differences(folder / "whole", folder / "killed") == std::vector<std::string>{});
  }

  TEST_CASE("a damaged newest checkpoint is reported and the one before it taken") {
    struct Damage {
      std::string name;
      std::string named;  // what the warning names
      void (*apply)(const std::string& stem);
    };
    const Damage damages[] = {
        {"a byte of the tensors", ".safetensors",
         [](const std::string& stem) { FlipByte(stem + ".safetensors"); }},
        {"half of the JSON", ".json",
         [](const std::string& stem) {
           std::filesystem::resize_file(stem + ".json",
                                        std::filesystem::file_size(stem + ".json") / 2);
         }},
        {"a byte of the JSON", ".json", [](const std::string& stem) { FlipByte(stem + ".json"); }},
        {"no tensors", ".safetensors",
         [](const std::string& stem) { std::filesystem::remove(stem + ".safetensors"); }},
        {"empty tensors", ".safetensors",
         [](const std::string& stem) { WriteBytes(stem + ".safetensors", ""); }},
    };
    const TempFolder folder;
    Train(folder, WriteConfig(folder, "whole", SmallRun()));
    const Arguments damaged = WriteConfig(folder, "damaged", SmallRun());
    for (const Damage& damage : damages) {
      CAPTURE(damage.name);
      Train(folder, damaged, {"--overwrite"});
      MakeUnfinished(folder / "damaged");
      const std::string newest = NewestCheckpoint(folder / "damaged", ".json");
      damage.apply(newest.substr(0, newest.size() - 5));
      const Outcome o = Run(With(damaged, {"--resume", "--quiet"}), folder.path());
      ADA_CHECK_EXIT(o, 0);
      CHECK(Contains(o.err, "step-00000048" + damage.named));
      CHECK(Contains(ReadBytes(folder / "damaged/log.txt"), "step-00000048"));
      CHECK(Differences(folder / "whole", folder / "damaged") == std::vector<std::string>{});
    }
  }

  TEST_CASE("where no checkpoint was written to its end a resume starts afresh") {
    const TempFolder folder;
    Train(folder, WriteConfig(folder, "whole", SmallRun()));
    const Arguments again = WriteConfig(folder, "again", SmallRun());
    Train(folder, again, {"--resume"});  // no folder at all
    CHECK(Differences(folder / "whole", folder / "again") == std::vector<std::string>{});
    // As a kill leaves it that comes between the two files of the first checkpoint.
    MakeUnfinished(folder / "again");
    const std::string first = folder / "again/checkpoints/step-00000003.safetensors";
    std::filesystem::rename(NewestCheckpoint(folder / "again"), first);
    for (const std::string& name : Checkpoints(folder / "again", ""))
      if (!first.ends_with(name)) std::filesystem::remove(folder / "again/checkpoints/" + name);
    const Outcome o = Run(With(again, {"--resume"}), folder.path());
    ADA_CHECK_EXIT(o, 0);
    CHECK(Contains(o.err, "afresh"));
    CHECK(!std::filesystem::exists(first));
    CHECK(Differences(folder / "whole", folder / "again") == std::vector<std::string>{});
  }

  TEST_CASE("checkpoints none of which can be used: refused, nothing is touched") {
    struct Damage {
      std::string named;
      void (*apply)(const std::string& file);
    };
    const Damage damages[] = {
        {".json: ", [](const std::string& file) { std::filesystem::resize_file(file, 100); }},
        {".json: ", FlipByte},
        {".json: missing", [](const std::string& file) { std::filesystem::remove(file); }},
    };
    const TempFolder folder;
    const Arguments run = WriteConfig(folder, "run", SmallRun());
    for (const bool finished : {false, true})
      for (const Damage& damage : damages) {
        Train(folder, run, {"--overwrite"});
        if (!finished) MakeUnfinished(folder / "run");
        const std::vector<std::string> names = Checkpoints(folder / "run", ".json");
        REQUIRE(names.size() == 3);
        for (const std::string& name : names) damage.apply(folder / "run/checkpoints/" + name);
        const auto before = Snapshot(folder / "run");
        const Outcome o = Run(With(run, {"--resume", "--set", "train.epochs=9"}), folder.path());
        ADA_CHECK_EXIT(o, 3);
        for (const char* step : {"step-00000048", "step-00000044", "step-00000042"})
          CHECK(Contains(o.err, step + damage.named));
        CHECK(Contains(o.err, "--overwrite deletes this run"));
        CHECK(Snapshot(folder / "run") == before);
        ADA_CHECK_EXIT(Run(run, folder.path()), 2);  // nor is it taken for a run without any
        CHECK(Snapshot(folder / "run") == before);
      }
  }

  TEST_CASE("a state that does not fit is refused before any log is cut") {
    const TempFolder folder;
    const Arguments run = WriteConfig(folder, "run", SmallRun());
    Train(folder, run);
    MakeUnfinished(folder / "run");
    std::filesystem::remove_all(folder / "run/checkpoints");  // another run's take their place
    const Arguments other = WriteConfig(folder, "other", SmallRun());
    Train(folder, other, {"--set", "train.epochs=1"});
    std::filesystem::copy(folder / "other/checkpoints", folder / "run/checkpoints");
    std::filesystem::resize_file(folder / "run/underflow.csv", 300);
    const auto before = Snapshot(folder / "run");
    const Outcome o = Run(With(run, {"--resume"}), folder.path());
    ADA_CHECK_EXIT(o, 3);
    CHECK(Contains(o.err, "underflow.csv"));
    CHECK(Snapshot(folder / "run") == before);
  }

  TEST_CASE("a resume removes what kills left half written or half deleted, and nothing else") {
    const TempFolder folder;
    Train(folder, WriteConfig(folder, "whole", SmallRun()));
    const Arguments run = WriteConfig(folder, "run", SmallRun());
    Train(folder, run);
    MakeUnfinished(folder / "run");
    const std::vector<std::string> gone = {".ada-9-0.tmp", "checkpoints/.ada-9-1.tmp",
                                           "dump/.ada-9-2.tmp", "tensorboard/.ada-9-3.tmp",
                                           "checkpoints/step-00000020.safetensors"};
    const std::vector<std::string> stays = {"checkpoints/mine.safetensors", "checkpoints/a.tmp",
                                            "dump/step-00000003.safetensors"};
    for (const auto* names : {&gone, &stays})
      for (const std::string& name : *names) folder.Write("run/" + name, "x");
    Train(folder, run, {"--resume"});
    for (const std::string& name : gone) CHECK(!folder.Has("run/" + name));
    for (const std::string& name : stays) CHECK(folder.Has("run/" + name));
    std::filesystem::remove_all(folder / "run/dump");
    CHECK(Differences(folder / "whole", folder / "run") == std::vector<std::string>{});
  }

  TEST_CASE("a finished run is left as it is, and extended by more epochs") {
    const TempFolder folder;
    Train(folder, WriteConfig(folder, "long", SmallRun()));
    const Arguments grows = WriteConfig(folder, "grows", SmallRun());
    Train(folder, grows, {"--set", "train.epochs=3"});
    const auto before = Snapshot(folder / "grows");
    Train(folder, grows, {"--set", "train.epochs=3", "--resume"});
    CHECK(Snapshot(folder / "grows") == before);
    Train(folder, grows, {"--resume"});
    CHECK(Differences(folder / "long", folder / "grows") == std::vector<std::string>{});
  }

  TEST_CASE("an extended run keeps the evaluations of its earlier ends, and the best of them") {
    const TempFolder folder;
    // Training that falls apart in epoch 3.
    const Arguments run = With(WriteConfig(folder, "run", SmallRun()),
                               {"--set", "evaluate.every_epochs=0", "--set",
                                "schedule={kind: multistep, milestones: [2], gamma: 1e6}"});
    const auto top1 = [&](std::size_t row) {
      return Number(
          RowsWhere(ReadCsv(folder / "run/evaluation.csv"), "split", "validation").at(row), "top1");
    };
    const auto best = [&] { return ReadBytes(folder / "run/checkpoints/best.safetensors"); };
    Train(folder, run, {"--set", "train.max_steps=11"});
    const std::string first = best();
    Train(folder, run, {"--resume", "--set", "train.max_steps=16"});
    REQUIRE(top1(1) < top1(0));
    CHECK(best() == first);
    // Slices of time are ends as well: each is over after one step.
    Train(folder, run, {"--resume", "--set", "train.max_minutes=1e-9"});
    const Table rows = ReadCsv(folder / "run/evaluation.csv");
    std::vector<std::string> steps;
    for (const GoldenRow& row : RowsWhere(rows, "split", "test")) steps.push_back(row.at("step"));
    CHECK(steps == std::vector<std::string>{"11", "16", "17"});
    CHECK(Summary(folder / "run").at("evaluation").at("validation").at("best").at("step") == 11);
  }

  TEST_CASE("a kill within the last evaluation leaves it to be made, once") {
    const TempFolder folder;
    const Arguments run = With(WriteConfig(folder, "run", SmallRun()),
                               {"--set", "evaluate.every_epochs=0", "--set", "train.max_steps=8"});
    Train(folder, run);
    const auto whole = Snapshot(folder / "run");
    MakeUnfinished(folder / "run");
    Train(folder, run, {"--resume"});  // it had been made
    CHECK(ReadBytes(folder / "run/evaluation.csv") == whole.at(folder / "run/evaluation.csv"));
  }

  TEST_CASE("keys that may not change are refused by name, others pass") {
    const TempFolder folder;
    const Arguments run = WriteConfig(folder, "run", SmallRun());
    Train(folder, run, {"--set", "train.epochs=1"});
    const auto before = Snapshot(folder / "run");
    for (const std::string setting :
         {"seed=4", "data.batch_size=10", "scaling.update_interval=4", "optimizer.lr=0.03",
          "precision.format=bf16", "train.accumulate=1", "data.augment.pad=1"}) {
      CAPTURE(setting);
      const Outcome o = Run(With(run, {"--resume", "--set", setting}), folder.path());
      ADA_CHECK_EXIT(o, 2);
      CHECK(Contains(o.err, setting.substr(0, setting.find('='))));
      CHECK(Snapshot(folder / "run") == before);
    }
    Train(folder, run,
          {"--resume", "--set", "train.epochs=2", "--set", "log.every=1", "--set",
           "checkpoint.keep=1", "--threads", "1", "--name", "other"});
    CHECK(ReadCsv(folder / "run/steps.csv").size() == 12);
    CHECK(Checkpoints(folder / "run", ".json") == std::vector<std::string>{"step-00000012.json"});
  }
}

}  // namespace
}  // namespace ada::testing

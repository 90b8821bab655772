// Everything that reads the files of a run, on files with random faults: an answer or a message, in
// a second, and nothing in it that a terminal would obey. ADA_SEED begins elsewhere.
#include "study/mutation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "config/load.h"
#include "error.h"
#include "scaling/policies/policies.h"
#include "study/commands.h"
#include "study/made_run.h"
#include "study/tensor_file.h"
#include "study/watch/watch_view.h"

namespace ada::study {
namespace {

using ada::testing::Mutator;
using ada::testing::TempFolder;
using Files = std::map<std::string, std::string>;

#ifdef __SANITIZE_ADDRESS__
constexpr double kMostSeconds = 10;
#else
constexpr double kMostSeconds = 1;  // of the processor
#endif

double ProcessorSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// All files of a small run that studies read.
Files GoodFiles() {
  testing::MadeRun run("precision: {format: fp16}");
  const std::vector<std::string> backward = {"fc", "relu2", "bn2", "conv2"};
  for (const std::int64_t step : {1, 2, 5, 9, 12}) {
    const auto seed = static_cast<unsigned>(step);
    for (const char* layer : {"conv1", "conv2", "fc"})
      run.Add(step, layer, "w", testing::Normal(-3, 20, seed), kBf16);
    run.Add(step, "loss", "dx", testing::Normal(-20, 20, seed));
    for (const std::string& layer : backward) {
      run.Add(step, layer, "dx", testing::Normal(-24 - double(step), 20, seed + 1), kFp16, 8);
      run.Add(step, layer, "dw", testing::Normal(-9, 20, seed + 2), kFp32);
    }
  }
  run.Finish();
  const TempFolder folder;
  std::filesystem::remove_all(folder.path());
  std::filesystem::copy(run.path(), folder.path());
  Files files;
  for (const char* name : {"histograms.csv", "steps.csv", "underflow.csv", "config.yaml"})
    files[name] = folder.Read(name);
  files["scales.csv"] = telemetry::Header<ScaleRow>() + "\n";
  for (const char* step : {"1", "5", "12"})
    files["scales.csv"] += std::string(step) + ",1,fc,adaptive,1,2.1,2.1,2.0,2.0,2.0,target\n" +
                           step + ",1,conv2,adaptive,2,,,,,2.0,branch\n";
  files["events.csv"] = telemetry::Header<EventRow>() + "\n7,1,skip,fc,dw,inf,\"a, \"\"b\"\"\"\n";
  files["evaluation.csv"] =
      telemetry::Header<EvaluationRow>() + "\n9,1,test,32,0.5,0.75,1.0\n12,2,test,32,0.4,0.8,1.0\n";
  files["probes.csv"] = telemetry::Header<telemetry::ProbeRow>() +
                        "\n1,1,fc,dx,fp16,8,100,100,7,7.0,1e-12,21.5,0.99\n";
  files["summary.json"] =
      "{\"status\": \"finished\", \"seconds\": 2.5, \"images_per_second\": 1000.0}\n";
  return files;
}

bool IsHarmless(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F;
  });
}

// Runs `read` under the rules of this file; what it wrote is text for people where `shown`.
void Hold(const char* who, std::uint64_t seed, const std::function<std::string()>& read) {
  const double start = ProcessorSeconds();
  std::string problem;
  try {
    if (!IsHarmless(read())) problem = "prints control characters";
  } catch (const InternalError& e) {
    problem = e.what();
  } catch (const Error&) {  // told with an exit code of its own
  } catch (const std::exception& e) {
    problem = e.what();
  }
  const double seconds = ProcessorSeconds() - start;
  if (seconds > kMostSeconds) problem += " took " + std::to_string(seconds) + " s";
  CHECK_MESSAGE(problem.empty(), who, ", seed ", seed, ": ", problem);
}

WhatIfOptions Question(const std::string& folder, Mutator& mutator) {
  WhatIfOptions options;
  options.folder = folder;
  const std::size_t kind = mutator.Pick(8);
  const std::vector<std::string> policies = {"dynamic", "adaptive", "logmax", "fixed", "none"};
  if (kind == 0) options.format = kFp8E5M2;
  if (kind == 1) options.scale = 1024;
  if (kind > 1) options.policy = mutator.OneOf(policies);
  if (options.policy == "fixed") options.scale = 8;
  return options;
}

std::string Watched(const std::string& folder, const std::function<void()>& meanwhile) {
  WatchFeed feed(folder);
  WatchState state;
  state.folder = folder;
  std::string shown;
  for (int look = 0; look < 2; ++look) {
    if (look > 0) meanwhile();
    state.status = RunState(folder);
    feed.Poll(state);
    for (const std::string& line : DrawWatch(state, {.width = 100, .height = 20, .utf8 = true}))
      shown += line + "\n";
  }
  return shown;
}

void HammerRuns(std::uint64_t first, std::uint64_t count) {
  const Files good = GoodFiles();
  const std::vector<std::string> names = {"histograms.csv", "steps.csv",      "underflow.csv",
                                          "scales.csv",     "evaluation.csv", "events.csv",
                                          "probes.csv",     "summary.json"};
  const TempFolder whole, folder;
  for (const auto& [name, text] : good) whole.Write(name, text), folder.Write(name, text);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Mutator mutator(seed);
    const std::string &name = mutator.OneOf(names), &other = mutator.OneOf(names);
    folder.Write(name, mutator.Mutated(good.at(name)));
    if (mutator.Pick(3) == 0) folder.Write(other, mutator.Mutated(good.at(other)));
    std::ostringstream out, notes;
    Hold("what-if", seed, [&] {
      WhatIf(Question(folder.path(), mutator), out, notes);
      return notes.str();
    });
    Hold("recommend", seed, [&] {
      std::ostringstream text;
      Recommend({.folder = folder.path()}, text);
      return text.str();
    });
    Hold("compare", seed, [&] {
      std::ostringstream text;
      const bool turn = mutator.Pick(2) == 0;
      Compare(turn ? whole.path() : folder.path(), turn ? folder.path() : whole.path(), text);
      return text.str();
    });
    Hold("watch", seed, [&] {
      return Watched(folder.path(),
                     [&] { folder.Write(name, mutator.Mutated(folder.Read(name))); });
    });
    for (const std::string& changed : {name, other}) folder.Write(changed, good.at(changed));
  }
}

void HammerTraces(std::uint64_t first, std::uint64_t count) {
  std::string good = "# a trace\nattempt,step,overflow,amax,note\n";
  for (int i = 1; i <= 40; ++i)
    good += std::to_string(i) + "," + std::to_string(i) + "," + (i % 7 == 0 ? "1" : "0") +
            ",0.25,\"x, y\"\n";
  const TempFolder folder;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Mutator mutator(seed);
    folder.Write("t.csv", mutator.Mutated(good));
    const std::vector<std::string> policies = {"dynamic", "logmax", "fixed, scale: 8", "none"};
    config::LoadedScaling loaded =
        config::LoadScalingText("{policy: " + mutator.OneOf(policies) + "}", "test", {});
    config::FillScalingDefaults(loaded.scaling, loaded.train);
    const auto policy = scaling::MakePolicy(loaded.scaling);
    Hold("replay", seed, [&] {
      std::ostringstream out, notes;
      ReplayOptions options;
      options.trace = folder / "t.csv";
      options.max_retries = static_cast<std::int64_t>(mutator.Pick(3));
      Replay(*policy, options, out, notes);
      return out.str() + notes.str();
    });
  }
}

void HammerTensors(std::uint64_t first, std::uint64_t count) {
  using ada::testing::F32;
  const std::string good = ada::testing::TensorFile({F32("fc.dy", {2, 2}, {1e-8f, 2, 3, -4}),
                                                     F32("fc.w", {2, 3}, {1, 2, 3, 4, 5, 6}),
                                                     F32("fc.dx", {2, 3}, {1e-9f, 1, 0, 2, 3, 4}),
                                                     F32("c.dy", {1, 2, 1, 1}, {1, 2}),
                                                     F32("c.w", {2, 1, 1, 1}, {1, 2}),
                                                     {"n", "I64", {1}, std::string(8, '\1')}},
                                                    {{"scale:fc.dy", "8"}});
  const TempFolder folder;
  const std::string path = folder / "t.safetensors";
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    Mutator mutator(seed);
    std::string text = mutator.Mutated(good);
    if (mutator.Pick(2) == 0)  // a name alone, where the file stays whole
      text = good,
      text.replace(good.find("fc.dx"), 5, mutator.Mutated("fc.dx").append(5, '\x1b'), 0, 5);
    folder.Write("t.safetensors", text);
    Hold("inspect", seed, [&] {
      std::ostringstream out, notes;
      InspectOptions options;
      options.path = path;
      Inspect(options, out, notes);
      return out.str() + notes.str();
    });
  }
}

std::uint64_t FirstSeed() {
  const char* text = std::getenv("ADA_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

TEST_SUITE("cpu") {
  TEST_CASE("files with random faults: some of them") {
    HammerRuns(FirstSeed(), 300);
    HammerTraces(FirstSeed(), 300);
    HammerTensors(FirstSeed(), 300);
  }
}

TEST_SUITE("slow") {
  TEST_CASE("files with random faults: many of them") {
    HammerRuns(FirstSeed() + 1000, 3000);
    HammerTraces(FirstSeed() + 1000, 10000);
    HammerTensors(FirstSeed() + 1000, 5000);
  }
}

}  // namespace
}  // namespace ada::study

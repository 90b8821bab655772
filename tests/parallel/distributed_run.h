// Trains a configuration with several ranks that are threads (thread_world.h), or with one; on the
// kernels of the CUDA backend where the test program says so.
#pragma once
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "config/load.h"
#include "parallel/thread_world.h"
#include "run/run.h"
#include "temp_folder.h"
#include "train/run_files.h"
#ifdef ADA_ON_KERNELS
#include "parallel/kernels_run.h"
#endif

namespace ada::testing {

// How a rank ended: its exit code and message.
struct Ended {
  int code = 0;
  std::string message;
};

inline Ended EndedBy(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return {e.exit_code(), e.what()};
  } catch (const std::exception& e) {
    return {-1, e.what()};
  }
}

struct DistributedRunOptions {
  bool resume = false;
  config::Overrides overrides = {};
  // Other overrides for one rank.
  int other_rank = -1;
  config::Overrides others = {};
  bool on_cpu = false;  // on the CPU, whatever the test program's backend is
};

// Into `folder`; ranks 1: as a program that was started alone.
inline std::vector<Ended> TrainDistributed(const std::string& text, const std::string& folder,
                                           int ranks, const DistributedRunOptions& options = {}) {
  const auto train = [&](parallel::World* world) {
    config::Overrides overrides = options.overrides;
    overrides.emplace_back("output", folder);
    if (world != nullptr && world->rank() == options.other_rank)
      overrides.insert(overrides.end(), options.others.begin(), options.others.end());
    config::Config config = config::LoadText(text, "test", overrides).config;
    config::FillDefaults(config);
    telemetry::Log log(telemetry::LogLevel::kError);
    run::RunOptions run;
    run.resume = options.resume, run.progress = false;
    if (world != nullptr) run.world = world;
#ifdef ADA_ON_KERNELS
    if (!options.on_cpu) return TrainOnKernels(config, run, log);
#endif
    run::Train(config, run, log);
  };
  std::vector<Ended> ended;
  if (ranks == 1) {
    try {
      train(nullptr);
      ended.emplace_back();
    } catch (...) {
      ended.push_back(EndedBy(std::current_exception()));
    }
    return ended;
  }
  for (const auto& error : RunRanks(ranks, [&](parallel::World& world) { train(&world); }))
    ended.push_back(EndedBy(error));
  return ended;
}

// The same, of which all is expected to go well.
inline void MustTrain(const std::string& text, const std::string& folder, int ranks,
                      const DistributedRunOptions& options = {}) {
  for (const Ended& ended : TrainDistributed(text, folder, ranks, options)) {
    CAPTURE(ended.message);
    REQUIRE(ended.code == 0);
  }
}

// What runs of equal configurations have to have in common: CSV files but for seconds, and the
// newest checkpoint's tensors.
inline std::vector<std::string> DifferentFiles(const std::string& a, const std::string& b) {
  std::vector<std::string> different;
  for (const auto& entry : std::filesystem::directory_iterator(a)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".csv") || name == "timing.csv") continue;
    if (ReadBytes(a + "/" + name) != ReadBytes(b + "/" + name)) different.push_back(name);
  }
  if (ReadBytes(NewestCheckpoint(a)) != ReadBytes(NewestCheckpoint(b)))
    different.emplace_back("checkpoint");
  return different;
}

}  // namespace ada::testing

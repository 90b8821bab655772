// The few questions that every command asks of a run's folder: whether it is one, its
// configuration, its summary, whether it still runs.
#include "study/run_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "config/load.h"
#include "error.h"
#include "io/file.h"
#include "io/file_lock.h"
#include "io/json_file.h"
#include "telemetry/run_folder.h"

namespace ada::study {
namespace {
constexpr std::uint64_t kMaxSummaryBytes = 64 << 20;
}  // namespace

// steps.csv is what makes a folder a run's; config.yaml may come from elsewhere.
void RequireRun(const std::string& folder) {
  const auto state = telemetry::InspectRunFolder(folder);
  if (state == telemetry::FolderState::kUnfinished || state == telemetry::FolderState::kFinished) {
    return;
  }
  throw DataError(folder +
                  ": holds no run (steps.csv is missing or not a run's); expected the folder that "
                  "ada-train --output named, or runs/NAME");
}

config::Config ReadRunConfig(const std::string& folder) {
  if (!IsFolder(folder)) {
    throw DataError(folder + ": no such folder; expected the folder of a run");
  }
  if (!HasFile(folder, "config.yaml")) {
    ListFolder(folder);  // one that may not be looked into is told as that
    throw DataError(folder +
                    ": holds no run, config.yaml is missing; expected the folder that a "
                    "run of ada-train wrote");
  }
  // A run writes its configuration complete, so no defaults of this version come in.
  return config::Load(folder + "/config.yaml", {}).config;
}

nlohmann::json ReadSummary(const std::string& folder) {
  if (!HasFile(folder, "summary.json")) return nullptr;
  const std::string path = folder + "/summary.json";
  return ParseJson(path, ReadFile<DataError>(path, kMaxSummaryBytes));
}

bool IsRunning(const std::string& folder) { return FileLock::IsHeld(folder); }

std::string RunState(const std::string& folder) {
  // Asked before the summary is looked for: a run writes it while it still holds the folder.
  const bool running = IsRunning(folder);
  const nlohmann::json summary = ReadSummary(folder);
  // A summary without a status is treated as missing.
  if (summary.is_object() && summary.contains("status") && summary["status"].is_string()) {
    return summary["status"].get<std::string>();
  }
  // A run that ends in order writes a summary; one that was killed cannot, and its lock is gone.
  return running ? "running" : "died";
}

std::int64_t StepsInAll(std::int64_t of_epochs, std::int64_t max_steps) {
  return of_epochs > 0 && max_steps > 0 ? std::min(of_epochs, max_steps)
                                        : std::max(of_epochs, max_steps);
}

bool HasFile(const std::string& folder, const std::string& name) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(folder + "/" + name, ignored);
}

// Histograms are the only file here that a run may leave out for want of a key.
std::string CsvPath(const std::string& folder, const std::string& name) {
  if (HasFile(folder, name)) return folder + "/" + name;
  const bool histograms = name == telemetry::HistogramRow::kFile;
  throw DataError(folder + "/" + name + ": the run has no such file; " +
                  (histograms
                       ? "log.histogram_every makes it: run again with --set "
                         "log.histogram_every=100"
                       : "every run of this program writes it: is this the folder of a run?"));
}

}  // namespace ada::study

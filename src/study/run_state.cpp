#include "study/run_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/error.h"
#include "core/file.h"
#include "study/run_files.h"
#include "telemetry/run_folder.h"

namespace ada::study {
namespace {
constexpr std::uint64_t kMaxSummaryBytes = 64 << 20;
}  // namespace

bool IsRunning(const std::string& folder) {
  const int lock = open((folder + "/.lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (lock < 0) return false;
  // A shared lock is refused while a run holds its exclusive one; closing gives it back.
  const bool held = flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(lock);
  return held;
}

nlohmann::json ReadSummary(const std::string& folder) {
  if (!HasFile(folder, "summary.json")) return nullptr;
  const std::string path = folder + "/summary.json";
  auto json = nlohmann::json::parse(ReadFile<DataError>(path, kMaxSummaryBytes), nullptr, false);
  if (!json.is_object()) throw DataError(path + ": is no summary of a run: expected a JSON object");
  return json;
}

std::string RunState(const std::string& folder) {
  // Asked before the summary is looked for: a run writes it while it still holds the folder.
  const bool running = IsRunning(folder);
  const nlohmann::json summary = ReadSummary(folder);
  if (summary.is_object() && summary.contains("status") && summary["status"].is_string()) {
    return summary["status"].get<std::string>();
  }
  return running ? "running" : "died";
}

void RequireRun(const std::string& folder) {
  const auto state = telemetry::InspectRunFolder(folder);
  if (state == telemetry::FolderState::kUnfinished || state == telemetry::FolderState::kFinished) {
    return;
  }
  throw DataError(folder +
                  ": holds no run (steps.csv is missing or not a run's); expected the folder that "
                  "ada-train --output named, or runs/NAME");
}

}  // namespace ada::study

// Whether a run is going on, and how it ended.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ada::study {

// Whether some process holds the run's folder now: asked without keeping a starting run out.
bool IsRunning(const std::string& folder);

// summary.json; null where there is none (yet). Throws DataError where it cannot be read.
nlohmann::json ReadSummary(const std::string& folder);

// "finished", "stopped" or "interrupted" as summary.json says; without it "running", or "died" of a
// run whose process is gone.
std::string RunState(const std::string& folder);

// Throws DataError naming what is missing where `folder` holds no run.
void RequireRun(const std::string& folder);

}  // namespace ada::study

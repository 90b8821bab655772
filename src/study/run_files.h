// Reads what a run wrote into its folder, while it may still be running: a last row that is not
// whole is left out. Reads only.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/config.h"
#include "telemetry/rows.h"

namespace ada::study {

using telemetry::BlockRow;
using telemetry::ClassRow;
using telemetry::EvaluationRow;
using telemetry::EventRow;
using telemetry::ScaleRow;
using telemetry::StepRow;
using telemetry::TensorRow;
using telemetry::TimingRow;

// Throws DataError naming what is missing where `folder` holds no run.
void RequireRun(const std::string& folder);
// Does the same and returns the configuration; throws ConfigError where it cannot be read.
config::Config ReadRunConfig(const std::string& folder);
// Returns summary.json; null where there is none (yet). Throws DataError where it cannot be read.
nlohmann::json ReadSummary(const std::string& folder);

// Says whether some process holds the run's folder now. Asking keeps no run from starting.
bool IsRunning(const std::string& folder);
// Returns "finished", "stopped" or "interrupted" as summary.json says; without it "running", or
// "died" of a run whose process is gone.
std::string RunState(const std::string& folder);

// Says whether the run's folder holds this file.
bool HasFile(const std::string& folder, const std::string& name);
// Returns the path of a CSV file of the run. Where it is missing, a DataError says what makes it.
std::string CsvPath(const std::string& folder, const std::string& name);

// Calls `use` with each row of the run's file, in its order. Throws DataError with file and line; a
// column that the file lacks, or an empty field, has the row's default value (telemetry/rows.h).
template <class Row, class Use>
void EachRow(const std::string& folder, const Use& use) {
  telemetry::CsvReader file(CsvPath(folder, Row::kFile), telemetry::LastRow::kMayBeTorn);
  telemetry::ReadRows<Row>(file, telemetry::Expect::kKeys, use);
}

}  // namespace ada::study

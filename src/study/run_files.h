// Reads what a run wrote into its folder, while it may still be running: a last row that is not
// whole is left out. Reads only.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/config.h"
#include "error.h"
#include "io/tensor_names.h"
#include "telemetry/rows.h"

namespace ada::study {

// Under which name a row of dx, or of a gradient within attention, stands in tables of layers:
// LAYER, or LAYER.ds as in scales.csv. Empty: other tensors, which have no line of their own.
inline std::string LineOfGradient(const std::string& layer, const std::string& tensor) {
  return tensor == "dx" || IsOfAttention(tensor) ? DecisionOf(layer, tensor) : std::string();
}

using telemetry::AccumulatorRow;
using telemetry::BlockRow;
using telemetry::ClassRow;
using telemetry::EvaluationRow;
using telemetry::EventRow;
using telemetry::ScaleRow;
using telemetry::StepRow;
using telemetry::TensorRow;
using telemetry::TimingRow;

// Throws DataError naming what is missing if `folder` does not contain a run.
void RequireRun(const std::string& folder);
// Does the same and returns the configuration; throws ConfigError where it cannot be read.
config::Config ReadRunConfig(const std::string& folder);
// Returns summary.json; null if there is none (yet). Throws DataError if it cannot be read.
nlohmann::json ReadSummary(const std::string& folder);

// Returns `read` of the format that a row of a run's file names; DataError with its place where
// that is no format.
template <class Read>
auto FormatOfRow(const std::string& folder, const std::string& file, std::int64_t step,
                 const std::string& name, const Read& read) {
  try {
    return read(name);
  } catch (const ConfigError&) {
    throw DataError(folder + "/" + file + ": step " + std::to_string(step) +
                    ": column format is '" + name +
                    "', expected one of `ada-train formats` or {exponent: .., mantissa: ..}");
  }
}

// Says whether some process holds the run's folder now. Asking keeps no run from starting.
bool IsRunning(const std::string& folder);
// Returns "finished", "stopped" or "interrupted" as summary.json says; without it "running", or
// "died" of a run whose process is gone.
std::string RunState(const std::string& folder);

// Says whether the run's folder holds this file.
bool HasFile(const std::string& folder, const std::string& name);
// Returns the path of a CSV file of the run. If it is missing, DataError says how to create it.
std::string CsvPath(const std::string& folder, const std::string& name);

// Calls `use` with each row of the run's file, in its order. Throws DataError with file and line; a
// column that the file lacks, or an empty field, has the row's default value (telemetry/rows.h).
template <class Row, class Use>
void EachRow(const std::string& folder, const Use& use) {
  telemetry::CsvReader file(CsvPath(folder, Row::kFile), telemetry::LastRow::kMayBeTorn);
  telemetry::ReadRows<Row>(file, telemetry::Expect::kKeys, use);
}

// The same of a file that a run need not have: without it there is no row.
template <class Row, class Use>
void EachRowIfThere(const std::string& folder, const Use& use) {
  if (HasFile(folder, Row::kFile)) EachRow<Row>(folder, use);
}

// The steps that a training takes, from those of all its epochs and from train.max_steps, of which
// 0 is not known or no limit: it ends at the first of the two. 0: neither is known.
std::int64_t StepsInAll(std::int64_t of_epochs, std::int64_t max_steps);

}  // namespace ada::study

// The parts of `compare`: configurations, results, layers, and the rows where two runs part.
// compare.cpp calls them in the order of the page: configurations, results, layers, rows, and one
// line of all. Everything is read from the two folders; runs may still be going on.
#pragma once
#include <cmath>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "telemetry/coverage.h"
#include "telemetry/totals.h"

namespace ada::study {

struct KeyDifference {
  std::string key;   // "scaling.policy", "model.layers[conv1].channels", "scaling.layers[0].match"
  std::string a, b;  // as YAML on one line; empty: the run has no such key
};

// Returns the keys that differ, in the order of the document; keys that only `b` has stand after
// those that `a` has of their section. name and output, which two runs never share, are left out.
std::vector<KeyDifference> ConfigDifferences(const config::Config& a, const config::Config& b);

// What the table of results shows of one run. A run that goes on has no summary.json and so no
// times.
struct RunResults {
  std::string state;            // as RunState says
  bool language = false;        // the task
  bool bytes = false;           // tokens are bytes
  int classes = 0;              // 0: not known
  telemetry::RunTotals totals;  // from the CSVs, so that a run that goes on has them as well
  // For summary.json; 0: none yet.
  double seconds = 0, images_per_second = 0, tokens_per_second = 0;
};

// Reads them from the folder of a run with this configuration; throws DataError for files that are
// missing or broken.
RunResults ReadResults(const std::string& folder, const config::Config& config);

// What decides which evaluation of a split is best: the first metric of all classes, or top-1.
telemetry::Metric DecidingMetric(const telemetry::SplitTotals& split);
// Prints a table of both and the differences.
void PrintResults(const RunResults& a, const RunResults& b, std::ostream& out);

// The rows that underflow.csv has of one layer's dx.
// One layer of one run over all logged steps; a layer is the same in both runs if its name is.
struct LayerRecord {
  std::string name;
  std::int64_t rows = 0;
  double mean_scale = NAN, last_scale = NAN;  // the mean is the geometric one
  double mean_pct = NAN, last_pct = NAN;      // of underflow_pct_nonzero; NaN: all were zero
};

// Returns the layers in the order of the rows. Throws as EachRow does.
std::vector<LayerRecord> ReadLayers(const std::string& folder);

// One run of those that are compared, read once.
struct ComparedRun {
  std::string folder, letter;  // "A": the first one
  config::Config config;
  RunResults results;
  std::vector<LayerRecord> layers;
  telemetry::LayerTotals totals;
  telemetry::Coverage coverage;
};
// Throws DataError where one of the folders is no run, or files are missing or broken.
std::vector<ComparedRun> ReadCompared(const std::vector<std::string>& folders);
// Prints a line a run: its letter, its folder, `name` and what it was asked for.
void PrintRun(const ComparedRun& run, const std::string& name, std::ostream& out);
// Prints what each run lost, and of what that is said.
void PrintLost(const std::vector<ComparedRun>& runs, std::ostream& out);

// Prints two tables, scales and underflow. Layers come in the order of the runs where they are few,
// else those that differ most come first, and no others unless `all`.
void PrintLayers(const std::vector<LayerRecord>& a, const std::vector<LayerRecord>& b, bool all,
                 std::ostream& out);

// Says whether fewer than half of the layers have a counterpart.
// Networks with few common names are not compared layer by layer: their worst layers are shown
// instead.
bool AreStrangers(const std::vector<LayerRecord>& a, const std::vector<LayerRecord>& b);
// Prints a table for each run, the layers that lose most first, and no others unless `all`.
void PrintWorstLayers(const std::vector<LayerRecord>& a, const std::vector<LayerRecord>& b,
                      bool all, std::ostream& out);

// Returns a line of what matters most. `parting`: where the runs part, in words; may be empty.
std::string InShort(const ComparedRun& a, const ComparedRun& b, const std::string& parting);

struct ColumnDifference {
  std::string column, a, b;  // the fields as they stand in the files
};
// The first rows that differ.
struct RowDifference {
  std::int64_t step = 0;
  std::string layer, tensor;              // empty in files that have no such column
  std::vector<ColumnDifference> columns;  // in the order of a's file, at least one
};
// The reading stops at the first row that differs, so counts are whole only where there is none.
struct FileComparison {
  std::optional<RowDifference> difference;
  std::int64_t same = 0;                // rows that are equal, before the first that differ
  std::int64_t only_a = 0, only_b = 0;  // rows without a counterpart; whole without a difference
  std::int64_t last_a = 0, last_b = 0;  // the last step that was read
  bool equal() const { return !difference && only_a == 0 && only_b == 0; }
};

// Compares row by row, as both files have them, the columns that both have, or one of them. Throws
// DataError for a file that is missing or broken; a torn last row is none.
FileComparison CompareRows(const std::string& folder_a, const std::string& folder_b,
                           const std::string& file, const std::string& column = "");

// Compares the rows that scales.csv or underflow.csv of both have of the same step, layer and
// tensor, in a's order, up to step `last`. mse and sqnr_db, which a probe adds, count only where
// both have them.
FileComparison CompareLayerRows(const std::string& folder_a, const std::string& folder_b,
                                const std::string& file, std::int64_t last);

}  // namespace ada::study

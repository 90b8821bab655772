// Where the rows of two runs part.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ada::study {

struct ColumnDifference {
  std::string column, a, b;  // the fields as they stand in the files
};
// The first rows that differ.
struct RowDifference {
  std::int64_t step = 0;
  std::string layer, tensor;              // empty in files that have no such column
  std::vector<ColumnDifference> columns;  // in the order of a's file, at least one
};
struct FileComparison {
  std::optional<RowDifference> difference;
  std::int64_t same = 0;                // rows that are equal, before the first that differ
  std::int64_t only_a = 0, only_b = 0;  // rows without a counterpart; whole without a difference
  std::int64_t last_a = 0, last_b = 0;  // the last step that was read
  bool equal() const { return !difference && only_a == 0 && only_b == 0; }
};

// Row by row, as both files have them, over the columns that both have, or over one of them.
// DataError for a file that is missing or broken; a torn last row is none.
FileComparison CompareRows(const std::string& folder_a, const std::string& folder_b,
                           const std::string& file, const std::string& column = "");

// Of scales.csv or underflow.csv: the rows that both have of the same step, layer and tensor, in
// a's order, up to step `last`. mse and sqnr_db, which a probe adds, count only where both have
// them.
FileComparison CompareLayerRows(const std::string& folder_a, const std::string& folder_b,
                                const std::string& file, std::int64_t last);

}  // namespace ada::study

// Reads the traces that `ada-train replay` takes: a CSV that may begin with `#` comment lines, one
// row an attempt, of which a few columns matter. Keeps one row in memory.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "telemetry/csv_reader.h"

namespace ada::study {

class TraceReader {
 public:
  // Opens the file and reads comments and header. Throws DataError with file and line, as all below
  // do, where something is wrong; so is a column name that stands there twice.
  explicit TraceReader(const std::string& path);

  bool Has(std::string_view column) const { return Find(column).has_value(); }
  // Throws DataError naming the file's columns, and `why` it is needed, where there is none.
  void Expect(std::string_view column, std::string_view why) const;

  // Goes to the next row; false at the end. A row has as many fields as the header; the last one
  // may lack its line end.
  bool Next() { return csv_.Next(); }
  // Fields of this row; the column must exist.
  bool Flag(std::string_view column) const;         // 0 or 1
  double Magnitude(std::string_view column) const;  // 0 or more, inf, nan
  std::int64_t Integer(std::string_view column) const;

 private:
  std::optional<std::size_t> Find(std::string_view column) const;
  std::size_t At(std::string_view column) const;

  telemetry::CsvReader csv_;
};

}  // namespace ada::study

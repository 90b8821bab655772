// Reads CSV files (RFC 4180) row by row, with a header, for what goes on from earlier logs. Keeps
// one row in memory; writes nothing.
#pragma once
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace ada::telemetry {

class CsvReader {
 public:
  // Opens the file and reads its header. Throws DataError, as all below do, with file and line.
  explicit CsvReader(std::string path);

  const std::vector<std::string>& header() const { return header_; }
  // The column's index; DataError naming the columns where there is none of that name.
  std::size_t Column(std::string_view name) const;

  // Goes to the next row; false at the end. A row has as many fields as the header and ends with a
  // line end; anything else (a torn last row, text after a closing quote) is a DataError.
  bool Next();
  const std::string& Text(std::size_t column) const { return fields_[column]; }
  std::int64_t Integer(std::size_t column) const;
  double Number(std::size_t column) const;         // inf, -inf and nan in words
  double NumberOrNan(std::size_t column) const;    // NaN for an empty field
  std::int64_t line() const { return row_line_; }  // of the row's beginning, from 1
  std::int64_t offset() const { return offset_; }  // bytes up to the end of this row

 private:
  bool ReadRecord(std::vector<std::string>& fields);
  void ReadQuoted(std::string& field);
  int Get();
  [[noreturn]] void Fail(const std::string& problem) const;
  [[noreturn]] void FailAt(std::size_t column, const char* expected) const;

  std::string path_;
  std::ifstream file_;
  std::vector<std::string> header_, fields_;
  std::int64_t line_ = 1, row_line_ = 1, offset_ = 0;
};

}  // namespace ada::telemetry

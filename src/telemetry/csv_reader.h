// Reads CSV files (RFC 4180) row by row, with a header, for what goes on from earlier logs or looks
// at them. Keeps one row in memory; writes nothing.
#pragma once
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace ada::telemetry {

// What a last row without its line end is.
enum class LastRow {
  kMustBeWhole,     // an error
  kMayBeTorn,       // the trace of a run that was killed or is still writing: it is not read
  kMayLackLineEnd,  // a row like the others, written by hand; within quotes it is an error
};

class CsvReader {
 public:
  // Opens the file and reads its header; lines before it that begin with `#` are comments. Throws
  // DataError, as all below do, with file and line.
  explicit CsvReader(std::string path, LastRow last = LastRow::kMustBeWhole);

  // Empty where the file has none (yet) and the last row need not be whole.
  const std::vector<std::string>& header() const { return header_; }
  // The column's index; DataError naming the columns where there is none of that name.
  std::size_t Column(std::string_view name) const;

  // Goes to the next row; false at the end. A row has as many fields as the header and ends with a
  // line end (the last one: see LastRow); anything else, such as text after a closing quote, is a
  // DataError.
  bool Next();
  const std::string& Text(std::size_t column) const { return fields_[column]; }
  std::int64_t Integer(std::size_t column) const;
  double Number(std::size_t column) const;          // inf, -inf and nan in words
  double NumberOrNan(std::size_t column) const;     // NaN for an empty field
  std::int64_t line() const { return row_line_; }   // of the row's (header's) beginning, from 1
  std::int64_t offset() const { return row_end_; }  // bytes up to the end of the last whole row

  // Throw DataError with file and line of the row; FailAt with the field and what was expected.
  [[noreturn]] void Fail(const std::string& problem) const;
  [[noreturn]] void FailAt(std::size_t column, const char* expected) const;

 private:
  enum class Ending { kLineEnd, kTorn, kQuoteOpen, kNothing };

  void SkipComments();
  bool ReadRecord(std::vector<std::string>& fields);
  Ending ReadFields(std::vector<std::string>& fields);
  bool ReadQuoted(std::string& field);
  int Get();
  int Peek();

  std::string path_;
  std::ifstream file_;
  LastRow last_;
  std::vector<std::string> header_, fields_;
  std::int64_t line_ = 1, header_line_ = 1, row_line_ = 1, offset_ = 0, row_end_ = 0;
};

}  // namespace ada::telemetry

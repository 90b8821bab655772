// Writes CSV files that survive a kill: rows are buffered, and only whole rows are handed to the
// system (csv.cpp explains the small remaining gap); a resume truncates the file to the length that
// a checkpoint recorded. Fields are quoted by RFC 4180, lines end with `\n`. Reader: csv_reader.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ada::telemetry {

// Returns `text` as a field of a row, quoted if RFC 4180 requires it; bytes that are not UTF-8 are
// written as \xff.
std::string CsvField(std::string_view text);

// Returns the number that readers of the CSV get: `value` at nine significant digits.
double AsLogged(double value);

// Makes a row, field by field. Numbers of a column of real numbers have a point or an
// exponent (`65536.0`): readers that guess a column's type from its first rows would take it for a
// column of integers otherwise, and round what comes later.
class CsvRow {
 public:
  CsvRow& Text(std::string_view field) { return Field(CsvField(field)); }
  CsvRow& Integer(std::int64_t value) { return Field(std::to_string(value)); }
  // Appends the shortest text that reads back to the same double; nothing for NaN.
  CsvRow& Scale(double value);
  // Appends nine significant digits; inf, -inf and nan are words.
  CsvRow& Number(double value);
  CsvRow& Empty() { return Field(""); }

  const std::string& text() const { return text_; }  // without a line end
  std::size_t size() const { return fields_; }

 private:
  CsvRow& Field(std::string_view text);

  std::string text_;
  std::size_t fields_ = 0;
};

// Throws what CsvFile(path, header, keep) throws for a file that cannot be truncated to `keep`
// bytes; changes nothing.
void CheckCsv(const std::string& path, std::string_view header, std::int64_t keep);

// One file of a run, written by one thread. Rows stay in memory until Flush, which the session
// calls at logged steps; Sync is for checkpoints, which record its result as the length to keep.
class CsvFile {
 public:
  // Creates the file with its header (written at once), or opens an existing one and truncates it
  // to `keep` bytes (at least the header; keep < 0: start anew). Throws OutputError with the
  // system's reason, and DataError if an existing file is shorter than `keep`, has another header,
  // or has no end of a row at `keep`: it is then left unchanged. A link becomes a file of its own
  // first: what it leads to, which may be another run's, stays as it is.
  CsvFile(std::string path, std::string_view header, std::int64_t keep = -1);
  ~CsvFile();
  CsvFile(const CsvFile&) = delete;
  CsvFile& operator=(const CsvFile&) = delete;

  // Throws InternalError when the row has not as many fields as the header.
  void Add(const CsvRow& row);

  // Hands whole rows to the system. Throws OutputError (disk full); what the system accepted of
  // them is then removed, so that the file ends with a whole row, and the rows stay in the buffer.
  // Also throws it if the file no longer has its name (it was deleted, moved or replaced).
  void Flush();
  std::int64_t Sync();  // Flush, fsync; returns the file's length in bytes

 private:
  void Open(std::string_view header);
  void Reopen(std::string_view header, std::int64_t keep);
  std::size_t NextPiece(std::size_t start) const;
  void WritePiece(std::string_view piece);
  [[noreturn]] void Fail(const std::string& doing, int error) const;

  std::string path_, buffer_;
  std::vector<std::size_t> row_ends_;  // within buffer_
  int fd_ = -1;
  std::size_t columns_ = 0;
  // This is also the offset of the next write.
  std::int64_t length_ = 0;  // bytes of whole rows in the file
};

}  // namespace ada::telemetry

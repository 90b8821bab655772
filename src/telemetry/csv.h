// CSV files that survive a kill: rows are buffered, whole rows are handed to the system (csv.cpp
// says how narrow a gap is left), a resume cuts the file to the length a checkpoint recorded. RFC
// 4180 quoting; `\n` line ends. Reading is csv_reader.h's work.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ada::telemetry {

// Text of numbers: Exact reads back to the same double (shortest form), Digits9 has nine
// significant digits. inf, -inf and nan in words.
std::string Exact(double value);
std::string Exact(float value);
std::string Digits9(double value);

// The same as fields of a column of real numbers: whole numbers end with `.0`, because readers that
// guess a column's type from its first rows would take such a column for one of integers, and round
// what comes later. ScaleField: Exact, empty for NaN (a stage that was not taken). NumberField:
// Digits9.
std::string ScaleField(double value);
std::string NumberField(double value);

// `field` as a field of a row, quoted where RFC 4180 asks for it.
std::string CsvField(std::string_view field);

// The number that a reader of the CSV gets: `value` at nine significant digits.
double AsLogged(double value);

class CsvFile {
 public:
  // Creates the file with its header (written at once), or opens an existing one and cuts it to
  // `keep` bytes (at least the header; keep < 0: start afresh). Throws OutputError with the
  // system's reason, DataError where an existing file is shorter than `keep`, has another header or
  // no row end at `keep`: it is left as it is.
  CsvFile(std::string path, std::string_view header, std::int64_t keep = -1);
  ~CsvFile();
  CsvFile(const CsvFile&) = delete;
  CsvFile& operator=(const CsvFile&) = delete;

  // Fields of a row, then EndRow. Text is quoted where RFC 4180 asks for it; Empty is an empty
  // field.
  CsvFile& Text(std::string_view field);
  CsvFile& Integer(std::int64_t value);
  CsvFile& Scale(double value);   // ScaleField
  CsvFile& Number(double value);  // NumberField
  CsvFile& Empty();
  void EndRow();  // throws InternalError when the row has not as many fields as the header

  // Hands whole rows to the system. Throws OutputError (disk full); what the system took of them is
  // cut off again, so that the file ends with a whole row, and the rows stay in the buffer.
  void Flush();
  std::int64_t Sync();  // Flush, fsync; returns the file's length in bytes

 private:
  void Open(std::string_view header);
  void Reopen(std::string_view header, std::int64_t keep);
  void Separate();
  std::size_t NextPiece(std::size_t start) const;
  void WritePiece(std::string_view piece);
  [[noreturn]] void Fail(const std::string& doing, int error) const;

  std::string path_, buffer_;
  std::string row_;                    // the row being made, not yet ended
  std::vector<std::size_t> row_ends_;  // within buffer_
  int fd_ = -1;
  std::size_t columns_ = 0, fields_ = 0;
  std::int64_t length_ = 0;  // bytes of whole rows in the file
};

}  // namespace ada::telemetry

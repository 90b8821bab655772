// Reads CSV files (RFC 4180) row by row: complete files, truncated files, and files that another
// process is still writing. Holds only a block of the file in memory, a megabyte or two, because
// the length of rows is limited (kMostRecordBytes). Writes nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ada::telemetry {

// Limits for reading. Our own rows have about a hundred bytes; without a limit a quote that is
// never closed, or a file that is not CSV, would be one row of gigabytes.
inline constexpr std::size_t kMostRecordBytes = 1 << 20;
inline constexpr std::size_t kMostColumns = 4096;

// How a record ended; after the last three kinds, at the end of the text, more text may change it.
enum class Ending { kLineEnd, kQuoteInField, kTextBehindQuote, kTorn, kQuoteOpen, kNothing };

// Splits the record at the front of `text`, which may end anywhere, into its fields; `used`: its
// bytes, line end included (set for kLineEnd and kTorn).
Ending SplitRecord(std::string_view text, std::vector<std::string>& fields, std::size_t& used);

// How to treat a last row without a line end.
enum class LastRow {
  kMustBeWhole,     // an error
  kMayBeTorn,       // the trace of a run that was killed or is still writing: it is not read
  kMayLackLineEnd,  // a row like the others, written by hand; within quotes it is an error
};

// The position in the file is an offset in bytes, so that others may append to it meanwhile. One
// row is held at a time: references from Text are valid until the next call of Next.
class CsvReader {
 public:
  static constexpr std::size_t kMissing = static_cast<std::size_t>(-1);
  // Our steps and counts are never larger, and sums over a file stay within 64 bits.
  static constexpr std::int64_t kMostInteger = 1'000'000'000'000;

  // Opens the file and reads its header; lines before it that begin with `#` are comments, a byte
  // order mark before them is passed over. Throws DataError, as all below do, with file and line.
  explicit CsvReader(std::string path, LastRow last = LastRow::kMustBeWhole);
  // Does the same with what an open descriptor still gives, a pipe's too, and closes it; `name`
  // stands for it in messages.
  CsvReader(std::string name, int descriptor, LastRow last);
  ~CsvReader();
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;

  // The header is empty where the file has none (yet) and the last row need not be whole.
  const std::vector<std::string>& header() const { return header_; }
  // Returns the column's index, or kMissing where there is none of that name.
  std::size_t Find(std::string_view name) const;
  // Does the same, but a missing column is a DataError naming those that the file has.
  std::size_t Column(std::string_view name) const;

  // Declares that there is no header: what was read as such is the first row, and these are the
  // names of its columns, one for each. Call it before Next.
  void TakeHeaderAsRow(std::vector<std::string> names);

  // Goes to the next row; false at the end. A row has as many fields as the header and ends with a
  // line end (the last one: see LastRow); anything else, such as text after a closing quote, is a
  // DataError.
  bool Next();
  // These read the fields of this row. The text of a column that is kMissing is empty.
  const std::string& Text(std::size_t column) const;
  std::int64_t Integer(std::size_t column) const;  // of at most kMostInteger, either sign
  double Number(std::size_t column) const;         // inf, -inf and nan in words
  std::int64_t line() const { return row_line_; }  // of the row's (header's) beginning, from 1
  std::int64_t offset() const { return offset_; }  // bytes up to the end of the last whole row

  // Throw DataError with file and line of the row; FailAt with the field and what was expected.
  [[noreturn]] void Fail(const std::string& problem) const;
  [[noreturn]] void FailAt(std::size_t column, const char* expected) const;
  [[noreturn]] void FailTooLong() const;

 private:
  friend class CsvFollower;
  static constexpr std::size_t kRemembered = 256;  // by which a follower recognizes what it read

  // Continues after the first `offset` bytes of a file with this header (empty: from the
  // beginning); rows with errors are skipped.
  CsvReader(std::string path, std::vector<std::string> header, std::int64_t offset);
  void Open();
  void Begin();
  std::optional<std::string> Read(std::size_t ahead) const;
  bool Fill();
  void GoTo(std::int64_t offset);
  void SkipLine();
  void SkipByteOrderMark();
  void SkipComments();
  void CheckHeader();
  bool ReadRecord(std::vector<std::string>& fields);
  void Consume(std::size_t bytes);

  std::string path_;
  int fd_ = -1;
  LastRow last_;
  bool pass_over_ = false;
  bool in_order_ = false;  // the descriptor is read sequentially; else by offsets
  bool has_row_ = false;   // fields_ hold the row that Next will return
  std::string buffer_;     // of the file: some that was parsed already, then what is not yet
  std::size_t start_ = 0;  // where the latter begins
  std::vector<std::string> header_, fields_;
  std::int64_t line_ = 1, header_line_ = 1, row_line_ = 1, offset_ = 0;
};

// Follows a file that another process writes: hands over its rows as they come, each once.
class CsvFollower {
 public:
  // If the file is longer, only its last `window` bytes are read at first.
  explicit CsvFollower(std::string path, std::int64_t window = INT64_MAX)
      : path_(std::move(path)), window_(window) {}

  // Whether what was read before is no longer there: the file became shorter, is gone, or its last
  // rows have changed (a resume truncated it, another run replaced it).
  bool Changed() const;
  void Restart();  // the next Read starts from the beginning

  // Calls `read` with a reader positioned before the first row that was not read yet; not called
  // while there is no file or no header. Rows with errors are skipped, and an incomplete last row
  // is left for the next Read.
  void Read(const std::function<void(CsvReader&)>& read);
  // Whether the rows of the last Read began within the file: those of their first step may not be
  // whole.
  bool jumped() const { return jumped_; }

 private:
  bool jumped_ = false;
  std::string path_, last_;  // the last bytes that were read, up to offset_
  std::int64_t window_, offset_ = 0;
  std::vector<std::string> header_;
};

}  // namespace ada::telemetry

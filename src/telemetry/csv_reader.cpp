#include "telemetry/csv_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/system_call.h"
#include "core/utf8.h"
#include "telemetry/csv_record.h"

namespace ada::telemetry {
namespace {

constexpr std::size_t kBlock = 1 << 16;   // bytes that are read at once, at least
constexpr std::size_t kRemembered = 256;  // bytes by which a follower knows what it has read

template <class T>
bool Parse(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Up to `size` bytes from `offset` on, fewer at the end of the file; nullopt: an error.
std::optional<std::string> TextAt(int fd, std::int64_t offset, std::size_t size) {
  std::string text(size, '\0');
  const std::size_t count = ReadAt(fd, static_cast<std::uint64_t>(offset), text.data(), size);
  if (count < size && errno != 0) return std::nullopt;
  text.resize(count);
  return text;
}

// 0 where the system does not say.
std::int64_t SizeOf(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 ? static_cast<std::int64_t>(status.st_size) : 0;
}

}  // namespace

CsvReader::CsvReader(std::string path, LastRow last) : path_(std::move(path)), last_(last) {
  Open();
  try {
    SkipComments();
    header_line_ = row_line_ = line_;
    if (!ReadRecord(header_) && last_ == LastRow::kMustBeWhole) {
      Fail("empty file, expected a header line");
    }
    CheckHeader();
  } catch (...) {
    CloseFile(fd_);
    throw;
  }
}

CsvReader::CsvReader(std::string path, std::vector<std::string> header, std::int64_t offset)
    : path_(std::move(path)),
      last_(LastRow::kMayBeTorn),
      pass_over_(true),
      header_(std::move(header)) {
  Open();
  try {
    GoTo(offset);
    if (header_.empty()) ReadRecord(header_);
    CheckHeader();
  } catch (...) {
    CloseFile(fd_);
    throw;
  }
}

CsvReader::~CsvReader() { CloseFile(fd_); }

void CsvReader::Open() {
  std::string problem;
  fd_ = OpenToRead(path_, Pipes::kRefused, &problem);
  if (fd_ < 0) throw DataError(path_ + ": " + problem);
}

// Reads more of the file, twice as much each time that a record needs still more; false at its end.
bool CsvReader::Fill() {
  const std::size_t kept = std::min(start_, kRemembered);
  buffer_.erase(0, start_ - kept);
  start_ = kept;
  const std::size_t ahead = buffer_.size() - start_;
  const auto more =
      TextAt(fd_, offset_ + static_cast<std::int64_t>(ahead), std::max(kBlock, ahead));
  if (!more) throw DataError(path_ + ": cannot be read");
  buffer_ += *more;
  return !more->empty();
}

// Stands behind the first `offset` bytes, and remembers the last of them.
void CsvReader::GoTo(std::int64_t offset) {
  const std::int64_t from = std::max<std::int64_t>(0, offset - kRemembered);
  buffer_.clear();
  start_ = 0;
  offset_ = from;
  while (static_cast<std::int64_t>(buffer_.size()) < offset - from && Fill()) continue;
  Consume(std::min(buffer_.size(), static_cast<std::size_t>(offset - from)));
}

// Goes on behind `bytes` more of the buffer.
void CsvReader::Consume(std::size_t bytes) {
  const auto from = buffer_.begin() + static_cast<std::ptrdiff_t>(start_);
  line_ += std::count(from, from + static_cast<std::ptrdiff_t>(bytes), '\n');
  start_ += bytes;
  offset_ += static_cast<std::int64_t>(bytes);
}

// Goes behind the next line end, or to the end of the file.
void CsvReader::SkipLine() {
  while (buffer_.find('\n', start_) == std::string::npos) {
    Consume(buffer_.size() - start_);
    if (!Fill()) return;
  }
  Consume(buffer_.find('\n', start_) + 1 - start_);
}

void CsvReader::SkipComments() {
  while ((start_ < buffer_.size() || Fill()) && buffer_[start_] == '#') {
    row_line_ = line_;
    while (buffer_.find('\n', start_) == std::string::npos && Fill()) {
      if (buffer_.size() - start_ > kMostRecordBytes) FailTooLong();
    }
    SkipLine();
  }
}

void CsvReader::CheckHeader() {
  if (header_.size() > kMostColumns) {
    Fail(std::to_string(header_.size()) + " columns, expected at most " +
         std::to_string(kMostColumns));
  }
}

std::size_t CsvReader::Find(std::string_view name) const {
  const auto found = std::find(header_.begin(), header_.end(), name);
  return found == header_.end() ? kMissing : static_cast<std::size_t>(found - header_.begin());
}

std::size_t CsvReader::Column(std::string_view name) const {
  if (const std::size_t found = Find(name); found != kMissing) return found;
  constexpr std::size_t kMostShown = 1000;
  std::string columns;
  for (const std::string& column : header_) {
    columns +=
        (columns.empty() ? "" : ",") + Visible(std::string_view(column).substr(0, kMostShown));
    if (columns.size() < kMostShown) continue;
    columns.replace(kMostShown, std::string::npos, "...");
    break;
  }
  throw DataError(path_ + ":" + std::to_string(header_line_) + ": no column '" + std::string(name) +
                  "'; the file has " + (header_.empty() ? "no header line" : columns));
}

// The next record, with what the end of the file does to it. False where nothing is left to read.
bool CsvReader::ReadRecord(std::vector<std::string>& fields) {
  row_line_ = line_;
  std::size_t used = 0;
  Ending ending = Ending::kNothing;
  while (true) {
    const std::string_view ahead = std::string_view(buffer_).substr(start_);
    ending = SplitRecord(ahead.substr(0, kMostRecordBytes), fields, used);
    if (ending < Ending::kTorn) break;
    if (ahead.size() > kMostRecordBytes) FailTooLong();
    if (!Fill()) break;
  }
  if (ending == Ending::kQuoteInField) Fail("a quote within an unquoted field");
  if (ending == Ending::kTextBehindQuote) {
    Fail("text behind a closing quote; a comma or line end was expected");
  }
  const bool torn = ending == Ending::kTorn || ending == Ending::kQuoteOpen;
  if (ending == Ending::kNothing || (torn && last_ == LastRow::kMayBeTorn)) {
    fields.clear();
    return false;
  }
  if (ending == Ending::kQuoteOpen) Fail("a quoted field has no closing quote");
  if (torn && last_ == LastRow::kMustBeWhole) Fail("the last row has no line end: it was cut off");
  Consume(used);
  return true;
}

bool CsvReader::Next() {
  while (true) {
    try {
      if (!ReadRecord(fields_)) return false;
    } catch (const DataError&) {
      if (!pass_over_) throw;
      SkipLine();
      continue;
    }
    if (fields_.size() == header_.size()) return true;
    if (pass_over_) continue;
    Fail(std::to_string(fields_.size()) + " fields, expected the header's " +
         std::to_string(header_.size()));
  }
}

const std::string& CsvReader::Text(std::size_t column) const {
  static const std::string empty;
  return column == kMissing ? empty : fields_[column];
}

std::int64_t CsvReader::Integer(std::size_t column) const {
  std::int64_t value = 0;
  if (!Parse(Text(column), value)) FailAt(column, "an integer");
  if (value > kMostInteger || value < -kMostInteger) FailAt(column, "an integer of at most 10^12");
  return value;
}

double CsvReader::Number(std::size_t column) const {
  double value = 0;
  if (!Parse(Text(column), value)) FailAt(column, "a number");
  return value;
}

double CsvReader::NumberOrNan(std::size_t column) const {
  return Text(column).empty() ? NAN : Number(column);
}

void CsvReader::Fail(const std::string& problem) const {
  throw DataError(path_ + ":" + std::to_string(row_line_) + ": " + problem);
}

void CsvReader::FailAt(std::size_t column, const char* expected) const {
  if (column == kMissing) Fail(std::string("a column is missing, expected ") + expected);
  Fail("column " + header_[column] + " is " + Shown(fields_[column]) + ", expected " + expected);
}

void CsvReader::FailTooLong() const {
  Fail(
      "more than 1 MiB without the end of a row (an open quote, or no CSV file at all); expected "
      "rows of some hundred bytes");
}

bool CsvFollower::Changed() const {
  if (header_.empty()) return false;
  std::string ignored;
  const int fd = OpenToRead(path_, Pipes::kRefused, &ignored);
  if (fd < 0) return true;
  const auto size = static_cast<std::int64_t>(last_.size());
  const bool same = SizeOf(fd) >= offset_ && TextAt(fd, offset_ - size, last_.size()) == last_;
  CloseFile(fd);
  return !same;
}

void CsvFollower::Restart() {
  header_.clear();
  last_.clear();
  offset_ = 0;
}

void CsvFollower::Read(const std::function<void(CsvReader&)>& read) {
  std::unique_ptr<CsvReader> file;
  try {
    file.reset(new CsvReader(path_, header_, offset_));
  } catch (const DataError&) {  // not there yet
    return;
  }
  if (file->header().empty()) return;
  const std::int64_t size = SizeOf(file->fd_);
  if (header_.empty() && size - file->offset() > window_) {
    file->GoTo(size - window_);
    file->SkipLine();
  }
  read(*file);
  header_ = file->header();
  offset_ = file->offset();
  const std::size_t kept = std::min(file->start_, kRemembered);
  last_ = file->buffer_.substr(file->start_ - kept, kept);
}

}  // namespace ada::telemetry

// CSV files are read block by block, their rows found by RFC 4180, also where the text ends within
// one, and checked against the header. A follower goes on where it stopped, and knows by the last
// bytes whether that is still there.
#include "telemetry/csv_reader.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include "error.h"
#include "io/data_files.h"
#include "io/shown_text.h"
#include "io/system_call.h"
#include "io/text.h"

namespace ada::telemetry {

namespace {

// Appends the rest of a quoted field and moves `at` to its closing quote; false: there is none.
// A quote within quotes is written twice. At the end of the text a quote counts as the closing one,
// since more text may still double it: then the caller asks again.
bool TakeQuoted(std::string_view text, std::size_t& at, std::string& field) {
  for (; at < text.size(); ++at) {
    if (text[at] == '"') {
      if (at + 1 == text.size() || text[at + 1] != '"') return true;
      ++at;
    }
    field += text[at];
  }
  return false;
}

}  // namespace

Ending SplitRecord(std::string_view text, std::vector<std::string>& fields, std::size_t& used) {
  fields.clear();
  std::string field;
  bool closed = false;  // the field was quoted and its closing quote was read
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    // A carriage return before a line end belongs to it; elsewhere it is part of the field.
    if (c == '\r' && (at + 1 == text.size() || text[at + 1] == '\n')) continue;
    if (c == ',' || c == '\n') {
      fields.push_back(std::move(field));
      field.clear();
      closed = false;
      used = at + 1;
      if (c == '\n') return Ending::kLineEnd;
    } else if (closed) {
      return Ending::kTextBehindQuote;
    } else if (c == '"') {
      if (!field.empty()) return Ending::kQuoteInField;
      if (!TakeQuoted(text, ++at, field)) return Ending::kQuoteOpen;
      closed = true;
    } else {
      field += c;
    }
  }
  // An empty text is no record; `""` without a line end is one, of one empty field.
  if (fields.empty() && field.empty() && !closed) return Ending::kNothing;
  fields.push_back(std::move(field));
  used = text.size();
  return Ending::kTorn;
}

// --- Files ---

namespace {

// A record that does not fit makes the next read larger.
constexpr std::size_t kBlock = 1 << 16;  // bytes that are read at once, at least
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // UTF-8's, as spreadsheets write it
constexpr const char* kAsUtf8 = "; expected UTF-8: save the file in that encoding";

template <class T>
bool Parse(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// The first byte of the fields that is no UTF-8, as a message; "": all are.
std::string NoUtf8(const std::vector<std::string>& fields) {
  for (const std::string& field : fields) {
    for (std::size_t at = 0; at < field.size();) {
      const bool is_ascii = static_cast<unsigned char>(field[at]) < 0x80;
      const std::size_t length = is_ascii ? 1 : CharacterLength(field, at);
      if (length == 0)
        return "the byte '" + Visible(field.substr(at, 1)) + "' is no UTF-8" + kAsUtf8;
      at += length;
    }
  }
  return "";
}

}  // namespace

CsvReader::CsvReader(std::string path, LastRow last) : path_(std::move(path)), last_(last) {
  Open();
  Begin();
}

CsvReader::CsvReader(std::string name, int descriptor, LastRow last)
    : path_(std::move(name)), fd_(descriptor), last_(last), in_order_(true) {
  Begin();
}

// The follower's reader: no comments, no byte order mark, as only files of ours are followed.
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
  const int error = errno;
  if (fd_ < 0) ThrowUnread<DataError>(path_ + ": " + problem, error);
}

// Byte order mark, comments, header: in this order at the front of any file.
void CsvReader::Begin() {
  try {
    SkipByteOrderMark();
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

// What follows the `ahead` bytes that are in the buffer; none at the end.
std::optional<std::string> CsvReader::Read(std::size_t ahead) const {
  const std::size_t size = std::max(kBlock, ahead);
  if (!in_order_) return TextAt(fd_, offset_ + static_cast<std::int64_t>(ahead), size);
  std::string text(size, '\0');
  const ssize_t got = Retried([&] { return read(fd_, text.data(), size); });
  if (got < 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(got));
  return text;
}

// Reads more of the file, twice as much each time that a record needs still more; false at its end.
// The bytes before `start_` that a follower remembers stay; those before them are dropped, so that
// memory has a bound.
bool CsvReader::Fill() {
  const std::size_t kept = std::min(start_, kRemembered);
  buffer_.erase(0, start_ - kept);
  start_ = kept;
  const auto more = Read(buffer_.size() - start_);
  if (!more) ThrowUnread<DataError>(path_ + ": cannot be read", errno);
  buffer_ += *more;
  return !more->empty();
}

// Stands after the first `offset` bytes, and remembers the last of them.
void CsvReader::GoTo(std::int64_t offset) {
  const std::int64_t from = std::max<std::int64_t>(0, offset - kRemembered);
  buffer_.clear();
  start_ = 0;
  offset_ = from;
  while (static_cast<std::int64_t>(buffer_.size()) < offset - from && Fill()) continue;
  Consume(std::min(buffer_.size(), static_cast<std::size_t>(offset - from)));
}

// Goes on after `bytes` more of the buffer.
void CsvReader::Consume(std::size_t bytes) {
  const auto from = buffer_.begin() + static_cast<std::ptrdiff_t>(start_);
  line_ += std::count(from, from + static_cast<std::ptrdiff_t>(bytes), '\n');
  start_ += bytes;
  offset_ += static_cast<std::int64_t>(bytes);
}

// Goes after the next line end, or to the end of the file.
void CsvReader::SkipLine() {
  while (buffer_.find('\n', start_) == std::string::npos) {
    Consume(buffer_.size() - start_);
    if (!Fill()) return;
  }
  Consume(buffer_.find('\n', start_) + 1 - start_);
}

// A file may come in pieces of one byte (a pipe): it is read on as long as it could still be the
// mark.
void CsvReader::SkipByteOrderMark() {
  while (buffer_.size() < kByteOrderMark.size() && kByteOrderMark.starts_with(buffer_) && Fill()) {
  }
  if (buffer_.starts_with(kByteOrderMark)) Consume(kByteOrderMark.size());
  if (buffer_.starts_with("\xFF\xFE") || buffer_.starts_with("\xFE\xFF"))
    Fail(std::string("the file is UTF-16, as its byte order mark says") + kAsUtf8);
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
  // Columns without a name, as spreadsheets leave them after the last, are not asked for.
  std::vector<std::string> names = header_;
  std::erase(names, "");
  const std::string twice = FirstTwice(names);
  if (!twice.empty()) Fail("two columns are called " + Shown(twice) + "; expected each name once");
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
// Three things end the loop: a record is whole, the file is at its end, or the record is longer
// than any that is allowed. Only the last row of a file can be torn, and `last_` decides what that
// means.
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
    Fail("text after a closing quote; a comma or line end was expected");
  }
  const bool torn = ending == Ending::kTorn || ending == Ending::kQuoteOpen;
  if (ending == Ending::kNothing || (torn && last_ == LastRow::kMayBeTorn)) {
    fields.clear();
    return false;
  }
  if (ending == Ending::kQuoteOpen) Fail("a quoted field has no closing quote");
  if (torn && last_ == LastRow::kMustBeWhole) Fail("the last row has no line end: it was cut off");
  if (const std::string problem = NoUtf8(fields); !problem.empty()) Fail(problem);
  Consume(used);
  return true;
}

void CsvReader::TakeHeaderAsRow(std::vector<std::string> names) {
  fields_ = std::exchange(header_, std::move(names));
  has_row_ = true;
}

// A follower passes over rows that are damaged (pass_over_), as a killed run may leave one that a
// resume cuts later; every other reader fails.
bool CsvReader::Next() {
  if (std::exchange(has_row_, false)) return true;
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

// The bound keeps sums over a whole file within 64 bits.
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

// --- Files that grow ---

// The last bytes tell: a row holds the step and numbers of many digits, so that another run hardly
// has the same bytes in the same place.
bool CsvFollower::Changed() const {
  if (header_.empty()) return false;
  std::string ignored;
  const int fd = OpenToRead(path_, Pipes::kRefused, &ignored);
  if (fd < 0) return true;
  const auto size = static_cast<std::int64_t>(last_.size());
  const bool same = SizeOfFile(fd) >= offset_ && TextAt(fd, offset_ - size, last_.size()) == last_;
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
  jumped_ = false;
  try {
    file.reset(new CsvReader(path_, header_, offset_));
  } catch (const DataError&) {  // not there yet
    return;
  }
  if (file->header().empty()) return;
  const std::int64_t size = SizeOfFile(file->fd_);
  // A jump lands within a row, most likely: reading begins after the next line end.
  if (header_.empty() && size - file->offset() > window_) {
    file->GoTo(size - window_);
    file->SkipLine();
    jumped_ = true;
  }
  read(*file);
  header_ = file->header();
  offset_ = file->offset();
  const std::size_t kept = std::min(file->start_, CsvReader::kRemembered);
  last_ = file->buffer_.substr(file->start_ - kept, kept);
}

}  // namespace ada::telemetry

#include "telemetry/csv_reader.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <system_error>

#include "core/error.h"

namespace ada::telemetry {
namespace {

constexpr int kEnd = std::char_traits<char>::eof();

template <class T>
bool Parse(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

CsvReader::CsvReader(std::string path, LastRow last)
    : path_(std::move(path)), file_(path_, std::ios::binary), last_(last) {
  if (!file_) throw DataError(path_ + ": " + std::generic_category().message(errno));
  SkipComments();
  header_line_ = row_line_ = line_;
  if (!ReadRecord(header_) && last_ == LastRow::kMustBeWhole) {
    Fail("empty file, expected a header line");
  }
}

void CsvReader::SkipComments() {
  while (Peek() == '#') {
    for (int c = Get(); c != '\n' && c != kEnd;) c = Get();
    row_end_ = offset_;
  }
}

std::size_t CsvReader::Column(std::string_view name) const {
  const auto found = std::find(header_.begin(), header_.end(), name);
  if (found != header_.end()) return found - header_.begin();
  std::string columns = header_.empty() ? "no header line" : "";
  for (const std::string& column : header_) columns += (columns.empty() ? "" : ",") + column;
  throw DataError(path_ + ":" + std::to_string(header_line_) + ": no column '" + std::string(name) +
                  "'; the file has " + columns);
}

bool CsvReader::Next() {
  row_line_ = line_;
  if (!ReadRecord(fields_)) return false;
  if (fields_.size() != header_.size()) {
    Fail(std::to_string(fields_.size()) + " fields, expected the header's " +
         std::to_string(header_.size()));
  }
  return true;
}

std::int64_t CsvReader::Integer(std::size_t column) const {
  std::int64_t value = 0;
  if (!Parse(fields_[column], value)) FailAt(column, "an integer");
  return value;
}

double CsvReader::Number(std::size_t column) const {
  double value = 0;
  if (!Parse(fields_[column], value)) FailAt(column, "a number");
  return value;
}

double CsvReader::NumberOrNan(std::size_t column) const {
  return fields_[column].empty() ? NAN : Number(column);
}

// The stream's own get would do, at several times the cost. A buffer throws what a stream reports:
// a folder that was opened as a file.
int CsvReader::Peek() {
  try {
    return file_.rdbuf()->sgetc();
  } catch (const std::ios_base::failure&) {
    throw DataError(path_ + ": cannot be read");
  }
}

int CsvReader::Get() {
  const int c = Peek();
  if (c == kEnd) return c;
  file_.rdbuf()->sbumpc();
  ++offset_;
  if (c == '\n') ++line_;
  return c;
}

// One record, with what the end of the file does to it. False where nothing is left to read.
bool CsvReader::ReadRecord(std::vector<std::string>& fields) {
  fields.clear();
  const Ending ending = ReadFields(fields);
  const bool torn = ending == Ending::kTorn || ending == Ending::kQuoteOpen;
  if (torn && last_ != LastRow::kMayBeTorn) {
    if (ending == Ending::kQuoteOpen) Fail("a quoted field has no closing quote");
    if (last_ == LastRow::kMustBeWhole) Fail("the last row has no line end: it was cut off");
  }
  if (ending == Ending::kNothing || (torn && last_ == LastRow::kMayBeTorn)) {
    fields.clear();
    return false;
  }
  row_end_ = offset_;
  return true;
}

// Fields up to a line end outside of quotes, or up to the end of the file.
CsvReader::Ending CsvReader::ReadFields(std::vector<std::string>& fields) {
  std::string field;
  bool closed = false;  // the field was quoted and its closing quote was read
  for (int c = Get();; c = Get()) {
    if (c == kEnd && fields.empty() && field.empty() && !closed) return Ending::kNothing;
    if (c == '\r' && (Peek() == '\n' || Peek() == kEnd)) continue;
    if (c == ',' || c == '\n' || c == kEnd) {
      fields.push_back(std::move(field));
      field.clear();
      closed = false;
      if (c != ',') return c == '\n' ? Ending::kLineEnd : Ending::kTorn;
    } else if (closed) {
      Fail("text behind a closing quote; a comma or line end was expected");
    } else if (c == '"') {
      if (!field.empty()) Fail("a quote within an unquoted field");
      if (!ReadQuoted(field)) return Ending::kQuoteOpen;
      closed = true;
    } else {
      field += static_cast<char>(c);
    }
  }
}

// The rest of a quoted field; false where the file ends before its closing quote.
bool CsvReader::ReadQuoted(std::string& field) {
  for (int c = Get(); c != kEnd; c = Get()) {
    if (c == '"') {
      if (Peek() != '"') return true;
      Get();
    }
    field += static_cast<char>(c);
  }
  return false;
}

void CsvReader::Fail(const std::string& problem) const {
  throw DataError(path_ + ":" + std::to_string(row_line_) + ": " + problem);
}

void CsvReader::FailAt(std::size_t column, const char* expected) const {
  Fail("column " + header_[column] + " is '" + fields_[column] + "', expected " + expected);
}

}  // namespace ada::telemetry

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

CsvReader::CsvReader(std::string path) : path_(std::move(path)), file_(path_, std::ios::binary) {
  if (!file_) throw DataError(path_ + ": " + std::generic_category().message(errno));
  if (!ReadRecord(header_)) Fail("empty file, expected a header line");
}

std::size_t CsvReader::Column(std::string_view name) const {
  const auto found = std::find(header_.begin(), header_.end(), name);
  if (found != header_.end()) return found - header_.begin();
  std::string columns;
  for (const std::string& column : header_) columns += (columns.empty() ? "" : ",") + column;
  throw DataError(path_ + ":1: no column '" + std::string(name) + "'; the file has " + columns);
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

int CsvReader::Get() {
  const int c = file_.rdbuf()->sbumpc();
  if (c == kEnd) return c;
  ++offset_;
  if (c == '\n') ++line_;
  return c;
}

// One record: fields up to a line end outside of quotes. False where nothing is left.
bool CsvReader::ReadRecord(std::vector<std::string>& fields) {
  fields.clear();
  std::string field;
  bool closed = false;  // the field was quoted and its closing quote was read
  for (int c = Get();; c = Get()) {
    if (c == kEnd) {
      if (fields.empty() && field.empty() && !closed) return false;
      Fail("the last row has no line end: it was cut off");
    }
    if (c == '\r' && file_.rdbuf()->sgetc() == '\n') continue;
    if (c == ',' || c == '\n') {
      fields.push_back(std::move(field));
      field.clear();
      closed = false;
      if (c == '\n') return true;
    } else if (closed) {
      Fail("text behind a closing quote; a comma or line end was expected");
    } else if (c == '"') {
      if (!field.empty()) Fail("a quote within an unquoted field");
      ReadQuoted(field);
      closed = true;
    } else {
      field += static_cast<char>(c);
    }
  }
}

void CsvReader::ReadQuoted(std::string& field) {
  for (int c = Get();; c = Get()) {
    if (c == kEnd) Fail("a quoted field has no closing quote");
    if (c == '"') {
      if (file_.rdbuf()->sgetc() != '"') return;
      Get();
    }
    field += static_cast<char>(c);
  }
}

void CsvReader::Fail(const std::string& problem) const {
  throw DataError(path_ + ":" + std::to_string(row_line_) + ": " + problem);
}

void CsvReader::FailAt(std::size_t column, const char* expected) const {
  Fail("column " + header_[column] + " is '" + fields_[column] + "', expected " + expected);
}

}  // namespace ada::telemetry

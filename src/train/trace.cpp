#include "train/trace.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>

#include "core/error.h"

namespace ada::train {
namespace {

template <class T>
bool Parse(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

TraceReader::TraceReader(std::string path) : path_(std::move(path)), file_(path_) {
  if (!file_) throw DataError(path_ + ": " + std::generic_category().message(errno));
  std::string line;
  do {
    if (!ReadLine(line)) Fail("no header line, expected one with the column overflow");
  } while (line.rfind('#', 0) == 0);
  header_ = Split(line);
  for (std::size_t i = 0; i < header_.size(); ++i) {
    if (std::find(header_.begin(), header_.begin() + i, header_[i]) != header_.begin() + i)
      Fail("two columns are called '" + header_[i] + "'");
  }
}

void TraceReader::Expect(std::string_view column, std::string_view why) const {
  if (Has(column)) return;
  Fail("no column '" + std::string(column) + "', which " + std::string(why) +
       "; the file has: " + Joined(header_));
}

bool TraceReader::Next() {
  std::string line;
  if (!ReadLine(line)) return false;
  fields_ = Split(line);
  if (fields_.size() != header_.size()) {
    Fail(std::to_string(fields_.size()) + " fields, expected the header's " +
         std::to_string(header_.size()));
  }
  return true;
}

bool TraceReader::Flag(std::string_view column) const {
  const std::string& text = Text(column);
  if (text != "0" && text != "1") FailAt(column, "0 or 1");
  return text == "1";
}

double TraceReader::Magnitude(std::string_view column) const {
  double value = 0;
  if (!Parse(Text(column), value) || value < 0) FailAt(column, "a number from 0 on, inf or nan");
  return value;
}

std::int64_t TraceReader::Integer(std::string_view column) const {
  std::int64_t value = 0;
  if (!Parse(Text(column), value)) FailAt(column, "an integer");
  return value;
}

std::optional<std::size_t> TraceReader::Find(std::string_view column) const {
  const auto found = std::find(header_.begin(), header_.end(), column);
  if (found == header_.end()) return std::nullopt;
  return found - header_.begin();
}

bool TraceReader::ReadLine(std::string& line) {
  if (!std::getline(file_, line)) {
    if (file_.bad()) throw DataError(path_ + ": cannot be read");
    return false;
  }
  ++line_;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

// Fields of RFC 4180; a line end within quotes does not occur in traces and is refused.
std::vector<std::string> TraceReader::Split(const std::string& line) const {
  std::vector<std::string> fields(1);
  bool quoted = false, closed = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted) {
      const bool escaped = c == '"' && i + 1 < line.size() && line[i + 1] == '"';
      if (escaped) ++i;
      closed = c == '"' && !escaped;
      quoted = !closed;
      if (quoted) fields.back() += c;
    } else if (c == ',') {
      fields.emplace_back();
      closed = false;
    } else if (closed) {
      Fail("text behind a closing quote; a comma or line end was expected");
    } else if (c == '"') {
      if (!fields.back().empty()) Fail("a quote within an unquoted field");
      quoted = true;
    } else {
      fields.back() += c;
    }
  }
  if (quoted) Fail("a quoted field has no closing quote");
  return fields;
}

const std::string& TraceReader::Text(std::string_view column) const {
  const auto found = Find(column);
  ADA_CHECK(found.has_value());
  return fields_[*found];
}

void TraceReader::Fail(const std::string& problem) const {
  throw DataError(path_ + ":" + std::to_string(line_) + ": " + problem);
}

void TraceReader::FailAt(std::string_view column, const char* expected) const {
  Fail("column " + std::string(column) + " is '" + Text(column) + "', expected " + expected);
}

}  // namespace ada::train

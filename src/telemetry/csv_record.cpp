// Splits one record by RFC 4180, also where the text ends within it.
#include <utility>

#include "telemetry/csv_reader.h"

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

}  // namespace ada::telemetry

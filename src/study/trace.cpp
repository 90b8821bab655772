#include "study/trace.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace ada::study {
namespace {

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

TraceReader::TraceReader(const std::string& path)
    : csv_(path, telemetry::LastRow::kMayLackLineEnd) {
  const std::vector<std::string>& header = csv_.header();
  if (header.empty()) {
    throw DataError(path + ":" + std::to_string(csv_.line() - 1) +
                    ": no header line, expected one with the column overflow");
  }
  for (auto name = header.begin(); name != header.end(); ++name) {
    if (std::find(header.begin(), name, *name) != name)
      csv_.Fail("two columns are called '" + *name + "'");
  }
}

void TraceReader::Expect(std::string_view column, std::string_view why) const {
  if (Has(column)) return;
  csv_.Fail("no column '" + std::string(column) + "', which " + std::string(why) +
            "; the file has: " + Joined(csv_.header()));
}

bool TraceReader::Flag(std::string_view column) const {
  const std::size_t at = At(column);
  const std::string& text = csv_.Text(at);
  if (text != "0" && text != "1") csv_.FailAt(at, "0 or 1");
  return text == "1";
}

double TraceReader::Magnitude(std::string_view column) const {
  const std::size_t at = At(column);
  const std::string& text = csv_.Text(at);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    csv_.FailAt(at, "a number from 0 on, inf or nan");
  return value;
}

std::int64_t TraceReader::Integer(std::string_view column) const {
  return csv_.Integer(At(column));
}

std::optional<std::size_t> TraceReader::Find(std::string_view column) const {
  const auto found = std::find(csv_.header().begin(), csv_.header().end(), column);
  if (found == csv_.header().end()) return std::nullopt;
  return found - csv_.header().begin();
}

std::size_t TraceReader::At(std::string_view column) const {
  const auto found = Find(column);
  ADA_CHECK(found.has_value());
  return *found;
}

}  // namespace ada::study

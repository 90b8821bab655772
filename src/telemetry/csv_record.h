// One record of a CSV file (RFC 4180) as fields, out of text that may end anywhere.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ada::telemetry {

// Bounds of what is read. Our own rows have some hundred bytes; without a bound a quote that
// nothing closes, or a file that is no CSV, would be one row of gigabytes.
inline constexpr std::size_t kMostRecordBytes = 1 << 20;
inline constexpr std::size_t kMostColumns = 4096;

// Where a record ended. The last three: at the end of the text, so that more of it may change them.
enum class Ending { kLineEnd, kQuoteInField, kTextBehindQuote, kTorn, kQuoteOpen, kNothing };

// Splits the record at the front of `text` into its fields; `used`: its bytes, line end included
// (set for kLineEnd and kTorn).
Ending SplitRecord(std::string_view text, std::vector<std::string>& fields, std::size_t& used);

}  // namespace ada::telemetry

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <ostream>
#include <system_error>

#include "core/error.h"
#include "core/system_call.h"
#include "core/utf8.h"
#include "study/replay/parts.h"
#include "telemetry/csv_reader.h"

namespace ada::study {
namespace {

using telemetry::CsvReader;

std::string_view Trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::optional<double> NumberIn(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool IsWord(std::string_view text) {
  const std::string lower = LowerCase(text);
  return lower == "true" || lower == "false";
}

// 0 and 1, also as the floats and the booleans of Python, R and others.
std::optional<bool> FlagOf(std::string_view text) {
  if (IsWord(text)) return LowerCase(text) == "true";
  if (text == "0" || text == "1") return text == "1";
  if (text.find_first_of(".eE") == std::string_view::npos) return std::nullopt;
  const std::optional<double> number = NumberIn(text);
  if (number != 0.0 && number != 1.0) return std::nullopt;
  return number == 1.0;
}

bool IsValue(std::string_view text) { return IsWord(text) || NumberIn(text).has_value(); }

// The descriptor and the name of what `path` says; `-` is standard input.
std::pair<int, std::string> Open(const std::string& path) {
  if (path == "-") {
    const int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) throw DataError(std::string("standard input: ") + std::strerror(errno));
    return {fd, "standard input"};
  }
  std::string problem;
  const int fd = OpenToRead(path, Pipes::kOffered, &problem);
  if (fd < 0) throw DataError(path + ": " + problem);
  return {fd, path};
}

// A CSV that may begin with `#` comment lines, one row an attempt, of which a few columns matter. A
// file of one column needs no header. The last row may lack its line end.
class Trace : public Attempts {
 public:
  Trace(const std::pair<int, std::string>& source, const std::string& column, bool wants_amax,
        std::ostream& notes)
      : csv_(source.second, source.first, telemetry::LastRow::kMayLackLineEnd),
        name_(source.second),
        wants_amax_(wants_amax) {
    const std::vector<std::string>& header = csv_.header();
    if (header.empty()) {
      throw DataError(name_ + ":" + std::to_string(csv_.line() - 1) +
                      ": no header line, expected one with the column overflow");
    }
    if (column.empty() && std::all_of(header.begin(), header.end(),
                                      [](const auto& field) { return IsValue(Trimmed(field)); }))
      TakeAsHeaderless(notes);
    FindColumns(column);
  }

  bool Next(scaling::StepOutcome& outcome) override {
    if (!csv_.Next()) return false;
    if (headerless_) CheckStyle();
    outcome = {};
    if (overflow_ != CsvReader::kMissing) outcome.overflow = Flag(overflow_);
    if (wants_amax_) {
      outcome.amax = Magnitude(amax_);
      outcome.overflow = outcome.overflow || !std::isfinite(outcome.amax);
    }
    return true;
  }

  std::pair<std::int64_t, std::int64_t> FirstNumbers() const override {
    const std::size_t attempt = Find("attempt"), step = Find("step");
    constexpr std::size_t kNone = CsvReader::kMissing;
    if (attempt == kNone && step == kNone) return {1, 1};
    return {Integer(attempt == kNone ? step : attempt), Integer(step == kNone ? attempt : step)};
  }

  std::string Describe() const override { return "trace: " + Visible(name_); }

 private:
  void TakeAsHeaderless(std::ostream& notes) {
    if (csv_.header().size() > 1)
      csv_.Fail("no header line, and " + std::to_string(csv_.header().size()) +
                " columns; expected one column, or a first line with their names, overflow among "
                "them");
    csv_.TakeHeaderAsRow({wants_amax_ ? "amax" : "overflow"});
    headerless_ = true;
    notes << Visible(name_) << ": no header line; its first line is the first attempt\n";
  }

  // A number as a column's name looks like a first attempt, but other rows then are words.
  void CheckStyle() {
    const std::string text(Trimmed(csv_.Text(0)));
    if (!first_.empty() && IsWord(first_) != IsWord(text))
      csv_.Fail("the first line is " + Shown(first_) + ", this one " + Shown(text) +
                ": expected the same kind of values in all lines; if the first is the column's "
                "name: --column " +
                first_);
    if (first_.empty()) first_ = text;
  }

  // Of a column by its name, or by one that differs in blanks and letter case alone.
  std::size_t Find(const std::string& name) const {
    if (const std::size_t exact = csv_.Find(name); exact != CsvReader::kMissing) return exact;
    std::size_t found = CsvReader::kMissing;
    for (std::size_t i = 0; i < csv_.header().size(); ++i) {
      if (LowerCase(Trimmed(csv_.header()[i])) != LowerCase(name)) continue;
      if (found != CsvReader::kMissing)
        csv_.Fail("two columns are called " + Shown(csv_.header()[found]) + " and " +
                  Shown(csv_.header()[i]) + ": either may be " + name);
      found = i;
    }
    return found;
  }

  void FindColumns(const std::string& column) {
    overflow_ = Find(column.empty() || wants_amax_ ? "overflow" : column);
    amax_ = Find(column.empty() ? "amax" : column);
    const std::string wanted = !column.empty() ? column : wants_amax_ ? "amax" : "overflow";
    if ((wants_amax_ ? amax_ : overflow_) != CsvReader::kMissing) return;
    std::string names;
    for (const std::string& name : csv_.header())
      names += (names.empty() ? "" : ", ") + Visible(name);
    csv_.Fail("no column '" + wanted + "', which " +
              (wants_amax_ ? "policy logmax needs: the largest unscaled gradient of each attempt"
                           : "replay needs: 1 where an attempt's gradients were not finite, else "
                             "0") +
              "; the file has: " + names + (column.empty() ? "; --column NAME takes another" : ""));
  }

  bool Flag(std::size_t column) const {
    const std::optional<bool> flag = FlagOf(Trimmed(csv_.Text(column)));
    if (!flag) csv_.FailAt(column, "0 or 1, False or True");
    return *flag;
  }
  double Magnitude(std::size_t column) const {
    const std::optional<double> number = NumberIn(Trimmed(csv_.Text(column)));
    if (!number || *number < 0) csv_.FailAt(column, "a number from 0 on, inf or nan");
    return *number;
  }
  // Where some rows lack it, other programs write an integer as 7.0.
  std::int64_t Integer(std::size_t column) const {
    const std::optional<double> number = NumberIn(Trimmed(csv_.Text(column)));
    constexpr auto kMost = static_cast<double>(CsvReader::kMostInteger);
    if (!number || std::floor(*number) != *number) csv_.FailAt(column, "an integer");
    if (std::fabs(*number) > kMost) csv_.FailAt(column, "an integer of at most 10^12");
    return static_cast<std::int64_t>(*number);
  }

  CsvReader csv_;
  const std::string name_;
  const bool wants_amax_;
  bool headerless_ = false;
  std::string first_;  // value of a file without a header
  std::size_t overflow_ = CsvReader::kMissing, amax_ = CsvReader::kMissing;
};

}  // namespace

std::unique_ptr<Attempts> OpenTrace(const ReplayOptions& options, bool wants_amax,
                                    std::ostream& notes) {
  return std::make_unique<Trace>(Open(options.trace), options.column, wants_amax, notes);
}

}  // namespace ada::study

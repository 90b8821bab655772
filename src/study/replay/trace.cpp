// A trace is a file of attempts: a log of another program, or a CSV. It is tried as a log before it
// is taken for a CSV, of which one row is held at a time.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <ostream>
#include <system_error>

#include "error.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/replay/attempts.h"
#include "telemetry/csv_reader.h"

namespace ada::study {
namespace {

using telemetry::CsvReader;

std::string_view Trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

// The whole text must be the number; inf and nan are numbers, too.
std::optional<double> NumberIn(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The booleans of Python, R and others, in any letter case.
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

// Attempts that are all known.
class Recorded : public Attempts {
 public:
  Recorded(ForeignLog log, std::string name) : log_(std::move(log)), name_(std::move(name)) {}

  bool Next(scaling::StepOutcome& outcome) override {
    if (next_ == log_.attempts.size()) return false;
    outcome = {};
    outcome.overflow = log_.attempts[next_++].overflow;
    return true;
  }
  RecordedAttempt recorded() const override { return log_.attempts[next_ - 1]; }
  std::string Describe() const override { return "log: " + Visible(name_); }

 private:
  ForeignLog log_;
  std::string name_;
  std::size_t next_ = 0;
};

// A CSV that may begin with `#` comment lines, one row for each attempt, of which a few columns are
// used. A file of one column needs no header. The last row may lack its line end. A row with an
// empty cell is not an attempt. Errors in a row are thrown when it is reached.
class TraceRows {
 public:
  TraceRows(const TraceSource& source, const std::string& column, bool wants_amax)
      : csv_(source.name(), source.FromStart(), telemetry::LastRow::kMayLackLineEnd),
        wants_amax_(wants_amax),
        may_be_numbers_(!column.empty() && !wants_amax) {
    const std::vector<std::string>& header = csv_.header();
    if (header.empty()) {
      throw DataError(source.name() + ":" + std::to_string(csv_.line() - 1) +
                      ": no header line, expected one with the column overflow");
    }
    if (column.empty() && std::all_of(header.begin(), header.end(),
                                      [](const auto& field) { return IsValue(Trimmed(field)); }))
      // A first line of values is no header, unless --column says that it is a name.
      TakeAsHeaderless();
    FindColumns(column);
    scale_ = Find("scale");
    if (scale_ == CsvReader::kMissing) scale_ = Find("loss_scale");
  }

  struct Row {
    bool flag = false, broken = false;  // of a column of flags; of one of numbers
    double amax = 0;
    std::optional<double> scale;
  };
  // The next attempt; nothing at the end.
  std::optional<Row> Next() {
    while (csv_.Next()) {
      if (std::optional<Row> row = ReadRow()) return row;
    }
    return std::nullopt;
  }
  bool headerless() const { return headerless_; }
  // Say of the rows that were read whether the column holds flags, and how many had an empty cell.
  bool flags() const { return flags_; }
  std::int64_t empty() const { return empty_; }
  std::pair<std::int64_t, std::int64_t> first_numbers() const { return first_numbers_; }

 private:
  std::optional<Row> ReadRow() {
    if (headerless_) CheckStyle();
    const std::size_t needed = wants_amax_ ? amax_ : overflow_;
    if (Trimmed(csv_.Text(needed)).empty()) {
      ++empty_;
      return std::nullopt;
    }
    Row row;
    if (wants_amax_) row.amax = Magnitude(amax_);
    if (overflow_ != CsvReader::kMissing && !Trimmed(csv_.Text(overflow_)).empty())
      TakeOverflow(row);
    if (scale_ != CsvReader::kMissing) row.scale = NumberIn(Trimmed(csv_.Text(scale_)));
    if (!std::exchange(began_, true)) TakeFirstNumbers();
    return row;
  }
  // A column that is named may hold numbers: one that is neither 0 nor 1 says so.
  void TakeOverflow(Row& row) {
    const std::string_view text = Trimmed(csv_.Text(overflow_));
    const std::optional<bool> flag = FlagOf(text);
    const std::optional<double> number = NumberIn(text);
    if (!may_be_numbers_ || (!flag && !number)) {
      row.flag = Flag(overflow_);
      return;
    }
    flags_ = flags_ && flag.has_value();
    row.flag = flag.value_or(false);
    row.broken = number && !std::isfinite(*number);
  }
  void TakeFirstNumbers() {
    const std::size_t attempt = Find("attempt"), step = Find("step");
    constexpr std::size_t kNone = CsvReader::kMissing;
    if (attempt == kNone && step == kNone) return;
    first_numbers_ = {Integer(attempt == kNone ? step : attempt),
                      Integer(step == kNone ? attempt : step)};
  }
  void TakeAsHeaderless() {
    if (csv_.header().size() > 1)
      csv_.Fail("no header line, and " + std::to_string(csv_.header().size()) +
                " columns; expected one column, or a first line with their names, overflow among "
                "them");
    csv_.TakeHeaderAsRow({wants_amax_ ? "amax" : "overflow"});
    headerless_ = true;
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

  // Finds a column by its name, or by one that differs only in blanks and letter case.
  std::size_t Find(const std::string& name) const {
    if (const std::size_t exact = csv_.Find(name); exact != CsvReader::kMissing) return exact;
    std::size_t found = CsvReader::kMissing;
    for (std::size_t i = 0; i < csv_.header().size(); ++i) {
      if (LowerCase(Trimmed(csv_.header()[i])) != LowerCase(name)) continue;
      if (found != CsvReader::kMissing)
        // Guessing between them could replay the wrong one.
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
  const bool wants_amax_;
  bool headerless_ = false, began_ = false;
  std::string first_;  // value of a file without a header
  std::size_t overflow_ = CsvReader::kMissing, amax_ = CsvReader::kMissing;
  std::size_t scale_ = CsvReader::kMissing;  // with which the attempt was made
  bool may_be_numbers_ = false;
  bool flags_ = true;       // the column holds flags
  std::int64_t empty_ = 0;  // rows
  std::pair<std::int64_t, std::int64_t> first_numbers_ = {1, 1};
};

// The attempts of such a file, which is read twice: what its column holds is known only at its end.
class Trace : public Attempts {
 public:
  Trace(std::unique_ptr<TraceSource> source, const std::string& column, bool wants_amax,
        std::ostream& notes)
      : source_(std::move(source)), wants_amax_(wants_amax) {
    const std::string name = Visible(source_->name());
    {
      TraceRows all(*source_, column, wants_amax);
      if (all.headerless())
        notes << name << ": no header line; its first line is the first attempt\n";
      try {
        while (all.Next()) continue;
      } catch (const DataError&) {
        // Attempts before the faulty row are replayed; Next throws when it comes to it.
      }
      flags_ = all.flags();
      if (all.empty() > 0)
        notes << name << ": " << Counted(all.empty(), "row")
              << (all.empty() == 1 ? " with an empty cell is" : " with empty cells are")
              << " passed over\n";
    }
    if (!flags_)
      notes << name << ": " << Visible(column) << " holds numbers; inf and nan are the overflows\n";
    rows_.emplace(*source_, column, wants_amax);
  }

  bool Next(scaling::StepOutcome& outcome) override {
    const std::optional<TraceRows::Row> row = rows_->Next();
    if (!row) return false;
    outcome = {};
    outcome.overflow = flags_ ? row->flag : row->broken;
    if (wants_amax_) {
      outcome.amax = row->amax;
      outcome.overflow = outcome.overflow || !std::isfinite(outcome.amax);
    }
    scale_ = row->scale;
    return true;
  }
  RecordedAttempt recorded() const override {
    RecordedAttempt attempt;
    attempt.scale = scale_;
    return attempt;
  }
  std::pair<std::int64_t, std::int64_t> FirstNumbers() const override {
    return rows_->first_numbers();
  }
  std::string Describe() const override { return "trace: " + Visible(source_->name()); }

 private:
  std::unique_ptr<TraceSource> source_;
  const bool wants_amax_;
  bool flags_ = true;  // the column holds flags, not numbers
  std::optional<TraceRows> rows_;
  std::optional<double> scale_;  // with which the last attempt was made
};

}  // namespace

std::unique_ptr<Attempts> OpenTrace(const ReplayOptions& options, bool wants_amax,
                                    std::ostream& notes) {
  auto source = std::make_unique<TraceSource>(options.trace);
  ForeignLog log = wants_amax ? ForeignLog() : ReadForeignLog(*source);
  if (!log.attempts.empty()) {
    for (const std::string& note : log.notes)
      notes << Visible(source->name()) << ": " << note << '\n';
    return std::make_unique<Recorded>(std::move(log), source->name());
  }
  return std::make_unique<Trace>(std::move(source), options.column, wants_amax, notes);
}

}  // namespace ada::study

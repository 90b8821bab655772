#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ostream>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "study/commands.h"
#include "telemetry/columns.h"

namespace ada::study {
namespace {

// A trace: a CSV that may begin with `#` comment lines, one row an attempt, of which a few columns
// matter. The last row may lack its line end. DataErrors name file and line.
class Trace {
 public:
  // So is a column name that stands there twice.
  explicit Trace(const std::string& path) : csv_(path, telemetry::LastRow::kMayLackLineEnd) {
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

  bool Next() { return csv_.Next(); }
  bool Has(std::string_view column) const {
    return csv_.Find(column) != telemetry::CsvReader::kMissing;
  }
  // Throws DataError naming the file's columns, and `why` it is needed, where there is none.
  void Expect(const std::string& column, const std::string& why) const {
    if (Has(column)) return;
    std::string names;
    for (const std::string& name : csv_.header()) names += (names.empty() ? "" : ", ") + name;
    csv_.Fail("no column '" + column + "', which " + why + "; the file has: " + names);
  }

  // Fields of this row; the column must exist.
  bool Flag(std::string_view column) const {
    const std::string& text = csv_.Text(csv_.Column(column));
    if (text != "0" && text != "1") csv_.FailAt(csv_.Column(column), "0 or 1");
    return text == "1";
  }
  double Magnitude(std::string_view column) const {
    const std::size_t at = csv_.Column(column);
    const std::string& text = csv_.Text(at);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0)
      csv_.FailAt(at, "a number from 0 on, inf or nan");
    return value;
  }
  std::int64_t Integer(std::string_view column) const { return csv_.Integer(csv_.Column(column)); }

 private:
  telemetry::CsvReader csv_;
};

void ExpectGlobal(const scaling::Policy& policy) {
  if (policy.AwaitsStart() != nullptr)
    throw ConfigError(
        "scaling.init_scale: auto is chosen from the gradients of a run's first batch, which a "
        "trace does not hold; give a number");
  if (!policy.OwnsLayerScales() && !policy.CountsAboveEdge()) return;
  throw ConfigError("scaling.policy: " + std::string(policy.name()) +
                    " decides from the gradients themselves, which a trace does not hold; replay "
                    "takes none, fixed, dynamic and logmax");
}

void ExpectColumns(const Trace& trace, bool wants_amax) {
  if (wants_amax) {
    trace.Expect("amax", "policy logmax needs: the largest unscaled gradient of each attempt");
  } else {
    trace.Expect("overflow",
                 "replay needs: 1 where an attempt's gradients were not finite, else 0");
  }
}

scaling::StepOutcome OutcomeOf(const Trace& trace, bool wants_amax) {
  scaling::StepOutcome outcome;
  if (trace.Has("overflow")) outcome.overflow = trace.Flag("overflow");
  if (wants_amax) {
    outcome.amax = trace.Magnitude("amax");
    outcome.overflow = outcome.overflow || !std::isfinite(outcome.amax);
  }
  return outcome;
}

// The numbers of attempt and step in the first row.
std::pair<std::int64_t, std::int64_t> FirstNumbers(const Trace& trace) {
  const bool attempt = trace.Has("attempt"), step = trace.Has("step");
  if (!attempt && !step) return {1, 1};
  return {trace.Integer(attempt ? "attempt" : "step"), trace.Integer(step ? "step" : "attempt")};
}

// What a policy did in one attempt.
struct ReplayRow {
  std::int64_t attempt = 1, step = 1;
  bool overflow = false, skipped = false;
  double scale = 1, scale_after = 1;
  std::string error;
};

}  // namespace
}  // namespace ada::study

namespace ada::telemetry {

template <>
inline constexpr auto kColumns<study::ReplayRow> = std::to_array<Column<study::ReplayRow>>({
    {"attempt", &study::ReplayRow::attempt},
    {"step", &study::ReplayRow::step},
    {"overflow", &study::ReplayRow::overflow},
    {"scale", &study::ReplayRow::scale, kExact | kPlain},
    {"skipped", &study::ReplayRow::skipped},
    {"scale_after", &study::ReplayRow::scale_after, kExact | kPlain},
    {"error", &study::ReplayRow::error},
});

}  // namespace ada::telemetry

namespace ada::study {

void Replay(scaling::Policy& policy, std::int64_t max_retries, const std::string& trace_path,
            std::ostream& out) {
  ExpectGlobal(policy);
  Trace trace(trace_path);
  const bool wants_amax = policy.RequiredStats().amax;
  ExpectColumns(trace, wants_amax);
  out << telemetry::Header<ReplayRow>() << '\n';
  scaling::RetryRule retry(max_retries);
  ReplayRow row;
  for (bool first = true; trace.Next(); first = false) {
    if (first) std::tie(row.attempt, row.step) = FirstNumbers(trace);
    const scaling::StepOutcome outcome = OutcomeOf(trace, wants_amax);
    const scaling::ScaleUpdate update = policy.Update(outcome);
    row.overflow = outcome.overflow;
    row.scale = update.before;
    row.skipped = update.action == scaling::Action::kSkip;
    row.scale_after = update.after;
    row.error = update.error;
    out << telemetry::FieldsOf(row).text() << '\n';
    if (!row.error.empty()) return;
    ++row.attempt;
    if (!retry.Next(row.skipped)) ++row.step;
  }
}

}  // namespace ada::study

// replay: what scales a global policy would have had over a record of overflows, without a network.
// The policy is the object that a training drives, so its state machine is the same.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <ostream>
#include <string>
#include <tuple>

#include "error.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "scaling/policies/policies.h"
#include "study/commands.h"
#include "study/output.h"
#include "study/replay/attempts.h"
#include "study/text_table.h"
#include "telemetry/csv_reader.h"

namespace ada::study {
namespace {

// What a policy did in one attempt: a row of the CSV. `scale` is that of the attempt, `scale_after`
// that of the next one.
struct ReplayRow {
  std::int64_t attempt = 1, step = 1;
  bool overflow = false, skipped = false;
  double scale = 1, scale_after = 1;
  std::string error;   // of the attempt by which the policy ends the run
  std::string reason;  // why the scale changed; no column

  static constexpr auto Columns() {
    using enum telemetry::ColumnTraits;
    return std::to_array<telemetry::Column<ReplayRow>>({
        {"attempt", &ReplayRow::attempt},
        {"step", &ReplayRow::step},
        {"overflow", &ReplayRow::overflow},
        {"scale", &ReplayRow::scale, kExact | kPlain},
        {"skipped", &ReplayRow::skipped},
        {"scale_after", &ReplayRow::scale_after, kExact | kPlain},
        {"error", &ReplayRow::error},
    });
  }
};

constexpr std::size_t kAtEachEnd = 20;  // stretches that are shown
constexpr std::size_t kMostThen = 36;
// Skips in a row at one scale that are no hysteresis any more.
constexpr std::int64_t kStandsStill = 10;

// NaN is not less than anything, and no scale differs more from the others.
bool Differs(double a, double b) { return !(a == b) && !(std::isnan(a) && std::isnan(b)); }

// Why a stretch ended: the policy's reason where it gives one.
std::string EndOf(const ReplayRow& row) {
  if (!row.error.empty()) return "ends the run";
  const std::string move = row.scale_after < row.scale   ? "falls"
                           : row.scale_after > row.scale ? "grows"
                                                         : "changes";
  return row.reason.empty() ? move : move + ": " + row.reason;
}

// Compares the scales of a record with those of a policy, up to the first that differs.
// Add in the order of attempts. After the first difference the two go different ways, so nothing
// later is compared.
class ScaleComparison {
 public:
  void Add(const ReplayRow& row, const RecordedAttempt& recorded) {
    Compare(row, "of", row.scale, recorded.scale);
    Compare(row, "after", row.scale_after, recorded.scale_after);
  }
  // One line; empty where the record has no scales.
  std::string Text() const {
    if (!difference_.empty()) return difference_;
    return compared_ == 0 ? ""
                          : "all " + Counted(compared_, "scale") + " of the record are the same";
  }

 private:
  void Compare(const ReplayRow& row, const char* when, double ours,
               const std::optional<double>& theirs) {
    if (!theirs || !difference_.empty()) return;
    ++compared_;
    // Logs print scales with six digits or more.
    // Infinite scales give NaN here, which is not below anything; Differs decides then.
    if (std::fabs(ours - *theirs) <= 1e-5 * std::fabs(ours)) return;
    if (!Differs(ours, *theirs)) return;
    difference_ = "the first scale that differs from the record is that " + std::string(when) +
                  " attempt " + std::to_string(row.attempt) + ": " + ScaleText(*theirs, 12, 6) +
                  " there, " + ScaleText(ours, 12, 6) + " here";
  }

  std::int64_t compared_ = 0;
  std::string difference_;
};

// Tells what became of S: stretches of attempts that had the same one, and the sums of all.
// Add in the order of attempts. Memory does not grow with them: only the first and last stretches
// are kept.
class Stretches {
 public:
  // A stretch is a row of attempts at one scale; a change of the scale after the row ends it.
  void Add(const ReplayRow& row) {
    if (attempts_ == 0) first_ = lowest_ = highest_ = row.scale;
    if (attempts_ == 0 || Differs(row.scale, last_.scale)) Begin(row);
    Stretch& now = tail_.empty() ? head_.back() : tail_.back();
    now.last = row.attempt;
    now.overflows += row.overflow;
    if (Differs(row.scale, row.scale_after) || !row.error.empty()) now.then = EndOf(row);
    if (attempts_ == 0 || row.step != last_.step) ++steps_;
    ++attempts_;
    overflows_ += row.overflow;
    skipped_ += row.skipped;
    still_ = row.skipped && !Differs(row.scale, row.scale_after) ? still_ + 1 : 0;
    falls_ += row.scale_after < row.scale;
    grows_ += row.scale_after > row.scale;
    lowest_ = std::min(lowest_, row.scale_after);
    highest_ = std::max(highest_, row.scale_after);
    last_ = row;
  }
  // Prints a table of the stretches, the first and the last of many. Lines of at most 80 columns.
  void Print(std::ostream& out) const {
    if (attempts_ == 0) return;
    TextTable table({"attempts", "S", "overflows", "then S"});
    table.LastToTheLeft();
    for (const Stretch& stretch : head_) table.Row(Fields(stretch));
    if (left_out_ > 0) table.Row({"... " + std::to_string(left_out_) + " more", "", "", ""});
    for (const Stretch& stretch : tail_) table.Row(Fields(stretch));
    table.Print(out, kTerminalWidth);
  }
  // Returns some lines, each without its end.
  std::vector<std::string> Summary() const {
    if (attempts_ == 0) return {"no attempt"};
    const double share = static_cast<double>(overflows_) / static_cast<double>(attempts_);
    std::string count = Counted(attempts_, "attempt");
    if (steps_ != attempts_) count += " at " + Counted(steps_, "step");
    std::vector<std::string> lines = {
        count + ": " + std::to_string(overflows_) + " overflowed (" +
            NineDigits(std::round(1e4 * share) / 100) + " %), " + std::to_string(skipped_) +
            " skipped",
        "S: " + ScaleText(first_, 10, 6) + " at first, fell " + Counted(falls_, "time") +
            ", grew " + Counted(grows_, "time") + ", " + ScaleText(last_.scale_after, 10, 6) +
            " at the end (" + ScaleText(lowest_, 10, 6) + " to " + ScaleText(highest_, 10, 6) +
            ")"};
    // A scale that is 0 or infinite stays so, and one that falls no further skips every attempt: in
    // both cases a training would stand still without an error.
    if (last_.error.empty()) {
      const std::string why = scaling::WhyForGood(last_.scale_after);
      if (!why.empty())
        lines.push_back(std::string("S is ") + (last_.scale_after == 0 ? "0" : "infinite") +
                        " for good: " + why + ", and no later step can train");
      else if (still_ > kStandsStill)
        lines.push_back("every attempt from " + std::to_string(last_.attempt - still_ + 1) +
                        " on is skipped at S = " + ScaleText(last_.scale, 10, 6) +
                        ", which falls no further: a training stands still there");
    }
    if (!last_.error.empty()) lines.push_back("the policy ends the run: " + Visible(last_.error));
    return lines;
  }

 private:
  struct Stretch {
    std::int64_t first = 0, last = 0;  // attempts
    double scale = 1;
    std::int64_t overflows = 0;
    std::string then;  // why it ended
  };
  // A stretch of one attempt has its number only.
  static std::vector<std::string> Fields(const Stretch& stretch) {
    std::string attempts = std::to_string(stretch.first);
    if (stretch.last > stretch.first) attempts += "-" + std::to_string(stretch.last);
    return {attempts, ScaleText(stretch.scale, 10, 6), std::to_string(stretch.overflows),
            CutText(stretch.then, kMostThen)};
  }
  // The first stretches stay; of the later ones the newest do, and those between are only counted.
  void Begin(const ReplayRow& row) {
    if (head_.size() < kAtEachEnd) {
      head_.push_back({row.attempt, row.attempt, row.scale, 0, ""});
      return;
    }
    tail_.push_back({row.attempt, row.attempt, row.scale, 0, ""});
    if (tail_.size() <= kAtEachEnd) return;
    tail_.pop_front();
    ++left_out_;
  }

  std::vector<Stretch> head_;
  std::deque<Stretch> tail_;
  std::int64_t left_out_ = 0;  // stretches between the two
  ReplayRow last_;
  std::int64_t attempts_ = 0, steps_ = 0, overflows_ = 0, skipped_ = 0, falls_ = 0, grows_ = 0;
  std::int64_t still_ =
      0;  // attempts in a row, up to the last, that were skipped and left S as it is
  double first_ = 1, lowest_ = 1, highest_ = 1;
};

// Refuses policies that look at gradients; the errors name the key.
void ExpectGlobal(const scaling::Policy& policy) {
  if (policy.AwaitsStart())
    throw ConfigError(
        "scaling.init_scale: auto is chosen from the gradients of a run's first batch, which a "
        "trace does not hold; give a number");
  if (!policy.OwnsLayerScales() && !policy.CountsAboveEdge()) return;
  throw ConfigError("scaling.policy: " + std::string(policy.name()) +
                    " decides from the gradients themselves, which a trace does not hold; replay "
                    "takes none, fixed, dynamic, logmax and, with a trace, layerwise_dynamic");
}

// Gives `use` a row for each attempt, up to the last one, to the end of the pattern's steps, or to
// the attempt by which the policy ends the run.
template <class Use>
void Drive(scaling::Policy& policy, const ReplayOptions& options, Attempts& attempts, Use use) {
  scaling::RetryRule retry(options.max_retries);
  scaling::StepOutcome outcome;
  ReplayRow row;
  for (bool first = true; row.error.empty(); first = false) {
    if (options.trace.empty() && row.step > options.pattern.steps) return;
    if (!attempts.Next(outcome)) return;
    // The numbers are known only once the first attempt was read.
    if (first) std::tie(row.attempt, row.step) = attempts.FirstNumbers();
    const scaling::ScaleUpdate update = policy.Update(outcome);
    row.overflow = outcome.overflow;
    row.scale = update.before;
    row.skipped = update.action == scaling::Action::kSkip;
    row.scale_after = update.after;
    row.error = update.error;
    row.reason = update.reason;
    use(row, attempts.recorded());
    ++row.attempt;
    // A skipped attempt that is retried keeps its step, which counts updates here.
    if (!retry.Next(row.skipped)) ++row.step;
  }
}

// A row of the CSV, and of the trace as far as it is known there.
struct LayerRow {
  std::int64_t step = 0;
  std::string layer;
  bool overflow = false;
  double scale = 1;
  bool skipped = false;
  double scale_after = 1;

  static constexpr auto Columns() {
    using enum telemetry::ColumnTraits;
    return std::to_array<telemetry::Column<LayerRow>>({
        {"step", &LayerRow::step},
        {"layer", &LayerRow::layer},
        {"overflow", &LayerRow::overflow},
        {"scale", &LayerRow::scale, kExact | kPlain},
        {"skipped", &LayerRow::skipped},
        {"scale_after", &LayerRow::scale_after, kExact | kPlain},
    });
  }
};

std::size_t FirstOf(const telemetry::CsvReader& csv, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const std::size_t found = csv.Find(name); found != telemetry::CsvReader::kMissing)
      return found;
  csv.Fail("no column " + std::string(*names.begin()) +
           "; policy layerwise_dynamic replays a trace with step, layer (or block) and overflow "
           "(or nonfinite)");
}

std::vector<LayerRow> ReadRows(const ReplayOptions& options) {
  const TraceSource source(options.trace);
  telemetry::CsvReader csv(source.name(), source.FromStart(), telemetry::LastRow::kMayLackLineEnd);
  const std::size_t step = FirstOf(csv, {"step"}), layer = FirstOf(csv, {"layer", "block"});
  const std::size_t overflow =
      options.column.empty() ? FirstOf(csv, {"overflow", "nonfinite"}) : csv.Column(options.column);
  std::vector<LayerRow> rows;
  while (csv.Next()) {
    LayerRow row;
    row.step = csv.Integer(step), row.layer = csv.Text(layer);
    const std::int64_t flag = csv.Integer(overflow);
    if (flag != 0 && flag != 1) csv.FailAt(overflow, "0 or 1");
    row.overflow = flag == 1;
    if (!rows.empty() && row.step < rows.back().step) csv.FailAt(step, "steps that rise");
    rows.push_back(std::move(row));
  }
  return rows;
}

// Policy layerwise_dynamic with a trace that has a row for each step and layer (or block of
// layers), which says whether that one's gradients overflowed. DataError for a trace without such
// columns.
void ReplayLayers(scaling::Policy& policy, const ReplayOptions& options, std::ostream& out) {
  std::vector<LayerRow> rows = ReadRows(options);
  std::map<std::string, bool> flags;
  for (const LayerRow& row : rows) {
    if (!flags.emplace(row.layer, false).second) continue;
    scaling::LayerInfo info;
    info.name = row.layer;
    policy.RuleFor(info);
  }
  if (options.view == View::kCsv) PrintCsvHeader<LayerRow>(out);
  for (std::size_t first = 0, end = 0; first < rows.size(); first = end) {
    scaling::StepOutcome outcome;
    outcome.layer_overflow = flags;
    for (end = first; end < rows.size() && rows[end].step == rows[first].step; ++end) {
      outcome.layer_overflow[rows[end].layer] = rows[end].overflow;
      outcome.overflow = outcome.overflow || rows[end].overflow;
      rows[end].scale = policy.LayerScale(rows[end].layer);
    }
    policy.Update(outcome);
    for (std::size_t i = first; i < end; ++i) {
      rows[i].scale_after = policy.LayerScale(rows[i].layer);
      rows[i].skipped = options.skips_layers ? rows[i].overflow : outcome.overflow;
      if (options.view == View::kCsv) PrintCsvRow(rows[i], out);
    }
  }
  if (options.view == View::kCsv) return;
  // The first scale, the lowest and highest, and the last of each layer.
  TextTable table({"layer", "steps", "overflows", "first scale", "lowest", "highest", "last"});
  for (const auto& [layer, unused] : flags) {
    std::int64_t steps = 0, overflows = 0;
    double start = 0, lowest = 0, highest = 0, last = 0;
    for (const LayerRow& row : rows) {
      if (row.layer != layer) continue;
      if (steps++ == 0) start = lowest = highest = row.scale;
      overflows += row.overflow, last = row.scale_after;
      lowest = std::min(lowest, last), highest = std::max(highest, last);
    }
    const auto text = [](double scale) { return ScaleText(scale, 12, 6); };
    table.Row({layer, std::to_string(steps), std::to_string(overflows), text(start), text(lowest),
               text(highest), text(last)});
  }
  table.Print(out);
}

}  // namespace

void Replay(scaling::Policy& policy, const ReplayOptions& options, std::ostream& out,
            std::ostream& notes) {
  if (policy.name() == scaling::kLayerwiseDynamic.name && !options.trace.empty())
    return ReplayLayers(policy, options, out);
  ExpectGlobal(policy);
  const bool wants_amax = policy.RequiredStats().amax;
  const auto attempts = options.trace.empty() ? MakeUp(options.pattern, wants_amax)
                                              : OpenTrace(options, wants_amax, notes);
  const bool csv = options.view == View::kCsv;
  std::ostream& text = csv ? notes : out;
  if (!options.title.empty()) PrintWrapped(options.title, 2, text);
  PrintWrapped(attempts->Describe(), 2, text);
  if (csv) PrintCsvHeader<ReplayRow>(out);
  Stretches stretches;
  ScaleComparison comparison;
  Drive(policy, options, *attempts, [&](const ReplayRow& row, const RecordedAttempt& recorded) {
    if (csv) PrintCsvRow(row, out);
    stretches.Add(row);
    comparison.Add(row, recorded);
  });
  if (!csv) stretches.Print(out);
  for (const std::string& line : stretches.Summary()) PrintWrapped(line, 2, text);
  if (const std::string line = comparison.Text(); !line.empty()) PrintWrapped(line, 2, text);
}

}  // namespace ada::study

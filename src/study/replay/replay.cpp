// replay: what scales a global policy would have had over a record of overflows, without a network.
// The policy is the object that a training drives, so its state machine is the same.
#include <algorithm>
#include <array>
#include <map>
#include <ostream>
#include <string>
#include <tuple>

#include "error.h"
#include "scaling/policies/policies.h"
#include "study/commands.h"
#include "study/output.h"
#include "study/replay/attempts.h"
#include "study/text_table.h"
#include "telemetry/csv_reader.h"

namespace ada::study {
namespace {

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

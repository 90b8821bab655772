// replay of policy layerwise_dynamic: a trace with a row for each step and layer (or block of
// layers), which says whether that one's gradients overflowed.
#include <algorithm>
#include <array>
#include <map>
#include <ostream>

#include "error.h"
#include "study/replay/attempts.h"
#include "study/text_table.h"
#include "telemetry/columns.h"
#include "telemetry/csv_reader.h"

namespace ada::study {
namespace {

// A row of the CSV, and of the trace as far as it is known there.
struct LayerRow {
  std::int64_t step = 0;
  std::string layer;
  bool overflow = false;
  double scale = 1;
  bool skipped = false;
  double scale_after = 1;
};

}  // namespace
}  // namespace ada::study

namespace ada::telemetry {

template <>
inline constexpr auto kColumns<study::LayerRow> = std::to_array<Column<study::LayerRow>>({
    {"step", &study::LayerRow::step},
    {"layer", &study::LayerRow::layer},
    {"overflow", &study::LayerRow::overflow},
    {"scale", &study::LayerRow::scale, kExact | kPlain},
    {"skipped", &study::LayerRow::skipped},
    {"scale_after", &study::LayerRow::scale_after, kExact | kPlain},
});

}  // namespace ada::telemetry

namespace ada::study {
namespace {

using telemetry::CsvReader;

std::size_t FirstOf(const CsvReader& csv, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const std::size_t found = csv.Find(name); found != CsvReader::kMissing) return found;
  csv.Fail("no column " + std::string(*names.begin()) +
           "; policy layerwise_dynamic replays a trace with step, layer (or block) and overflow "
           "(or nonfinite)");
}

std::vector<LayerRow> ReadRows(const ReplayOptions& options) {
  const TraceSource source(options.trace);
  CsvReader csv(source.name(), source.FromStart(), telemetry::LastRow::kMayLackLineEnd);
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

}  // namespace

void ReplayLayers(scaling::Policy& policy, const ReplayOptions& options, std::ostream& out) {
  std::vector<LayerRow> rows = ReadRows(options);
  std::map<std::string, bool> flags;
  for (const LayerRow& row : rows) {
    if (!flags.emplace(row.layer, false).second) continue;
    scaling::LayerInfo info;
    info.name = row.layer;
    policy.RuleFor(info);
  }
  if (options.view == View::kCsv) out << telemetry::Header<LayerRow>() << '\n';
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
      if (options.view == View::kCsv) out << telemetry::FieldsOf(rows[i]).text() << '\n';
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

}  // namespace ada::study

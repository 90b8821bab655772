// recommend: reads the run and prints the ranges that speak for a decision; advise decides.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <ostream>

#include "io/file.h"
#include "io/json_output.h"
#include "io/shown_text.h"
#include "study/advise/run_record.h"
#include "study/run_files.h"
#include "study/text_table.h"
#include "telemetry/accumulator_totals.h"

namespace ada::study {
namespace {

// Probes compare with fp32 gradients, so they see also what was lost before the tensor was rounded.
ProbedLoss WorstProbe(const std::string& folder) {
  ProbedLoss worst;
  EachRowIfThere<telemetry::ProbeRow>(folder, [&worst](const telemetry::ProbeRow& row) {
    if (row.lost_pct > worst.lost_pct) worst = {row.layer + "." + row.tensor, row.lost_pct};
  });
  return worst;
}

bool IsOfScaling(const Advice& advice) { return advice.section == "scaling"; }

// Whether what is to be changed of the scaling is what the ranges speak for: then it is predicted.
bool IsChosen(const Recommendation& ranges, const RunRecord& record,
              const std::vector<Advice>& decided) {
  const auto scaling = std::find_if(decided.begin(), decided.end(), IsOfScaling);
  return scaling != decided.end() && scaling->keys == ScalingKeys(ranges.config, record.config);
}

// Powers of two as scales; null where no scale serves.
OrderedJson ScalesJson(const Powers& powers) {
  if (!powers.any()) return {};
  return {{"from", std::exp2(powers.sure())}, {"to", std::exp2(powers.high)}};
}

OrderedJson NeedsJson(const RecommendOptions& options, const RunNeeds& needs) {
  OrderedJson list = OrderedJson::array();
  for (const TensorNeeds& t : needs.tensors)
    list.push_back(
        {{"tensor", t.name()},
         {"format", FormatName(t.format)},
         {"range_log2", t.range_log2},
         {"largest", t.largest},
         {"carries_scale", t.carries_s()},
         {"scale", t.scale},
         {"scale_low", t.scale_low},
         {"scale_high", t.scale_high},
         {"serving_scales",
          t.silent() ? OrderedJson() : ScalesJson(PowersFor(t, t.format, options.headroom_bits))},
         {"lost_pct", t.lost_pct},
         {"lost_step", t.lost_step},
         {"overflow", t.overflow}});
  return list;
}

OrderedJson OperandsJson(const std::vector<judge::JudgedFormat>& judged) {
  OrderedJson list = OrderedJson::array();
  for (const judge::JudgedFormat& format : judged)
    list.push_back({{"format", format.format},
                    {"bits", format.bits},
                    {"operands", format.operands.size()},
                    {"failing", format.failing.size()},
                    {"lost_pct", format.lost_pct},
                    {"lost_by", format.lost_by},
                    {"saturated_pct", format.saturated_pct},
                    {"saturated_by", format.saturated_by},
                    {"sqnr_db", format.sqnr_db},
                    {"sqnr_by", format.sqnr_by}});
  return list;
}

OrderedJson RangesJson(const RecommendOptions& options, const RunRecord& record,
                       const std::optional<Recommendation>& ranges,
                       const std::vector<Advice>& decided) {
  const RunNeeds& needs = record.needs;
  OrderedJson json = CommandJson("recommend");
  json["run"] = options.folder;
  json["underflow_target"] = options.underflow_target;
  json["headroom_bits"] = options.headroom_bits;
  json["tensors"] = NeedsJson(options, needs);
  json["one_scale"] = ranges ? ScalesJson(ranges->one_scale) : OrderedJson();
  json["format_changes"] = OrderedJson::array();
  for (const FormatChange& change : ranges ? ranges->changes : std::vector<FormatChange>())
    json["format_changes"].push_back({{"layer", change.layer},
                                      {"role", change.role},
                                      {"format", FormatName(change.format)},
                                      {"tensors", change.tensors}});
  json["operand_formats"] = OperandsJson(record.operands);
  json["attention_formats"] = OperandsJson(record.attention_operands);
  json["sure"] = GradeOf(record);
  json["keep"] = decided.empty();
  json["advice"] = AdviceJson(decided);
  json["yaml"] = decided.empty() ? "# " + NothingText(record) + "\n" : DocumentOf(decided);
  json["lost"] = LostJson(record);
  return json;
}

// Why no ranges are known, and what makes them known.
std::string UnknownText(const RunRecord& record) {
  const std::string key = record.needs.steps > 0
                              ? "dx and dy, the gradients that carry a scale, in log.statistics"
                              : "log.histogram_every, the steps between histograms";
  return std::string("Which scales and formats would serve is not known: the run has ") +
         (record.needs.steps > 0 ? "no histogram of a gradient" : "no histograms") +
         "; a run with " + key + ", tells.";
}

void PrintOperandFormats(const std::vector<judge::JudgedFormat>& judged, bool attention,
                         std::ostream& out) {
  if (judged.empty()) return;
  out << "Block-scaled operands" << (attention ? " of attention" : "")
      << ", the narrowest first:\n";
  for (const judge::JudgedFormat& one : judged)
    out << "  " << Visible(one.format) << ' ' << Visible(one.Text()) << '\n';
  if (const judge::JudgedFormat* best = judge::FirstServing(judged))
    out << "  narrow enough and no more: precision: {operands: "
        << (attention ? "{attention: " : "") << Visible(best->format) << (attention ? "}}" : "}")
        << "\n\n";
  else
    out << "  none serves all; precision.layers may leave layers out (operands: none)\n\n";
}

void PrintSumsOf(const std::vector<telemetry::AccumulatorTotals>& all, const char* file,
                 const std::string& begin, std::ostream& out) {
  for (const std::string& line : telemetry::AccumulatorLines(all, file))
    PrintWrapped(begin + line, 2, out);
}

// What sums lost to the accumulators of the run, and of its scenarios.
void PrintSums(const std::string& folder, const std::vector<telemetry::AccumulatorTotals>& own,
               std::ostream& out) {
  PrintSumsOf(own, AccumulatorRow::kFile, "", out);
  if (!own.empty()) out << '\n';
  using telemetry::WhatIfAccumulatorRow;
  std::map<std::string, std::vector<telemetry::AccumulatorTotals>> scenarios;
  EachRowIfThere<WhatIfAccumulatorRow>(folder, [&](const WhatIfAccumulatorRow& row) {
    telemetry::AddSums(row, scenarios[row.scenario]);
  });
  for (const auto& [name, all] : scenarios)
    PrintSumsOf(all, WhatIfAccumulatorRow::kFile, "what if: ", out);
  if (!scenarios.empty()) out << '\n';
}

void PrintRanges(const RecommendOptions& options, const RunRecord& record,
                 const std::optional<Recommendation>& ranges, const std::vector<Advice>& decided,
                 std::ostream& out) {
  const config::Config& run = record.config;
  out << "run " << Visible(run.name) << " (" << run.data.dataset << ")\n";
  PrintWrapped(Visible(LostTextOf(record)), 2, out);
  out << '\n';
  if (ranges) {
    PrintNeeds(options, record, out);
    out << '\n';
    PrintRecommendation(options, record, *ranges, IsChosen(*ranges, record, decided), out);
  } else {
    PrintWrapped(UnknownText(record), 2, out);
  }
  out << '\n';
  PrintOperandFormats(record.operands, /*attention=*/false, out);
  PrintOperandFormats(record.attention_operands, /*attention=*/true, out);
  PrintSums(options.folder, record.layers.sums(), out);
  if (ranges)
    PrintConfidence(options, record, *ranges, WorstProbe(options.folder), out);
  else
    out << "How sure: little. "
        << (record.logged_steps == 0
                ? "No step was logged (log.every)."
                : "The counts of " + Counted(record.logged_steps, "logged step") +
                      " say what was lost, not what another scale would keep.")
        << '\n';
  if (decided.empty()) {
    out << '\n';
    PrintWrapped("Recommended: " + Visible(NothingText(record)), 2, out);
    return;
  }
  out << "\nRecommended: what `ada-train advise` decides, for these reasons:\n";
  for (const Advice& advice : decided)
    PrintWrapped(
        "  " + advice.section + ": " + Visible(advice.reason) + " (sure: " + advice.sure + ")", 4,
        out);
  out << "\n# Lay this over the run's configuration (train --with FILE):\n"
      << VisibleLines(DocumentOf(decided));
}

}  // namespace

// Without histograms of gradients there are no ranges, and what `advise` decides by counts stands
// alone.
void Recommend(const RecommendOptions& options, std::ostream& out) {
  const RunRecord record = ReadRecord(options);
  RequireSteps(options.folder, record);
  const auto& tensors = record.needs.tensors;
  std::optional<Recommendation> ranges;
  if (std::any_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.carries_s(); }))
    ranges = MakeRecommendation(options, record);
  const std::vector<Advice> decided = FindAdvice(options, record);
  if (options.json)
    PrintJson(RangesJson(options, record, ranges, decided), out);
  else
    PrintRanges(options, record, ranges, decided, out);
  if (!options.yaml.empty())
    WriteFileAtomically(options.yaml, decided.empty() ? "# " + Visible(NothingText(record)) + "\n"
                                                      : DocumentOf(decided));
}

}  // namespace ada::study

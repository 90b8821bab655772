// What the record says of block-scaled formats for operands: those of log.what_if, and the run's
// own.
#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <set>

#include "config/load.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/recommend/recommendation.h"
#include "study/run_files.h"
#include "telemetry/block_figures.h"

namespace ada::study {

double SaturatedPct(const telemetry::BlockFigures& row) {
  const auto nonzero = static_cast<double>(row.numel - row.zeros);
  return nonzero > 0 ? 100 * static_cast<double>(row.saturated) / nonzero : 0;
}

void AddJudged(const telemetry::BlockFigures& row, const std::string& layer,
               const std::string& tensor, double target, JudgedFormat& judged) {
  const std::string name = layer + "." + tensor;
  judged.seen.insert(name);
  // A step that overflowed before this rounding says nothing of the format.
  if (row.inf + row.nan > 0) return;
  judged.operands.insert(name);
  const double saturated = SaturatedPct(row);
  if (row.lost_pct_nonzero > judged.lost_pct)
    judged.lost_pct = row.lost_pct_nonzero, judged.lost_by = name;
  if (saturated > judged.saturated_pct)
    judged.saturated_pct = saturated, judged.saturated_by = name;
  if (row.sqnr_db < judged.sqnr_db) judged.sqnr_db = row.sqnr_db, judged.sqnr_by = name;
  // Noise as large as this share of a gradient is where training is said to stall; x and w bear
  // more.
  const bool noisy =
      tensor.ends_with("dy") && row.sqnr_db < 10 * std::log10(telemetry::kStallPower);
  // A value that was cut off is lost as well: errors of one sign add up along a sum.
  if (row.lost_pct_nonzero + saturated > 100 * target || noisy || row.broken_blocks > 0)
    judged.failing.insert(name);
}

std::string JudgedFormat::Text() const {
  std::string text = Formatted("(%.3g bits): ", bits);
  if (failing.empty())
    text += "serves all " + std::to_string(operands.size()) + " operands";
  else
    text += std::to_string(failing.size()) + " of " + std::to_string(operands.size()) +
            " operands lose too much";
  if (lost_pct > 0) text += Formatted("; %.3g %% lost at most", lost_pct) + " (" + lost_by + ")";
  if (saturated_pct > 0)
    text += Formatted("; %.3g %% saturated at most", saturated_pct) + " (" + saturated_by + ")";
  if (!sqnr_by.empty())
    text += "; SQNR at least " + telemetry::DecibelText(sqnr_db) + " dB (" + sqnr_by + ")";
  return text;
}

std::vector<JudgedFormat> JudgeOperands(const RecommendOptions& options) {
  std::map<std::string, JudgedFormat> all;
  const auto each = [&](const auto& row) {
    JudgedFormat& judged = all[row.format];
    if (judged.format.empty()) {
      judged.format = row.format;
      const AnyFormat read =
          FormatOfRow(options.folder, row.kFile, row.step, row.format, config::ReadAnyFormat);
      if (const auto* block = std::get_if<BlockFormat>(&read)) judged.bits = BitsPerValue(*block);
    }
    AddJudged(row, row.layer, row.tensor, options.underflow_target, judged);
  };
  EachRowIfThere<telemetry::WhatIfBlockRow>(options.folder, each);
  EachRowIfThere<BlockRow>(options.folder, each);
  std::vector<JudgedFormat> judged;
  for (auto& [name, one] : all) judged.push_back(std::move(one));
  std::stable_sort(judged.begin(), judged.end(), [](const JudgedFormat& a, const JudgedFormat& b) {
    if (a.bits != b.bits) return a.bits < b.bits;
    return a.sqnr_db != b.sqnr_db ? a.sqnr_db > b.sqnr_db : a.saturated_pct < b.saturated_pct;
  });
  return judged;
}

const JudgedFormat* FirstServing(const std::vector<JudgedFormat>& judged) {
  // One that was seen with some operands alone says nothing of the others.
  std::set<std::string> seen;
  for (const JudgedFormat& one : judged) seen.insert(one.seen.begin(), one.seen.end());
  const auto best = std::find_if(judged.begin(), judged.end(), [&](const JudgedFormat& one) {
    return one.failing.empty() && one.operands.size() == seen.size();
  });
  return best == judged.end() ? nullptr : &*best;
}

void PrintOperandFormats(const std::vector<JudgedFormat>& judged, std::ostream& out) {
  if (judged.empty()) return;
  out << "Block-scaled operands, the narrowest first:\n";
  for (const JudgedFormat& one : judged)
    out << "  " << Visible(one.format) << ' ' << Visible(one.Text()) << '\n';
  if (const JudgedFormat* best = FirstServing(judged))
    out << "  narrow enough and no more: precision: {operands: " << Visible(best->format)
        << "}\n\n";
  else
    out << "  none serves all; precision.layers may leave layers out (operands: none)\n\n";
}

}  // namespace ada::study

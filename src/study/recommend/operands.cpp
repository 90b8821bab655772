// What the record says of block-scaled formats for operands: those of log.what_if, and the run's
// own.
#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <set>

#include "config/load.h"
#include "core/shown_text.h"
#include "core/text.h"
#include "study/recommend/parts.h"
#include "study/run_files.h"
#include "telemetry/block_figures.h"

namespace ada::study {
namespace {

// Bits of a value with its part of the block's scale.
double BitsOf(const BlockFormat& format) {
  const int scale = format.scale == BlockScale::kFp32 ? 32 : 8;
  const double shared = format.square ? std::pow(format.block, 2) : format.block;
  return 1 + format.element.exponent_bits + format.element.mantissa_bits + scale / shared;
}

// A format on all operands that were seen with it.
// A format serves as a whole or not: an operand that fails at one step fails.
struct JudgedFormat {
  std::string format;
  double bits = 0;
  double lost_pct = 0, sqnr_db = INFINITY;  // the worst of a row
  std::string lost_by, sqnr_by;
  // LAYER.operand: that have rows; that the format was judged by; in which it fails.
  std::set<std::string> seen, operands, failing;

  void Add(const telemetry::BlockFigures& row, const std::string& layer, const std::string& tensor,
           double target) {
    const std::string name = layer + "." + tensor;
    seen.insert(name);
    // A step that overflowed before this rounding says nothing of the format.
    if (row.inf + row.nan > 0) return;
    operands.insert(name);
    if (row.lost_pct_nonzero > lost_pct) lost_pct = row.lost_pct_nonzero, lost_by = name;
    if (row.sqnr_db < sqnr_db) sqnr_db = row.sqnr_db, sqnr_by = name;
    // Noise as large as this share of a gradient is where training is said to stall; x and w bear
    // more.
    const bool noisy =
        tensor.ends_with("dy") && row.sqnr_db < 10 * std::log10(telemetry::kStallPower);
    if (row.lost_pct_nonzero > 100 * target || noisy || row.broken_blocks > 0) failing.insert(name);
  }
};

// Sorted by bits: the first that serves all operands is the narrowest.
std::vector<JudgedFormat> JudgedOf(const RecommendOptions& options) {
  std::map<std::string, JudgedFormat> all;
  const auto each = [&](const auto& row) {
    JudgedFormat& judged = all[row.format];
    if (judged.format.empty()) {
      judged.format = row.format;
      const AnyFormat read =
          FormatOfRow(options.folder, row.kFile, row.step, row.format, config::ReadAnyFormat);
      if (const auto* block = std::get_if<BlockFormat>(&read)) judged.bits = BitsOf(*block);
    }
    judged.Add(row, row.layer, row.tensor, options.underflow_target);
  };
  EachRowIfThere<telemetry::WhatIfBlockRow>(options.folder, each);
  EachRowIfThere<BlockRow>(options.folder, each);
  std::vector<JudgedFormat> judged;
  for (auto& [name, one] : all) judged.push_back(std::move(one));
  std::stable_sort(judged.begin(), judged.end(),
                   [](const JudgedFormat& a, const JudgedFormat& b) { return a.bits < b.bits; });
  return judged;
}

void PrintJudged(const JudgedFormat& judged, std::ostream& out) {
  out << "  " << Visible(judged.format) << Formatted(" (%.3g bits): ", judged.bits);
  if (judged.failing.empty())
    out << "serves all " << judged.operands.size() << " operands";
  else
    out << judged.failing.size() << " of " << judged.operands.size() << " operands lose too much";
  if (judged.lost_pct > 0)
    out << Formatted("; %.3g %% lost at most", judged.lost_pct) << " (" << Visible(judged.lost_by)
        << ")";
  if (!judged.sqnr_by.empty())
    out << "; SQNR at least " << telemetry::DecibelText(judged.sqnr_db) << " dB ("
        << Visible(judged.sqnr_by) << ")";
  out << '\n';
}

}  // namespace

std::optional<AnyFormat> PrintOperandFormats(const RecommendOptions& options, std::ostream& out) {
  const std::vector<JudgedFormat> judged = JudgedOf(options);
  if (judged.empty()) return std::nullopt;
  out << "Block-scaled operands, the narrowest first:\n";
  for (const JudgedFormat& one : judged) PrintJudged(one, out);
  // One that was seen with some operands alone says nothing of the others.
  std::set<std::string> seen;
  for (const JudgedFormat& one : judged) seen.insert(one.seen.begin(), one.seen.end());
  const auto best = std::find_if(judged.begin(), judged.end(), [&](const JudgedFormat& one) {
    return one.failing.empty() && one.operands.size() == seen.size();
  });
  if (best == judged.end()) {
    out << "  none serves all; precision.layers may leave layers out (operands: none)\n\n";
    return std::nullopt;
  }
  out << "  narrow enough and no more: precision: {operands: " << Visible(best->format) << "}\n\n";
  return config::ReadAnyFormat(best->format);
}

}  // namespace ada::study

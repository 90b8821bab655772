// Adds up what operands lose, and says which format is narrow enough and no more.
#include "judge/serving.h"

#include <algorithm>
#include <cmath>

#include "io/text.h"

namespace ada::judge {

double BitsOf(const AnyFormat& format) {
  if (const auto* block = std::get_if<BlockFormat>(&format)) return BitsPerValue(*block);
  const auto& plain = std::get<NumberFormat>(format);
  return 1 + plain.exponent_bits + plain.mantissa_bits;
}

double DecibelsOf(double signal, double noise) {
  return signal > 0 ? 10 * std::log10(signal / noise) : NAN;
}

double SaturatedPct(const telemetry::BlockFigures& figures) {
  const auto nonzero = static_cast<double>(figures.numel - figures.zeros);
  return nonzero > 0 ? 100 * static_cast<double>(figures.saturated) / nonzero : 0;
}

double LostPct(const telemetry::BlockFigures& figures) {
  const double lost = std::isnan(figures.lost_pct_nonzero) ? 0 : figures.lost_pct_nonzero;
  return lost + SaturatedPct(figures);
}

bool IsWorse(const telemetry::BlockFigures& a, const telemetry::BlockFigures& b) {
  return LostPct(a) != LostPct(b) ? LostPct(a) > LostPct(b) : a.sqnr_db < b.sqnr_db;
}

void JudgedFormat::Add(const telemetry::BlockFigures& figures, const std::string& layer,
                       const std::string& operand, double target) {
  const std::string name = layer + "." + operand;
  seen.insert(name);
  // A step that overflowed before this rounding says nothing of the format.
  if (figures.inf + figures.nan > 0) return;
  operands.insert(name);
  const double saturated = SaturatedPct(figures);
  if (figures.lost_pct_nonzero > lost_pct) lost_pct = figures.lost_pct_nonzero, lost_by = name;
  if (saturated > saturated_pct) saturated_pct = saturated, saturated_by = name;
  if (figures.sqnr_db < sqnr_db) sqnr_db = figures.sqnr_db, sqnr_by = name;
  // Noise as large as this share of a gradient is where training is said to stall; x and w bear
  // more.
  const bool noisy =
      operand.ends_with("dy") && figures.sqnr_db < 10 * std::log10(telemetry::kStallPower);
  // A value that was cut off is lost as well: errors of one sign add up along a sum.
  if (LostPct(figures) > 100 * target || noisy || figures.broken_blocks > 0) failing.insert(name);
}

std::string JudgedFormat::Text() const {
  std::string text = Formatted("(%.3g bits): ", bits);
  if (failing.empty())
    text += "serves all " + std::to_string(operands.size()) + " operands";
  else
    text += std::to_string(failing.size()) + " of " + std::to_string(operands.size()) +
            " operands lose too much";
  if (seen.size() > operands.size())
    text += "; " + std::to_string(seen.size() - operands.size()) + " held inf or NaN";
  if (lost_pct > 0) text += Formatted("; %.3g %% lost at most", lost_pct) + " (" + lost_by + ")";
  if (saturated_pct > 0)
    text += Formatted("; %.3g %% saturated at most", saturated_pct) + " (" + saturated_by + ")";
  if (!sqnr_by.empty())
    text += "; SQNR at least " + telemetry::DecibelText(sqnr_db) + " dB (" + sqnr_by + ")";
  return text;
}

void SortByBits(std::vector<JudgedFormat>& judged) {
  std::stable_sort(judged.begin(), judged.end(), [](const JudgedFormat& a, const JudgedFormat& b) {
    if (a.bits != b.bits) return a.bits < b.bits;
    return a.sqnr_db != b.sqnr_db ? a.sqnr_db > b.sqnr_db : a.saturated_pct < b.saturated_pct;
  });
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

const JudgedFormat* FindJudged(const std::vector<JudgedFormat>& judged, std::string_view format) {
  const auto found = std::find_if(judged.begin(), judged.end(),
                                  [&](const JudgedFormat& one) { return one.format == format; });
  return found == judged.end() ? nullptr : &*found;
}

}  // namespace ada::judge

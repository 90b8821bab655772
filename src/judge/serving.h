// Whether a format or a recipe serves: how much may be lost, and the worst that it loses of all
// that it was judged by.
#pragma once
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "number/blocks/block_format.h"
#include "telemetry/block_figures.h"

namespace ada::judge {

// What a tensor may lose where nothing else is asked for: the share of its values other than zero
// that may underflow, and the powers of two between the largest value seen and overflow.
inline constexpr double kUnderflowTarget = 1e-3, kHeadroomBits = 2;

// Says whether a tensor loses no more than the target and does not overflow. Counts that are
// predicted are no whole numbers.
inline bool MeetsTarget(double lost_pct, double overflow, double underflow_target) {
  return lost_pct <= 100 * underflow_target && overflow < 0.5;
}

// Bits of a value with its part of the block's scale.
double BitsOf(const AnyFormat& format);
// 10 log10(signal / noise), of sums of squares: infinite without noise, NaN without signal.
double DecibelsOf(double signal, double noise);

// The share of the values other than zero that were cut off, in percent.
double SaturatedPct(const telemetry::BlockFigures& figures);
// The share that is lost, cut off ones among them.
double LostPct(const telemetry::BlockFigures& figures);
// Whether `a` loses more than `b`, or as much with less SQNR.
bool IsWorse(const telemetry::BlockFigures& a, const telemetry::BlockFigures& b);

// A format, or a recipe, on all operands that were judged in it. It serves as a whole or not: an
// operand that fails at one step fails. One serves that loses no more than the target, cut off
// values among them, and, of a gradient, whose noise stays below 1 / sqrt(3) of it.
struct JudgedFormat {
  std::string format;
  double bits = 0;  // of a value with its part of the block's scale
  // The worst of a row: values that became zero, and those above the largest one of their block.
  double lost_pct = 0, saturated_pct = 0, sqnr_db = std::numeric_limits<double>::infinity();
  std::string lost_by, saturated_by, sqnr_by;
  // LAYER.operand: that have rows; that the format was judged by; in which it fails.
  std::set<std::string> seen, operands, failing;

  // Adds an operand of some step. target: the share that it may lose.
  void Add(const telemetry::BlockFigures& figures, const std::string& layer,
           const std::string& operand, double target);
  std::string Text() const;  // "(8.25 bits): serves all 102 operands; SQNR at least 31.4 dB (fc)"
};
// Puts the narrowest first, of those with as many bits the one with more SQNR.
void SortByBits(std::vector<JudgedFormat>& judged);
// The first that serves all operands that any was seen with; null: none does.
const JudgedFormat* FirstServing(const std::vector<JudgedFormat>& judged);
// The one of this name; null: there is none.
const JudgedFormat* FindJudged(const std::vector<JudgedFormat>& judged, std::string_view format);

}  // namespace ada::judge

// The parts of `recommend`: what tensors ask for, the configuration that would give it to them, and
// how that is said.
// CollectNeeds reads the run, MakeRecommendation finds scales and formats, and the Print functions
// say it in words. What of it is to be changed `advise` decides, for both (advise/run_record.h).
#pragma once
#include <cmath>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "io/tensor_names.h"
#include "study/commands.h"
#include "study/run_files.h"
#include "telemetry/block_figures.h"
#include "telemetry/totals.h"

namespace ada::study {

// Scales 2^low .. 2^high.
// Defaults are all scales that a run may have; low above high: there is none.
struct Powers {
  int low = -126, high = 127;
  // Whether values that 2^low takes to the threshold itself are lost: rounding to nearest takes a
  // tie to zero.
  bool loses_ties = false;
  bool any() const { return low <= high; }
  // The smallest of them at which no tie is lost, if they are more than one.
  int sure() const { return loses_ties && low < high ? low + 1 : low; }
  // Whether 2^first .. 2^last are among them, without a tie that is lost.
  bool Hold(double first, double last) const {
    return low + (loses_ties ? 1 : 0) <= first && high >= last;
  }
};

// One tensor over all steps with histograms, in unscaled magnitudes, so that any scale and format
// can be judged by it. `format` is the last one; what was lost is that of the steps that had it.
struct TensorNeeds {
  static constexpr int kNothing = std::numeric_limits<int>::max();
  std::string layer, tensor;
  NumberFormat format;
  // |x| from 2^keep on must not underflow: below it lies at most the target's share of the non-zero
  // values of any step. kNothing: no step had one.
  int keep = kNothing;
  double largest = 0;                    // finite |x| of all logged steps, unscaled
  double range_log2 = 0;                 // of the step in which it was largest
  double scale = 1;                      // that it carried last
  double scale_low = 0, scale_high = 0;  // of all logged steps; 0: none
  bool scaled_by_itself = false;  // some step gave it a per-tensor scale (precision.tensor_scaling)
  bool stochastic = false;        // FormatHistory::stochastic
  // What the run lost: the largest share of a step in percent of non-zero values, and its step; all
  // values that overflowed. Steps that left inf or NaN in the tensor are not looked at.
  double lost_pct = 0;
  std::int64_t lost_step = 0, overflow = 0;
  // The largest shares that underflowed in a step with a histogram, in percent of its non-zero
  // values and of the sum of their magnitudes, which is what a product would miss.
  double binned_lost_pct = 0, lost_magnitude_pct = 0;
  std::int64_t broken_steps = 0;  // logged steps that left inf or NaN in the tensor

  std::string name() const { return layer + "." + tensor; }
  bool carries_s() const { return CarriesS(tensor); }
  // Whether the policy's S decides what it loses. A per-tensor scale follows the values that carry
  // S: their product stays where S moves.
  bool asks_for_s() const { return carries_s() && !scaled_by_itself; }
  // Whether no step had a value of it: it asks for nothing, and nothing is known of it.
  bool silent() const { return keep == kNothing; }
  // Whether some logged step's S lay above, or below, these scales.
  bool WasAbove(const Powers& powers) const { return scale_high > std::exp2(powers.high); }
  bool WasBelow(const Powers& powers) const {
    return scale_low > 0 && scale_low < std::exp2(powers.low);
  }
};

// Returns the scales at which `format` loses no more than the target of any step, with the largest
// value `headroom_bits` powers of two below the format's largest.
Powers PowersFor(const TensorNeeds& needs, const NumberFormat& format, double headroom_bits);

// Collected once; everything after it reads it only. Pointers into `tensors` stay valid.
struct RunNeeds {
  std::vector<TensorNeeds> tensors;                       // in the order of execution
  std::int64_t steps = 0, first_step = 0, last_step = 0;  // with histograms
  std::int64_t first_epoch = 0, last_epoch = 0;           // of these
  std::int64_t logged_steps = 0;                          // with rows in underflow.csv
  // What steps.csv and summary.json say of the run: its last step; the steps of an epoch, 0 where
  // none is over; whether it has ended as its configuration says.
  std::int64_t run_steps = 0, epoch_steps = 0;
  bool finished = false;
  // Histograms with inf or NaN, which show what an overflow has left over: they are not looked at.
  std::int64_t left_out = 0;
  bool stochastic = false;        // FormatHistory::stochastic
  telemetry::LayerTotals totals;  // for layers that get no gradient
  telemetry::Finiteness finiteness;
};
// Whether so much of a gradient was lost that later gradients tell little about small
// values.
bool MuchWasLost(const RunNeeds& needs);

// Reads the histograms and counts of a run. Throws DataError as the readers do.
RunNeeds CollectNeeds(const std::string& folder, const FormatHistory& formats,
                      double underflow_target);

// Says whether a tensor loses no more than the target and does not overflow. Counts that are
// predicted are no whole numbers.
inline bool MeetsTarget(double lost_pct, double overflow, const RecommendOptions& options) {
  return lost_pct <= 100 * options.underflow_target && overflow < 0.5;
}

// Says whether no histogram shows a loss of more than a few values (kFewPct), which add up to so
// little of the tensor's magnitude (kMaterialPct) that no product misses them.
constexpr double kFewPct = 10, kMaterialPct = 0.1;
inline bool IsImmaterial(const TensorNeeds& t) {
  return t.overflow == 0 && t.lost_pct <= kFewPct && t.lost_magnitude_pct <= kMaterialPct;
}
// Says whether what a tensor lost asks for a change.
inline bool IsMaterial(const TensorNeeds& t, const RecommendOptions& options) {
  return !MeetsTarget(t.lost_pct, static_cast<double>(t.overflow), options) && !IsImmaterial(t);
}

// What a choice would have lost of one tensor, over all steps with histograms.
struct Predicted {
  std::string tensor;
  double lost_pct = 0;    // of non-zero values, in the worst step
  double unsure_pct = 0;  // what shares the exponent of a threshold there, at most
  double overflow = 0;    // values of all steps
  double scale_low = 0, scale_high = 0;
};

// Returns that for each tensor of `needs`, in the formats that it had, or would have all along if
// it is among `changed`.
std::vector<Predicted> PredictLosses(const std::string& folder, const FormatHistory& formats,
                                     const TensorFormats& changed, const RunNeeds& needs,
                                     const config::WhatIfConfig& choice,
                                     const config::ModelConfig& model);

// The key of `precision` that says the format of a layer's tensor: y, p, w, dw, or a gradient that
// carries S.
std::string RoleOf(const std::string& tensor);
// Whether precision.preset leaves no room for the role's key; entries of precision.layers have it.
bool PresetDecides(const config::PrecisionConfig& precision, const std::string& role);
// Whether an entry of precision.layers sets the format of a role.
bool SetsRole(const config::LayerPrecisionConfig& entry, const std::string& role);

// An entry of precision.layers, and the tensors that ask for it.
// Several tensors may ask for the same entry, as dx and dy of one layer do.
struct FormatChange {
  std::string layer, role;  // gradients, activations, weights, weight_gradients
  NumberFormat format;
  std::vector<std::string> tensors;
};

// By role the layers whose formats a run's recorded tensors have.
using Owners = std::map<std::string, std::set<std::string>>;

// Adds the changes to `precision`, after the entries that it has: the last match wins. Where it has
// none and every owner of a role changes, the role's own key says it for most of them, unless a
// preset decides it. Entries of precision.schedule that would undo a change have it as well.
void ApplyFormats(const std::vector<FormatChange>& changes, const Owners& owners,
                  config::PrecisionConfig& precision);

// Keys of a section with their values as YAML, each once.
using Keys = std::vector<std::pair<std::string, std::string>>;
// The keys of `scaling` that make of the run's what `config` has: policy none, fixed, or adaptive
// with exact_range, and keys of the run that this resets.
Keys ScalingKeys(const config::Config& config, const config::Config& run);
// The keys of `precision` that round all operands to nearest in one format, without a recipe or a
// transform; layers that were spared stay spared. Empty where all have this format already.
Keys OperandKeys(const AnyFormat& format, const config::Config& run);
// The keys that make of the run's `operands` those of `then`, whose recipe they replace.
Keys OperandKeys(config::Config then, const config::Config& run);

// The advice is one fixed scale where one serves all gradients, else a scale for each layer, and
// other formats where no scale can help. What it would have lost is read from the same histograms.
// Made whole by MakeRecommendation. `predicted` and `compromise` are in the order of
// RunNeeds::tensors.
struct Recommendation {
  // Scales that serve every dx and dy, and the tensors that set the two ends. Not any(): none does.
  Powers one_scale;
  std::string low_by, high_by;
  std::vector<FormatChange> changes;
  // Where none serves all, or not before formats are changed: the largest at which nothing
  // overflows in the run's own formats, and what it would have lost.
  int compromise_power = 0;
  std::vector<Predicted> compromise;

  bool fixed = false;                // policy fixed or none; else adaptive, or as it was
  config::Config config;             // the run's, with the recommended scaling and precision
  std::vector<Predicted> predicted;  // of every tensor with a histogram, under `config`
};

Recommendation MakeRecommendation(const RecommendOptions& options, const config::Config& run,
                                  const FormatHistory& formats, const RunNeeds& needs);

// A probed tensor and the share of its values (percent) that the run lost, here or before it.
struct ProbedLoss {
  std::string tensor;
  double lost_pct = 0;
};

// Whether any step with a histogram had a gradient that carries S. If none had, nothing is known
// about scales.
bool AnyArrived(const RunNeeds& needs);
// Whether any of them asks for S.
bool AnyAsksForS(const RunNeeds& needs);

// How far the record carries: well, fairly or little.
const char* GradeOf(const config::Config& run, const RunNeeds& needs);

// Prints what each gradient asks for, next to what the run gave it.
void PrintNeeds(const RecommendOptions& options, const RunNeeds& needs, std::ostream& out);
// Prints one scale for all, or why there is none; other formats. `chosen`: its scaling is what is
// to be changed; then also what it would have lost.
void PrintRecommendation(const RecommendOptions& options, const RunNeeds& needs,
                         const Recommendation& advice, bool chosen, std::ostream& out);

// Prints what sums lost to the accumulators of the run, and of its scenarios.
void PrintSums(const std::string& folder, std::ostream& out);

// A block-scaled format on all operands that were seen with it: of log.what_if, or the run's own.
// It serves as a whole or not: an operand that fails at one step fails. One serves that loses no
// more than the target, cut off values among them, and, of a gradient, whose noise stays below 1 /
// sqrt(3) of it.
struct JudgedFormat {
  std::string format;
  double bits = 0;  // of a value with its part of the block's scale
  // The worst of a row: values that became zero, and those above the largest one of their block.
  double lost_pct = 0, saturated_pct = 0, sqnr_db = std::numeric_limits<double>::infinity();
  std::string lost_by, saturated_by, sqnr_by;
  // LAYER.operand: that have rows; that the format was judged by; in which it fails.
  std::set<std::string> seen, operands, failing;

  std::string Text() const;  // "(8.25 bits): serves all 102 operands; SQNR at least 31.4 dB (fc)"
};
// The share of a row's values other than zero that were cut off, in percent.
double SaturatedPct(const telemetry::BlockFigures& row);
// Adds an operand of some step. target: the share that it may lose.
void AddJudged(const telemetry::BlockFigures& row, const std::string& layer,
               const std::string& tensor, double target, JudgedFormat& judged);
// Sorted: the narrowest first, and of those with as many bits that with more SQNR.
std::vector<JudgedFormat> JudgeOperands(const RecommendOptions& options);
// The first that serves all operands that any was seen with; null: none does.
const JudgedFormat* FirstServing(const std::vector<JudgedFormat>& judged);
// Prints them; nothing where there are none.
void PrintOperandFormats(const std::vector<JudgedFormat>& judged, std::ostream& out);
// Prints how many steps there were, of which data, and what cannot be known from them.
void PrintConfidence(const RecommendOptions& options, const config::Config& run,
                     const RunNeeds& needs, const Recommendation& advice, const ProbedLoss& probed,
                     std::ostream& out);

}  // namespace ada::study

// What the tensors of a run ask for, and the configuration that would give it to them: `recommend`
// says it, and what of it is to be changed `advise` decides, for both (advise/run_record.h).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "config/config.h"
#include "io/tensor_names.h"
#include "judge/histogram_loss.h"
#include "judge/serving.h"
#include "study/commands.h"
#include "study/config_changes.h"
#include "study/run_histograms.h"

namespace ada::study {

using judge::Powers;

// One tensor over all steps with histograms, in unscaled magnitudes, so that any scale and format
// can be judged by it. `format` is the last one; what was lost is that of the steps that had it.
struct TensorNeeds {
  static constexpr int kNothing = std::numeric_limits<int>::max();  // of `keep`
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
  // Whether it lost more than the target, or overflowed.
  bool Loses(double underflow_target) const {
    return !judge::MeetsTarget(lost_pct, static_cast<double>(overflow), underflow_target);
  }
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
  // Histograms with inf or NaN, which show what an overflow has left over: they are not looked at.
  std::int64_t left_out = 0;

  // By TensorNeeds::name; null: it has no histogram.
  const TensorNeeds* Find(const std::string& name) const {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const TensorNeeds& t) { return t.name() == name; });
    return found == tensors.end() ? nullptr : &*found;
  }
};
// Whether so much of a gradient was lost that later gradients tell little about small
// values.
bool MuchWasLost(const RunNeeds& needs);

// Reads the histograms and counts of a run. Throws DataError as the readers do.
RunNeeds CollectNeeds(const std::string& folder, const FormatHistory& formats,
                      double underflow_target);

// Says whether no histogram shows a loss of more than a few values (kFewPct), which add up to so
// little of the tensor's magnitude (kMaterialPct) that no product misses them.
constexpr double kFewPct = 10, kMaterialPct = 0.1;
inline bool IsImmaterial(const TensorNeeds& t) {
  return t.overflow == 0 && t.lost_pct <= kFewPct && t.lost_magnitude_pct <= kMaterialPct;
}
// Says whether what a tensor lost asks for a change.
inline bool IsMaterial(const TensorNeeds& t, const RecommendOptions& options) {
  return t.Loses(options.underflow_target) && !IsImmaterial(t);
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

// Whether any step with a histogram had a gradient that carries S. If none had, nothing is known
// about scales.
bool AnyArrived(const RunNeeds& needs);
// Whether any of them asks for S.
bool AnyAsksForS(const RunNeeds& needs);

}  // namespace ada::study

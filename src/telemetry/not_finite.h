// Values that are not finite: since which step a run has them, in which tensor they began, and
// whether the loss scale is involved. Such values are not underflow: the shares of lost values do
// not show them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "telemetry/rows.h"

namespace ada::telemetry {

// What made finite values of a tensor infinite or NaN, where it was not their magnitude alone.
enum class NotFiniteCause {
  kNone,
  // They outgrew the scale that their tensor has from earlier largest magnitudes, and the format
  // turns them into infinity (precision.overflow: format).
  kOutgrown,
  // The tensor's block-scaled format has no scale for a block of them.
  kBlocks,
  // The gradient carries the total_scale of an entry of scaling.layers.
  kTotalScale,
  // The gradient carries another S than the policy's: that which its layer chose.
  kLayerScale,
};
// Advice for such a cause, with which messages of events end; empty: none.
std::string CauseText(NotFiniteCause cause);

// A gradient of which the first logged step lost half or more, before anything that was trained
// could have made it small: what a run does after that may be an effect of it.
struct LostFromTheStart {
  std::string layer, tensor, format;
  double pct = 0, scale = 1;  // of its values other than zero; S
  std::int64_t step = 0;
};
// Returns "fc3.dx lost 100 % of its values in step 1 (fp8_e4m3 at S = 1)".
std::string NameText(const LostFromTheStart& lost);

// The tensor in which values that are not finite came first in a step. layer empty: none of the
// rounded ones. `value`: its largest magnitude, as in events.csv.
struct FirstNotFinite {
  std::string layer, tensor, value;
  double scale = 1;       // S of the step
  std::int64_t step = 0;  // from 1
  NotFiniteCause cause = NotFiniteCause::kNone;
  std::optional<LostFromTheStart> lost = {};  // as far as that is known
};

// Returns "conv1.y (largest magnitude 70000)"; of the images "input (...)".
std::string NameText(const FirstNotFinite& first);
// Returns, in one sentence without a full stop, whether a loss scale helps and what else would.
std::string AdviceText(const FirstNotFinite& first);
// Returns whether its largest magnitude is a number.
bool HasNumber(const FirstNotFinite& first);
// Says whether a smaller loss scale would have kept the tensor finite: it carries S.
bool IsOfScale(const FirstNotFinite& first);
// Whether gradients were lost from the start and the forward pass or an update broke later: a
// larger scale, or a wider format of gradients, comes first.
bool IsOfLostGradients(const FirstNotFinite& first);
// Whether the optimizer computed weights that are not finite from gradients that were finite.
bool IsOfOptimizer(const FirstNotFinite& first);

// Follows the steps of a run and its events, in any order of the two.
class Finiteness {
 public:
  void Add(const StepRow& row);
  void Add(const EventRow& row);  // skip, retry and sanitize name the tensor

  // The first of the consecutive steps, up to the last one, with a loss or gradients that are not
  // finite; 0: the last step is fine, or only a few were skipped while a policy finds its scale.
  std::int64_t since() const;
  // The first tensor of that step. Its step is since(). `lost`: FindLostFromTheStart (totals.h) of
  // the run.
  FirstNotFinite first(const std::optional<LostFromTheStart>& lost = {}) const;
  // "not finite from step N on, first tensor T: ..."; empty where since() is 0.
  std::string Text(const std::optional<LostFromTheStart>& lost = {}) const;
  // The same in few words, the point before the tensor: "not finite from step N on: a loss scale
  // does not help; first f1.y".
  std::string ShortText(const std::optional<LostFromTheStart>& lost = {}) const;

 private:
  std::int64_t begin_ = 0, steps_ = 0;  // of the last stretch of such steps; all steps
  bool loss_is_finite_ = true;          // in the last step
  double scale_ = 1;                    // in the step begin_
  EventRow event_;                      // of the first step of a stretch
  std::int64_t event_step_ = -1;        // of the last such event
};

}  // namespace ada::telemetry

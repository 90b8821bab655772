// Products and quotients of two fp32 values are computed in double and rounded once, which gives
// exactly the fp32 result (53 bits are more than 2 * 24 + 1).
#include "scaling/policies/dynamic_machine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "error.h"
#include "io/text.h"

namespace ada::scaling {

ScaleArithmetic::ScaleArithmetic(const DynamicParameters& p, const DynamicTraits& traits)
    : traits_(traits), up_(Factor(p.growth_factor)) {
  CheckedScale("scaling.init_scale", p.init_scale);
  floor_ = Typed(p.min_scale);
  ceiling_ = p.max_scale > 0 ? Typed(p.max_scale) : std::numeric_limits<double>::infinity();
  start_ = Typed(traits.clamps_start ? std::min(p.init_scale, ceiling_) : p.init_scale);
  // A reciprocal is rounded: if it is that of growth_factor, the scale is divided by that instead.
  const bool one_factor = p.backoff_factor == 1 / p.growth_factor;
  const double divisor = one_factor ? p.growth_factor : 1 / p.backoff_factor;
  down_ = Factor(traits.divides ? divisor : p.backoff_factor);
}

double ScaleArithmetic::Typed(double value) const {
  return traits_.fp32 ? static_cast<float>(value) : value;
}

double ScaleArithmetic::Factor(double value) const {
  return traits_.double_factors ? value : Typed(value);
}

double ScaleArithmetic::Start() const { return start_; }

double ScaleArithmetic::Lowered(double scale) const {
  const double lower = Typed(traits_.divides ? scale / down_ : scale * down_);
  return traits_.clamps_both ? Clamped(lower) : std::max(floor_, lower);
}

double ScaleArithmetic::Raised(double scale) const { return Raised(scale, up_); }

double ScaleArithmetic::Raised(double scale, double factor) const {
  const double higher = Typed(std::min(scale * factor, ceiling_));
  if (traits_.finite_growth && !std::isfinite(higher)) return scale;
  return traits_.clamps_both ? Clamped(higher) : higher;
}

double ScaleArithmetic::Clamped(double scale) const {
  return std::max(floor_, std::min(scale, ceiling_));
}

// Bounds are not checked: if the original does not clamp it, a start may be outside of them.
bool ScaleArithmetic::Possible(double scale) const {
  if (std::isnan(scale) || std::signbit(scale) || Typed(scale) != scale) return false;
  return std::isfinite(scale) || (!traits_.finite_growth && std::isinf(ceiling_));
}

// An error leaves the scale unchanged: the run ends with the scale that overflowed.
void DynamicMachine::Lower(Move& move, std::string reason) const {
  if (parameters_.error_at_min_scale && arithmetic_.AtFloor(move.scale)) {
    move.error = "gradients overflow at the smallest scale, " + ShortestText(move.scale) +
                 " (scaling.min_scale of preset " + parameters_.preset +
                 "): the scale cannot fall further; lower scaling.min_scale or the learning rate, "
                 "or set scaling.error_at_min_scale: false";
    return;
  }
  move.scale = arithmetic_.Lowered(move.scale);
  move.reason = std::move(reason);
}

void DynamicMachine::Raise(Move& move) const {
  move.scale = arithmetic_.Raised(move.scale);
  move.reason = std::to_string(parameters_.growth_interval) + " clean steps";
}

// Each kind is a class; only this function knows all of them.
std::unique_ptr<DynamicMachine> MakeMachine(const DynamicParameters& parameters,
                                            const DynamicTraits& traits) {
  switch (traits.kind) {
    case DynamicKind::kCounter:
      return MakeCounterMachine(parameters, traits);
    case DynamicKind::kFairseq:
      return MakeFairseqMachine(parameters, traits);
    case DynamicKind::kCerebras:
      return MakeCerebrasMachine(parameters, traits);
    case DynamicKind::kChainer:
      return MakeChainerMachine(parameters, traits);
    case DynamicKind::kMarian:
      return MakeMarianMachine(parameters, traits);
    case DynamicKind::kGuided:
      return MakeGuidedMachine(parameters, traits);
    case DynamicKind::kWindowList:
      return MakeWindowListMachine(parameters, traits);
  }
  throw InternalError("MakeMachine: unknown kind");
}

}  // namespace ada::scaling

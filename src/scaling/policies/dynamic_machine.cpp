#include "scaling/policies/dynamic_machine.h"

#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace ada::scaling {

// An error leaves the scale as it is: the run ends with the one that overflowed.
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

// Each kind is a class; this is the one place that knows them all.
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
  }
  throw InternalError("MakeMachine: unknown kind");
}

}  // namespace ada::scaling

// Names of the limits, as scales.csv writes them (INTERFACE: `limit`).
#include "scaling/rules.h"

#include "core/error.h"

namespace ada::scaling {

const char* LimitName(Limit limit) {
  switch (limit) {
    case Limit::kNone:
      return "none";
    case Limit::kTarget:
      return "target";
    case Limit::kOne:
      return "one";
    case Limit::kCap:
      return "cap";
    case Limit::kScaleBound:
      return "SB";
    case Limit::kAccumBound:
      return "AB";
    case Limit::kStale:
      return "stale";
    case Limit::kFixed:
      return "fixed";
    case Limit::kState:
      return "state";
    case Limit::kNonfinite:
      return "nonfinite";
    case Limit::kBranch:
      return "branch";
  }
  throw InternalError("LimitName: unknown limit " + std::to_string(static_cast<int>(limit)));
}

}  // namespace ada::scaling

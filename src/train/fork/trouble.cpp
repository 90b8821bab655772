// Why nothing can be held against a fork.
#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "train/fork/parts.h"

namespace ada::train {

// The order is that of severity: a loss that is not finite, then no update at all, then gradients
// that cannot be compared.
std::string TroubleOf(const ForkSpec& spec, const ForkResult& result, const StepResult& last,
                      std::int64_t skips, const telemetry::Finiteness& finiteness) {
  const auto& losses = result.losses;
  const auto bad =
      std::find_if(losses.begin(), losses.end(), [](double loss) { return !std::isfinite(loss); });
  std::string what;
  if (bad != losses.end()) {
    what = "has a loss that is not finite";
  } else if (skips == spec.steps) {
    what = skips == 1 ? "skips the step" : "skips all " + Counted(skips, "step");
  } else if (spec.gradients && last.overflow) {
    what = "has gradients that are not finite";
  } else {
    return "";
  }
  if (!last.error.empty()) return what + ", and the policy ends it: " + last.error;
  const telemetry::FirstNotFinite first = finiteness.first();
  return what + "; the first tensor that is not finite is " + telemetry::NameText(first) + ": " +
         telemetry::AdviceText(first);
}

}  // namespace ada::train

// replay: what scales a global policy would have had over a record of overflows, without a network.
// The policy is the object that a training drives, so its state machine is the same.
#include <array>
#include <cmath>
#include <ostream>
#include <string>
#include <tuple>

#include "error.h"
#include "io/text.h"
#include "number/random.h"
#include "scaling/policies/policies.h"
#include "study/commands.h"
#include "study/replay/attempts.h"
#include "study/text_table.h"
#include "telemetry/columns.h"

namespace ada::study {
namespace {

// Each attempt draws the same numbers whatever the pattern asks of it: seeds stay comparable.
class MadeUp : public Attempts {
 public:
  MadeUp(const ReplayPattern& pattern, bool wants_amax)
      : pattern_(pattern), wants_amax_(wants_amax), random_(pattern.seed, StreamId("replay")) {}

  bool Next(scaling::StepOutcome& outcome) override {
    ++attempt_;
    outcome = {};
    outcome.overflow = pattern_.every > 0 && attempt_ % pattern_.every == 0;
    // The random number is drawn first, so it is drawn also where the attempt overflows anyway.
    outcome.overflow = random_.Uniform() < pattern_.overflow || outcome.overflow;
    const double magnitude = std::exp2(random_.Normal());
    if (wants_amax_) outcome.amax = outcome.overflow ? INFINITY : magnitude;
    return true;
  }

  std::string Describe() const override {
    std::string text = "made-up trace of " + Counted(pattern_.steps, "step") + ": ";
    if (pattern_.every == 0 && pattern_.overflow == 0) return text + "nothing overflows";
    if (pattern_.every > 0) text += "1 attempt in " + std::to_string(pattern_.every) + " overflows";
    if (pattern_.every > 0 && pattern_.overflow > 0) text += ", ";
    if (pattern_.overflow > 0)
      text += ShortestText(100 * pattern_.overflow) + " % at random (seed " +
              std::to_string(pattern_.seed) + ")";
    return text;
  }

 private:
  const ReplayPattern pattern_;
  const bool wants_amax_;
  RandomStream random_;
  std::int64_t attempt_ = 0;
};

// Refuses policies that look at gradients; the errors name the key.
void ExpectGlobal(const scaling::Policy& policy) {
  if (policy.AwaitsStart())
    throw ConfigError(
        "scaling.init_scale: auto is chosen from the gradients of a run's first batch, which a "
        "trace does not hold; give a number");
  if (!policy.OwnsLayerScales() && !policy.CountsAboveEdge()) return;
  throw ConfigError("scaling.policy: " + std::string(policy.name()) +
                    " decides from the gradients themselves, which a trace does not hold; replay "
                    "takes none, fixed, dynamic, logmax and, with a trace, layerwise_dynamic");
}

// Gives `use` a row for each attempt, up to the last one, to the end of the pattern's steps, or to
// the attempt by which the policy ends the run.
template <class Use>
void Drive(scaling::Policy& policy, const ReplayOptions& options, Attempts& attempts, Use use) {
  scaling::RetryRule retry(options.max_retries);
  scaling::StepOutcome outcome;
  ReplayRow row;
  for (bool first = true; row.error.empty(); first = false) {
    if (options.trace.empty() && row.step > options.pattern.steps) return;
    if (!attempts.Next(outcome)) return;
    // The numbers are known only once the first attempt was read.
    if (first) std::tie(row.attempt, row.step) = attempts.FirstNumbers();
    const scaling::ScaleUpdate update = policy.Update(outcome);
    row.overflow = outcome.overflow;
    row.scale = update.before;
    row.skipped = update.action == scaling::Action::kSkip;
    row.scale_after = update.after;
    row.error = update.error;
    row.reason = update.reason;
    use(row, attempts.recorded());
    ++row.attempt;
    // A skipped attempt that is retried keeps its step, which counts updates here.
    if (!retry.Next(row.skipped)) ++row.step;
  }
}

}  // namespace

std::unique_ptr<Attempts> MakeUp(const ReplayPattern& pattern, bool wants_amax) {
  return std::make_unique<MadeUp>(pattern, wants_amax);
}

void Replay(scaling::Policy& policy, const ReplayOptions& options, std::ostream& out,
            std::ostream& notes) {
  if (policy.name() == scaling::kLayerwiseDynamic.name && !options.trace.empty())
    return ReplayLayers(policy, options, out);
  ExpectGlobal(policy);
  const bool wants_amax = policy.RequiredStats().amax;
  const auto attempts = options.trace.empty() ? MakeUp(options.pattern, wants_amax)
                                              : OpenTrace(options, wants_amax, notes);
  const bool csv = options.view == View::kCsv;
  std::ostream& text = csv ? notes : out;
  if (!options.title.empty()) PrintWrapped(options.title, 2, text);
  PrintWrapped(attempts->Describe(), 2, text);
  if (csv) out << telemetry::Header<ReplayRow>() << '\n';
  Stretches stretches;
  ScaleComparison comparison;
  Drive(policy, options, *attempts, [&](const ReplayRow& row, const RecordedAttempt& recorded) {
    if (csv) out << telemetry::FieldsOf(row).text() << '\n';
    stretches.Add(row);
    comparison.Add(row, recorded);
  });
  if (!csv) stretches.Print(out);
  for (const std::string& line : stretches.Summary()) PrintWrapped(line, 2, text);
  if (const std::string line = comparison.Text(); !line.empty()) PrintWrapped(line, 2, text);
}

}  // namespace ada::study

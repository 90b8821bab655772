// replay: what scales a global policy would have had over a record of overflows, without a network.
// The policy is the object that a training drives, so its state machine is the same.
#include <array>
#include <ostream>
#include <string>
#include <tuple>

#include "error.h"
#include "scaling/policies/policies.h"
#include "study/commands.h"
#include "study/replay/attempts.h"
#include "study/text_table.h"
#include "telemetry/columns.h"

namespace ada::telemetry {

template <>
inline constexpr auto kColumns<study::ReplayRow> = std::to_array<Column<study::ReplayRow>>({
    {"attempt", &study::ReplayRow::attempt},
    {"step", &study::ReplayRow::step},
    {"overflow", &study::ReplayRow::overflow},
    {"scale", &study::ReplayRow::scale, kExact | kPlain},
    {"skipped", &study::ReplayRow::skipped},
    {"scale_after", &study::ReplayRow::scale_after, kExact | kPlain},
    {"error", &study::ReplayRow::error},
});

}  // namespace ada::telemetry

namespace ada::study {
namespace {

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

// choose: trains a network in several formats and says which one to take.
#include <csignal>
#include <ostream>

#include "io/file.h"
#include "study/arms/output.h"
#include "study/choose/choice.h"

namespace ada::study {

// Files are written before anything is printed, so that a closed pipe costs none of them.
int Choose(const ChooseOptions& options, std::ostream& out, telemetry::Log& log) {
  ArmPlan plan = PlanTrainings({"choose", "choices", ReadArms(options), options}, log);
  const int signal = RunTrainings(plan, log);
  if (signal != 0) return 128 + signal;
  const Measured results = Measure(plan);
  const Verdict verdict = FindVerdict(results, plan, options.budget);
  WriteFileAtomically(plan.out + "/choose.csv", TrainingsCsv(results));
  if (options.html)
    WriteFileAtomically(plan.out + "/choose.html", ChoicePage(results, plan, verdict));
  if (options.json)
    PrintChoiceJson(results, plan, verdict, options.budget, out);
  else
    PrintChoice(results, plan, verdict, out);
  return ExitCodeOf(plan);
}

}  // namespace ada::study

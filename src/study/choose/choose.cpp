// choose: trains a network in several formats and says which one to take.
#include <csignal>
#include <ostream>

#include "io/file.h"
#include "study/choose/choice.h"

namespace ada::study {

// Files are written before anything is printed, so that a closed pipe costs none of them.
int Choose(const ChooseOptions& options, std::ostream& out, telemetry::Log& log) {
  ChoicePlan plan = PlanTrainings(options, log);
  const int signal = RunTrainings(plan, log);
  if (signal != 0) {
    log.Info("choose: the same command goes on");
    return 128 + signal;
  }
  const ChoiceResults results = Measure(plan);
  const Verdict verdict = FindVerdict(results, plan, options.budget);
  WriteFileAtomically(plan.out + "/choose.csv", ChoiceCsv(results));
  if (options.html)
    WriteFileAtomically(plan.out + "/choose.html", ChoicePage(results, plan, verdict));
  if (options.json)
    PrintChoiceJson(results, plan, verdict, options.budget, out);
  else
    PrintChoice(results, plan, verdict, out);
  // Arms that a policy ended are a result; others that ended by an error are not.
  for (const Training& training : plan.trainings)
    if (training.exit_code != 0 && training.exit_code != 5) return training.exit_code;
  return 0;
}

}  // namespace ada::study

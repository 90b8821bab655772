// ablate: takes a recipe apart, and says what each ingredient does to the loss.
#include <ostream>

#include "io/file.h"
#include "study/ablate/ablation.h"
#include "study/arms/output.h"

namespace ada::study {

// Files are written before anything is printed, so that a closed pipe costs none of them.
int Ablate(const AblateOptions& options, std::ostream& out, telemetry::Log& log) {
  const Ablation ablation = PlanAblation(options);
  ArmPlan plan =
      PlanTrainings({"ablate", "ablations", ablation.arms, options, {0, ablation.recipe}}, log);
  const int signal = RunTrainings(plan, log);
  if (signal != 0) return 128 + signal;
  const Measured measured = Measure(plan);
  const Effects effects = FindEffects(ablation, measured);
  WriteFileAtomically(plan.out + "/ablate.csv", AblationCsv(effects));
  WriteFileAtomically(plan.out + "/trainings.csv", TrainingsCsv(measured));
  if (options.html)
    WriteFileAtomically(plan.out + "/ablate.html", AblationPage(effects, measured, plan));
  if (options.json)
    PrintAblationJson(effects, measured, plan, out);
  else
    PrintAblation(effects, measured, plan, out);
  return ExitCodeOf(plan);
}

}  // namespace ada::study

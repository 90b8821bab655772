// choose: trains a network in several formats and says which one to take, as a table, choose.csv,
// JSON and a page.
#include <cmath>
#include <csignal>
#include <ostream>

#include "io/file.h"
#include "io/json_output.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/choose/choice.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

std::string LossText(double loss) {
  if (!std::isfinite(loss)) return "-";
  return Formatted(loss < 0.1 ? "%.3g" : "%.4f", loss);
}
std::string MinusLossText(double minus) {
  return std::isfinite(minus) ? Formatted("%+.3g", minus) : "-";
}

// "+0.12 %" of the baseline's loss.
std::string ShareOfLoss(double minus, double loss) {
  if (!std::isfinite(minus) || loss == 0) return "-";
  const double share = 100 * minus / loss;
  return Formatted(std::fabs(share) < 10 ? "%+.2f %%" : "%+.3g %%", share);
}

void PrintArms(const Measured& results, std::ostream& out) {
  const ArmResult& baseline = results.arms.front();
  TextTable table({"arm", "loss", "minus", "sd", "share", "skips", "bits", "moved"});
  for (const ArmResult& arm : results.arms) {
    const bool is_baseline = &arm == &baseline;
    table.Row({arm.name, LossText(arm.loss), is_baseline ? "-" : MinusLossText(arm.mean),
               is_baseline || std::isnan(arm.deviation) ? "-" : Formatted("%.2g", arm.deviation),
               is_baseline ? "-" : ShareOfLoss(arm.mean, baseline.loss),
               Formatted("%.3g", arm.skipped), Formatted("%.3g", arm.bits),
               Formatted("%.0f %%", 100 * arm.bits / baseline.bits)});
  }
  table.Print(out, kTerminalWidth);
}

}  // namespace

void PrintChoice(const Measured& results, const ArmPlan& plan, const Verdict& verdict,
                 std::ostream& out) {
  const ArmResult& baseline = results.arms.front();
  PrintWrapped(StepsText(results, plan) + "; minus: that of " + Visible(baseline.name) +
                   " under the same seed; sd: over the seeds; bits: of an operand's value",
               2, out);
  PrintArms(results, out);
  PrintWrapped(NoiseText(results), 2, out);
  out << "what was lost\n";
  for (const ArmResult& arm : results.arms) {
    std::string text = "  " + Visible(arm.name) + ": ";
    if (!arm.trouble.empty()) text += "does not train (" + arm.trouble + "); ";
    text += Visible(arm.lost.empty() ? "nothing is known" : arm.lost);
    if (!arm.cause.empty()) text += "; it " + Visible(arm.cause);
    for (const std::string& line : arm.sums) text += "; " + line;
    PrintWrapped(text, 4, out);
  }
  out << '\n';
  PrintWrapped(Visible(verdict.text()), 2, out);
  PrintWrapped("files: " + Visible(plan.out) + " (choose.csv; the runs of all arms, for report, " +
                   "compare, advise)",
               2, out);
}

void PrintChoiceJson(const Measured& results, const ArmPlan& plan, const Verdict& verdict,
                     double budget, std::ostream& out) {
  OrderedJson json = ArmsJson(results, plan);
  json["budget"] = budget;
  json["verdict"] = {{"arm", verdict.arm},
                     {"sentence", verdict.sentence + "."},
                     {"sure", verdict.sure},
                     {"surer_with", verdict.surer}};
  PrintJson(json, out);
}

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

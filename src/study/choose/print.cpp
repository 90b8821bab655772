// The table, choose.csv and the JSON of a choice.
#include <cmath>
#include <ostream>

#include "io/json_output.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/choose/choice.h"
#include "study/text_table.h"
#include "telemetry/csv.h"

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

void PrintArms(const ChoiceResults& results, std::ostream& out) {
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

OrderedJson ArmJson(const ArmResult& arm, const ArmResult& baseline) {
  OrderedJson json;
  json["arm"] = arm.name;
  json["trains"] = arm.trouble.empty();
  json["trouble"] = arm.trouble;
  json["loss"] = arm.loss;
  json["loss_minus_baseline"] = arm.mean;
  json["loss_minus_baseline_by_seed"] = arm.minus;
  json["deviation"] = arm.deviation;
  json["share_of_loss"] = arm.mean / baseline.loss;
  json["held_out_minus_baseline"] = arm.held_out;
  json["skipped_steps"] = arm.skipped;
  json["operand_bits"] = arm.bits;
  json["moved_share"] = arm.bits / baseline.bits;
  json["lost"] = arm.lost;
  json["lost_tensor"] = arm.lost_tensor;
  json["lost_pct"] = arm.lost_pct;
  json["cause"] = arm.cause;
  if (!arm.sums.empty()) json["sums"] = arm.sums;
  json["worst"] = OrderedJson::array();
  for (const auto& [tensor, pct] : arm.worst)
    json["worst"].push_back({{"tensor", tensor}, {"lost_pct", pct}});
  json["advice"] = arm.advice;
  return json;
}

}  // namespace

void PrintChoice(const ChoiceResults& results, const ChoicePlan& plan, const Verdict& verdict,
                 std::ostream& out) {
  const ArmResult& baseline = results.arms.front();
  PrintWrapped(Counted(plan.steps, "step") + " of " +
                   Counted(static_cast<std::int64_t>(plan.seeds.size()), "seed") +
                   "; loss: the mean of the last " + std::to_string(results.window) +
                   "; minus: that of " + Visible(baseline.name) +
                   " under the same seed; sd: over the seeds; bits: of an operand's value",
               2, out);
  PrintArms(results, out);
  const std::string noise =
      std::isfinite(results.noise) ? Formatted("%.2g", results.noise) : "what is not known";
  PrintWrapped("chance alone moves the loss by " + noise + " (" +
                   std::to_string(results.twins.size()) + " twins of " + Visible(baseline.name) +
                   " whose first weights differ by less than bf16 can tell)",
               2, out);
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

void PrintChoiceJson(const ChoiceResults& results, const ChoicePlan& plan, const Verdict& verdict,
                     double budget, std::ostream& out) {
  OrderedJson json = CommandJson("choose");
  json["out"] = plan.out;
  json["steps"] = plan.steps;
  json["configured_steps"] = plan.full_steps;
  json["seeds"] = plan.seeds;
  json["budget"] = budget;
  json["loss_over_last_steps"] = results.window;
  json["noise"] = results.noise;
  json["twins_minus_original"] = results.twins;
  json["baseline"] = results.arms.front().name;
  json["arms"] = OrderedJson::array();
  for (const ArmResult& arm : results.arms)
    json["arms"].push_back(ArmJson(arm, results.arms.front()));
  json["verdict"] = {{"arm", verdict.arm},
                     {"sentence", verdict.sentence + "."},
                     {"sure", verdict.sure},
                     {"surer_with", verdict.surer}};
  PrintJson(json, out);
}

std::string ChoiceCsv(const ChoiceResults& results) {
  std::string text =
      "arm,seed,twin,run,status,steps,skipped,loss,loss_minus_baseline,held_out_loss,"
      "held_out_minus_baseline,lost_tensor,lost_pct,operand_bits,seconds\n";
  for (const TrainingResult& row : results.trainings) {
    telemetry::CsvRow fields;
    fields.Text(row.arm).Integer(static_cast<std::int64_t>(row.seed));
    fields.Integer(static_cast<std::int64_t>(row.twin)).Text(row.run).Text(row.status);
    fields.Integer(row.steps).Integer(row.skipped);
    fields.Number(row.loss).Number(row.minus).Number(row.held_out).Number(row.held_out_minus);
    fields.Text(row.lost_tensor).Number(row.lost_pct).Number(row.bits).Number(row.seconds);
    text += fields.text() + "\n";
  }
  return text;
}

}  // namespace ada::study

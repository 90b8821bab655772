// The sentences, JSON and CSV that commands which compare arms have in common.
#include <cmath>

#include "io/shown_text.h"
#include "io/text.h"
#include "study/arms/arms.h"
#include "telemetry/csv.h"

namespace ada::study {
namespace {

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

std::string StepsText(const Measured& measured, const ArmPlan& plan) {
  return Counted(plan.steps, "step") + " of " + Counted(std::ssize(plan.seeds), "seed") +
         "; loss: the mean of the last " + std::to_string(measured.window);
}

std::string NoiseText(const Measured& measured) {
  const std::string noise =
      std::isfinite(measured.noise()) ? Formatted("%.2g", measured.noise()) : "what is not known";
  return "chance alone moves the loss by " + noise + " (" +
         std::to_string(measured.twins().size()) + " twins of " +
         Visible(measured.arms.front().name) +
         " whose first weights differ by less than bf16 can tell)";
}

OrderedJson ArmsJson(const Measured& measured, const ArmPlan& plan) {
  OrderedJson json = CommandJson(plan.command);
  json["out"] = plan.out;
  json["steps"] = plan.steps;
  json["configured_steps"] = plan.full_steps;
  json["seeds"] = plan.seeds;
  json["loss_over_last_steps"] = measured.window;
  json["noise"] = measured.noise();
  json["twins_minus_original"] = measured.twins();
  json["baseline"] = measured.arms.front().name;
  json["arms"] = OrderedJson::array();
  for (const ArmResult& arm : measured.arms)
    json["arms"].push_back(ArmJson(arm, measured.arms.front()));
  return json;
}

std::string TrainingsCsv(const Measured& results) {
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

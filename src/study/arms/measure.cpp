// Reads what the trainings gave: losses step by step, what was lost, and what `advise` says; and
// how far chance explains what trainings of several seeds differ by: Student's t.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "error.h"
#include "study/advise/run_record.h"
#include "study/arms/arms.h"
#include "study/run_files.h"
#include "telemetry/accumulator_totals.h"
#include "telemetry/coverage.h"
#include "telemetry/progress_text.h"

namespace ada::study {
namespace {

// The last tenth of the steps, at least ten, tells where a training ends: single steps are noisy.
constexpr std::int64_t kWindowShare = 10, kLeastWindow = 10;
constexpr std::size_t kWorst = 8;  // tensors that are kept of an arm

// What one training's folder says.
struct Read {
  std::vector<double> losses;  // of steps 1 to N; NaN: none
  std::int64_t steps = 0, skipped = 0;
  double held_out = NAN, seconds = NAN;
  std::string status;
};

Read ReadTraining(const Training& training, std::int64_t steps) {
  Read read;
  read.losses.assign(static_cast<std::size_t>(steps), NAN);
  if (!HasFile(training.folder, StepRow::kFile)) {
    read.status = "failed";
    return read;
  }
  EachRow<StepRow>(training.folder, [&](const StepRow& row) {
    if (row.step < 1 || row.step > steps) return;
    read.losses[static_cast<std::size_t>(row.step - 1)] = row.loss;
    read.steps = std::max(read.steps, row.step);
    read.skipped += row.skipped;
  });
  // The test split, or the first one that there is: language models have `validation` alone.
  std::map<std::string, double> held_out;
  std::string first;
  EachRowIfThere<EvaluationRow>(training.folder, [&](const EvaluationRow& row) {
    if (row.step > steps) return;
    if (first.empty()) first = row.split;
    held_out[row.split] = row.loss;
  });
  if (held_out.contains("test"))
    read.held_out = held_out["test"];
  else if (!first.empty())
    read.held_out = held_out[first];
  EachRowIfThere<TimingRow>(training.folder, [&](const TimingRow& row) {
    read.seconds = (std::isnan(read.seconds) ? 0 : read.seconds) + row.seconds;
  });
  read.status = RunState(training.folder);
  return read;
}

// The mean of the last `window` differences; not finite where one of them is not.
double EndMinus(const std::vector<double>& losses, const std::vector<double>& of_baseline,
                std::int64_t window) {
  double sum = 0;
  for (std::size_t i = losses.size() - static_cast<std::size_t>(window); i < losses.size(); ++i)
    sum += losses[i] - of_baseline[i];
  return sum / static_cast<double>(window);
}

// "underflows in fp16 at S = 1", or that values left the range.
std::string CauseOf(const telemetry::TensorTotals& tensor) {
  std::string text = tensor.overflow > tensor.underflow ? "leaves the range of " : "underflows in ";
  // A format without a name is a long list of its parts, which the arm's name stands for.
  text += tensor.last_format.starts_with('{') ? "the format of the arm" : tensor.last_format;
  if (CarriesS(tensor.tensor)) text += " at S = " + ShortNumber(tensor.last_scale);
  return text;
}

// What the first training of an arm lost, and what `advise` says of it.
void AddLosses(const std::string& folder, ArmResult& arm) {
  const RecommendOptions options{folder};
  const RunRecord record = ReadRecord(options);
  arm.lost = LostTextOf(record);
  if (const telemetry::TensorTotals* most = telemetry::LostMost(record.layers)) {
    arm.lost_tensor = most->name();
    arm.lost_pct = most->lost_mean();
    arm.cause = CauseOf(*most);
  }
  arm.sums = telemetry::AccumulatorLines(record.layers.sums());
  for (const telemetry::TensorTotals& tensor : record.layers.tensors())
    if (!telemetry::IsOfChanges(tensor.tensor) && tensor.lost_mean() > 0)
      arm.worst.emplace_back(tensor.name(), tensor.lost_mean());
  std::stable_sort(arm.worst.begin(), arm.worst.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (arm.worst.size() > kWorst) arm.worst.resize(kWorst);
  for (const Advice& advice : FindAdvice(options, record))
    arm.advice.push_back(FlowOf(advice) + "  # " + advice.reason);
}

// A policy's end is a result; an error, a kill or a full disk says nothing of the arm.
bool EndedByError(const Training& training) {
  return training.exit_code > 0 && training.exit_code != 5;
}

// Why a training is of no use; "": it is.
std::string TroubleOfTraining(const Training& training, const Read& read, std::int64_t steps) {
  if (read.steps >= steps && read.skipped < steps &&
      std::all_of(read.losses.begin(), read.losses.end(),
                  [](double x) { return std::isfinite(x); }))
    return "";
  if (read.status == "failed" || (read.steps == 0 && training.exit_code > 0) ||
      EndedByError(training)) {
    const int code = training.exit_code;
    return (code > 128 ? "was ended by signal " + std::to_string(code - 128)
                       : "failed with exit code " + std::to_string(code)) +
           (read.steps > 0 ? " after step " + std::to_string(read.steps) : "");
  }
  const bool skips_all = read.skipped >= read.steps;
  if (read.steps < steps)
    return "ended after step " + std::to_string(read.steps) +
           (skips_all ? ", with all steps skipped" : "");
  if (skips_all) return "skipped all steps";
  const auto bad = std::find_if(read.losses.begin(), read.losses.end(),
                                [](double loss) { return !std::isfinite(loss); });
  return "not finite from step " + std::to_string(bad - read.losses.begin() + 1) + " on";
}

// One-sided quantiles of Student's t by degrees of freedom, from 1: of 90 % and of 99 %.
constexpr std::array<double, 10> kFairlySure = {3.078, 1.886, 1.638, 1.533, 1.476,
                                                1.440, 1.415, 1.397, 1.383, 1.372};
constexpr std::array<double, 10> kWellSure = {31.821, 6.965, 4.541, 3.747, 3.365,
                                              3.143,  2.998, 2.896, 2.821, 2.764};
double Quantile(const std::array<double, 10>& quantiles, std::size_t freedom) {
  return quantiles[std::min(std::max<std::size_t>(freedom, 1), quantiles.size()) - 1];
}

}  // namespace

Measured Measure(const ArmPlan& plan) {
  Measured results;
  results.window = std::min(plan.steps, std::max(kLeastWindow, plan.steps / kWindowShare));
  std::vector<Read> all;
  for (const Training& training : plan.trainings) all.push_back(ReadTraining(training, plan.steps));
  const auto baseline_of = [&](const Training& training) {
    return training.seed * plan.arms.size();  // the first training of each seed
  };
  for (std::size_t a = 0; a < plan.arms.size(); ++a) {
    ArmResult& arm = results.arms.emplace_back();
    arm.name = plan.arms[a].name;
    arm.bits = plan.bits[a];
    arm.by_step.assign(static_cast<std::size_t>(plan.steps), 0);
  }
  for (std::size_t i = 0; i < plan.trainings.size(); ++i) {
    const Training& training = plan.trainings[i];
    const Read& read = all[i];
    const Read& baseline = all[baseline_of(training)];
    ArmResult& arm = results.arms[training.arm];
    const std::vector<double> zeros(read.losses.size(), 0);
    TrainingResult& row = results.trainings.emplace_back();
    row.arm = arm.name, row.run = training.name, row.status = read.status;
    row.seed = plan.seeds[training.seed], row.twin = training.twin;
    row.steps = read.steps, row.skipped = read.skipped, row.seconds = read.seconds;
    row.loss = EndMinus(read.losses, zeros, results.window);
    row.minus = EndMinus(read.losses, baseline.losses, results.window);
    row.held_out = read.held_out, row.held_out_minus = read.held_out - baseline.held_out;
    row.bits = arm.bits;
    if (training.twin > 0) {
      const Read& original = all[training.seed * plan.arms.size() + training.arm];
      arm.twins.push_back(EndMinus(read.losses, original.losses, results.window));
      continue;
    }
    arm.minus.push_back(row.minus);
    arm.skipped += static_cast<double>(read.skipped) / static_cast<double>(plan.seeds.size());
    for (std::size_t step = 0; step < arm.by_step.size(); ++step)
      arm.by_step[step] +=
          (read.losses[step] - baseline.losses[step]) / static_cast<double>(plan.seeds.size());
    if (arm.trouble.empty()) {
      arm.trouble = TroubleOfTraining(training, read, plan.steps);
      arm.ended_by_error = !arm.trouble.empty() && EndedByError(training);
    }
    if (training.seed == 0 && HasFile(training.folder, StepRow::kFile))
      AddLosses(training.folder, arm);
    row.lost_tensor = arm.lost_tensor;
    row.lost_pct = arm.lost_pct;
  }
  for (std::size_t a = 0; a < results.arms.size(); ++a) {
    ArmResult& arm = results.arms[a];
    std::vector<double> losses, held_out;
    for (const TrainingResult& row : results.trainings)
      if (row.arm == arm.name && row.twin == 0) {
        losses.push_back(row.loss);
        held_out.push_back(row.held_out_minus);
      }
    arm.loss = MeanOf(losses);
    arm.mean = MeanOf(arm.minus);
    arm.deviation = DeviationOf(arm.minus);
    double squares = 0;
    for (const double twin : arm.twins) squares += twin * twin;
    if (!arm.twins.empty()) arm.noise = std::sqrt(squares / static_cast<double>(arm.twins.size()));
    arm.held_out = MeanOf(held_out);
  }
  return results;
}

double MeanOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? NAN : sum / static_cast<double>(values.size());
}

double DeviationOf(const std::vector<double>& values) {
  if (values.size() < 2) return NAN;
  const double mean = MeanOf(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

bool Sureness::fairly() const { return t > Quantile(kFairlySure, freedom); }
bool Sureness::well() const { return t > Quantile(kWellSure, freedom); }
double WellSureT() { return kWellSure.back(); }

Sureness SurenessOf(double mean, double deviation, std::size_t seeds, double noise,
                    std::size_t twins) {
  Sureness distance;
  const bool by_seeds = std::isfinite(deviation) && deviation > noise;
  distance.freedom = by_seeds ? seeds - 1 : twins + seeds - 1;
  distance.error = (by_seeds ? deviation : noise) / std::sqrt(static_cast<double>(seeds));
  distance.t = distance.error > 0 ? std::fabs(mean) / distance.error : INFINITY;
  return distance;
}

}  // namespace ada::study

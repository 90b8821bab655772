// The texts of recommend, in lines for a terminal. The only decision made here is what is worth
// printing.
#include "io/text.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "io/shown_text.h"
#include "study/advise/run_record.h"
#include "study/run_files.h"
#include "study/text_table.h"
#include "telemetry/totals.h"

namespace ada::study {
namespace {

constexpr std::size_t kMostNames = 5;

std::string LostPctText(double value) {
  return Formatted(value > 0 && value < 0.001 ? "%.1e %%" : "%.3g %%", value);
}
std::string Power(int exponent) { return "2^" + std::to_string(exponent); }
// 2^k, or the number if it is not a power of two.
std::string PowerText(double scale) {
  int exponent = 0;
  if (std::frexp(scale, &exponent) == 0.5) return Power(exponent - 1);
  return Formatted("%.4g", scale);
}
// What a tensor lost in the step that lost most, as all commands say it (telemetry/coverage.h).
double MostLost(const RunRecord& record, const TensorNeeds& t) {
  const telemetry::TensorTotals* totals = record.layers.FindTensor(t.layer, t.tensor);
  return totals != nullptr ? totals->lost_max : t.lost_pct;
}
// Where no step of it was finite, or the others lost nothing, a share says nothing.
std::string LostPart(const RunRecord& record, const TensorNeeds& t) {
  const double lost = MostLost(record, t);
  return t.broken_steps > 0 && lost == 0 ? "not finite" : LostPctText(lost);
}
bool IsGood(const TensorNeeds& t, const RecommendOptions& options) {
  return !t.Loses(options.underflow_target);
}

// The text about a gradient that arrived, or about a tensor that carries no scale. The most serious
// finding comes first.
std::string JudgementOn(const TensorNeeds& t, const RecommendOptions& options) {
  if (t.asks_for_s() && !PowersFor(t, t.format, options.headroom_bits).any())
    return "no scale fits";
  if (t.overflow > 0) return "overflowed";
  if (t.broken_steps > 0) return "inf, NaN";
  if (!IsGood(t, options)) return "loses";
  const Powers powers = PowersFor(t, t.format, options.headroom_bits);
  if (t.asks_for_s() && t.WasAbove(powers)) return "S was too large";
  return t.asks_for_s() && t.WasBelow(powers) ? "S was too small" : "fine";
}

// The first few, each cut to what a line bears.
std::string Names(std::vector<std::string> names) {
  for (std::string& name : names) name = CutText(name, 40);
  return FirstNames(names, kMostNames);
}

// Gradients whose scales must lie above `high`, or below `low`.
void PrintConflict(const RecommendOptions& options, const RunNeeds& needs,
                   const Recommendation& advice, std::ostream& out) {
  std::vector<std::string> more, less;
  for (const TensorNeeds& t : needs.tensors) {
    const Powers powers = PowersFor(t, t.format, options.headroom_bits);
    if (!t.asks_for_s() || !powers.any()) continue;
    if (powers.low > advice.one_scale.high) more.push_back(t.name() + " " + Power(powers.low));
    if (powers.high < advice.one_scale.low) less.push_back(t.name() + " " + Power(powers.high));
  }
  out << "One fixed scale: none serves all gradients.\n";
  const auto print = [&](const char* what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    out << what;
    PrintList(names, 4, out);
  };
  // They cannot be at one scale: the smallest of the one side lies above the largest of the other.
  print("  need at least:\n", more);
  print("  bear at most:\n", less);
}

void PrintCompromise(const Recommendation& advice, std::ostream& out) {
  if (advice.compromise.empty()) return;
  const auto worst =
      std::max_element(advice.compromise.begin(), advice.compromise.end(),
                       [](const auto& a, const auto& b) { return a.lost_pct < b.lost_pct; });
  out << "Best compromise with one scale and the formats as they are: S = "
      << Power(advice.compromise_power)
      << ", the largest that keeps\n  the headroom (an overflow costs "
         "a whole step, an underflow small values alone); "
      << CutText(worst->tensor, 40) << "\n  would lose " << LostPctText(worst->lost_pct)
      << " in its worst step.\n";
}

// What "all gradients" leaves out.
std::string OfWhich(const RunNeeds& needs) {
  const auto silent = std::count_if(needs.tensors.begin(), needs.tensors.end(),
                                    [](const auto& t) { return t.asks_for_s() && t.silent(); });
  return silent == 0 ? "" : " that arrived (" + std::to_string(silent) + " did not)";
}

void PrintOneScale(const RecommendOptions& options, const RunNeeds& needs,
                   const Recommendation& advice, std::ostream& out) {
  if (!advice.one_scale.any()) return PrintConflict(options, needs, advice, out);
  out << "One fixed scale: from " << Power(advice.one_scale.low) << " ("
      << CutText(advice.low_by, 32) << ") to " << Power(advice.one_scale.high) << " ("
      << CutText(advice.high_by, 32) << ") serves all gradients" << OfWhich(needs)
      << (advice.changes.empty() ? ".\n" : ",\n  once the formats below are changed.\n");
}

void PrintChanges(const Recommendation& advice, std::ostream& out) {
  if (advice.changes.empty()) return;
  out << "Other formats, where no scale that they can carry meets the target:\n";
  for (const FormatChange& change : advice.changes)
    out << "  " << CutText(change.layer, 40) << ": " << change.role << " in "
        << FormatName(change.format) << ", for " << Names(change.tensors) << '\n';
  const auto of_loss = [](const FormatChange& change) {
    return change.tensors == std::vector<std::string>{"loss.dx"};
  };
  if (std::any_of(advice.changes.begin(), advice.changes.end(), of_loss))
    out << "  (loss.dx: softmax leaves ever smaller gradients to classes that it rules out. Losing "
           "them\n  seldom matters: this change may be left out.)\n";
}

// Policy none is shown as a fixed scale of 1.
void PrintChoice(const RunNeeds& needs, const Recommendation& advice, std::ostream& out) {
  const scaling::Settings& scaling = advice.config.scaling;
  if (scaling.policy == "none") {
    out << "These ranges speak for no scaling (S = 1).\n";
  } else if (advice.fixed) {
    out << "These ranges speak for policy fixed with S = " << ShortestText(scaling.scale) << " ("
        << PowerText(scaling.scale) << ")"
        << (MuchWasLost(needs) ? ", towards the upper end: so much was\n  lost that the lower one "
                                 "may lie higher.\n"
                               : ".\n");
  } else {
    out << "These ranges speak for policy adaptive, method exact_range, "
        << (scaling.adaptive.batch_norm
                ? "with an alpha for batch norms too: it\n  finds each layer's scale as training "
                  "moves"
                : "which finds each layer's scale as training\n  moves")
        << "; from these histograms it would choose:\n";
    TextTable table({"gradient", "S from", "to", "loses at most"});
    for (std::size_t i = 0; i < advice.predicted.size(); ++i) {
      const Predicted& p = advice.predicted[i];  // of needs.tensors[i]
      if (needs.tensors[i].carries_s())
        table.Row(
            {p.tensor, PowerText(p.scale_low), PowerText(p.scale_high), LostPctText(p.lost_pct)});
    }
    table.Print(out);
  }
}

// Losses above the target that remain after all changes are named, so that the advice promises no
// more than it can do.
void PrintPrediction(const RecommendOptions& options, const Recommendation& advice,
                     std::ostream& out) {
  std::vector<std::string> bad;
  const Predicted* worst = nullptr;
  for (const Predicted& p : advice.predicted) {
    if (worst == nullptr || p.lost_pct > worst->lost_pct) worst = &p;
    if (!judge::MeetsTarget(p.lost_pct, p.overflow, options.underflow_target))
      bad.push_back(p.tensor + " " + LostPctText(p.lost_pct) +
                    (p.overflow >= 0.5 ? " and overflow" : ""));
  }
  out << "Predicted from the same histograms: ";
  if (worst->lost_pct == 0)
    out << "nothing underflows";
  else
    out << "the worst tensor in its worst step, " << CutText(worst->tensor, 40) << ",\n  loses "
        << LostPctText(worst->lost_pct);
  out << (bad.empty() ? "; nothing overflows.\n" : ".\n");
  if (bad.empty()) return;
  out << "  Still above the target, with no scale or format that would change it:\n";
  PrintList(bad, 4, out);
}

// Tensors of the passes of which there is no histogram, the input above all, that lose more than
// the target in the worst step.
std::vector<std::string> WithoutHistograms(const RecommendOptions& options,
                                           const RunRecord& record) {
  std::vector<std::string> names;
  for (const telemetry::TensorTotals& t : record.layers.tensors()) {
    // Tensors of the update are `advise`'s matter, operands that of PrintOperandFormats.
    if (record.needs.Find(t.name()) != nullptr || IsOfUpdate(t.tensor) || IsOperand(t.tensor))
      continue;
    // What processes send carries S, and parallel.gradients is its format: no advice is about it.
    if (t.tensor == "sent") continue;
    if (judge::MeetsTarget(t.pct_max, static_cast<double>(t.overflow), options.underflow_target))
      continue;
    names.push_back(t.name() + " (" + t.last_format + ") " + LostPctText(t.lost_max) +
                    (t.overflow > 0 ? " and overflow" : ""));
  }
  return names;
}

// The steps that a training takes; 0: not known before its first epoch is over.
std::int64_t StepsOfTraining(const RunRecord& record) {
  const config::TrainConfig& train = record.config.train;
  return record.finished ? record.run.steps()
                         : StepsInAll(record.epoch_steps * train.epochs, train.max_steps);
}

// "epoch 1", "epochs 1 to 3".
std::string EpochsText(std::int64_t first, std::int64_t last) {
  if (first == last) return "epoch " + std::to_string(first);
  return "epochs " + std::to_string(first) + " to " + std::to_string(last);
}

}  // namespace

// How far the record carries: few steps, less than half of the training, or gradients of which much
// was lost or broken say little. Gradients change as a training goes on, so a record of its first
// half says little of the rest.
const char* GradeOf(const RunRecord& record) {
  const RunNeeds& needs = record.needs;
  const std::int64_t all = StepsOfTraining(record);
  const bool half = all > 0 && 2 * needs.last_step >= all;
  if (needs.steps < 3 || !half || needs.left_out > 0 || MuchWasLost(needs)) return "little";
  // The ends are no farther away than the steps of the record are from one another.
  const std::int64_t apart = (needs.last_step - needs.first_step) / (needs.steps - 1);
  const bool whole = needs.first_step <= apart && all - needs.last_step < apart;
  return needs.steps >= 10 && whole ? "well" : "fairly";
}

bool AnyArrived(const RunNeeds& needs) {
  return std::any_of(needs.tensors.begin(), needs.tensors.end(),
                     [](const TensorNeeds& t) { return t.carries_s() && !t.silent(); });
}

bool AnyAsksForS(const RunNeeds& needs) {
  return std::any_of(needs.tensors.begin(), needs.tensors.end(),
                     [](const TensorNeeds& t) { return t.asks_for_s() && !t.silent(); });
}

void PrintNeeds(const RecommendOptions& options, const RunRecord& record, std::ostream& out) {
  const RunNeeds& needs = record.needs;
  if (AnyAsksForS(needs))
    out << "Scales S at which at most " << LostPctText(100 * options.underflow_target)
        << " of a gradient's non-zero values underflow, in any step,\nwith "
        << PowerText(std::exp2(options.headroom_bits))
        << " between the largest value and overflow; and what the run had:\n";
  TextTable table({"gradient", "format", "range", "S from", "to", "S was", "lost", "verdict"}, 2);
  std::vector<std::string> fine, others = WithoutHistograms(options, record);
  for (const TensorNeeds& t : needs.tensors) {
    if (!t.silent() && IsGood(t, options) && JudgementOn(t, options) == "fine")
      fine.push_back(t.name());
    if (!t.asks_for_s()) {
      if (!IsGood(t, options) || (t.broken_steps > 0 && !(t.carries_s() && t.silent())))
        others.push_back(
            t.name() + " (" + FormatName(t.format) + (t.carries_s() ? ", scaled by itself)" : ")") +
            (t.broken_steps > 0 && t.lost_pct == 0 ? "" : " " + LostPctText(MostLost(record, t))) +
            (t.overflow > 0 ? " and overflow" : "") +
            (t.broken_steps > 0 ? ", inf or NaN in " + Counted(t.broken_steps, "step") : ""));
      continue;
    }
    if (t.silent()) continue;
    const Powers powers = PowersFor(t, t.format, options.headroom_bits);
    table.Row({t.name(), FormatName(t.format), Power(static_cast<int>(std::ceil(t.range_log2))),
               Power(powers.low), Power(powers.high), PowerText(t.scale), LostPart(record, t),
               JudgementOn(t, options)});
  }
  if (AnyAsksForS(needs)) table.Print(out);
  if (!others.empty()) {
    out << "No S helps these, which lose more than the target or are not finite:\n";
    PrintList(others, 2, out);
  }
  const auto dead = telemetry::LayersWithoutGradient(record.layers);
  if (!dead.empty()) {
    out << "In the last logged step:\n";
    PrintWrapped(Visible(telemetry::NoGradientText(dead, dead.size())), 2, out);
  }
  std::vector<std::string> silent, broken;
  for (const TensorNeeds& t : needs.tensors)
    if (t.carries_s() && t.silent()) (t.broken_steps > 0 ? broken : silent).push_back(t.name());
  if (!broken.empty()) {
    out << "Never finite in a step with a histogram: nothing is known of\n";
    PrintList(broken, 2, out);
  }
  if (!silent.empty()) {
    out << "No gradient arrived in any step: nothing is known of\n";
    PrintList(silent, 2, out);
  }
  if (fine.empty()) return;
  const auto& rows = record.layers.tensors();
  const bool operands =
      std::any_of(rows.begin(), rows.end(), [](const auto& t) { return IsOperand(t.tensor); });
  out << "Fine as they are (" << fine.size() << " of " << needs.tensors.size() << " tensors)"
      << (operands ? "; what operands lose is said apart:\n" : ":\n");
  PrintList(fine, 2, out);
}

void PrintRecommendation(const RecommendOptions& options, const RunRecord& record,
                         const Recommendation& advice, bool chosen, std::ostream& out) {
  const RunNeeds& needs = record.needs;
  const telemetry::Finiteness& finiteness = record.run.finiteness();
  const auto lost = telemetry::FindLostFromTheStart(record.layers);
  if (finiteness.since() > 0) {
    const telemetry::FirstNotFinite first = finiteness.first(lost);
    out << "The run is " << Visible(finiteness.Text(lost)) << ".\n"
        << (telemetry::IsOfScale(first) || telemetry::IsOfLostGradients(first)
                ? ""
                : "What follows is of the gradients before that, and does not mend it.\n");
  }
  if (!AnyArrived(needs)) {
    out << "No gradient arrived in any step with a histogram: nothing can be said of scales.\n";
    return PrintChanges(advice, out);
  }
  if (!AnyAsksForS(needs)) {
    out << "Each gradient has a scale of its own (precision.tensor_scaling), which makes up for S: "
           "no\n"
           "S changes what is lost.\n";
    PrintChanges(advice, out);
    return PrintPrediction(options, advice, out);
  }
  PrintOneScale(options, needs, advice, out);
  PrintCompromise(advice, out);
  PrintChanges(advice, out);
  if (!chosen) return;
  PrintChoice(needs, advice, out);
  PrintPrediction(options, advice, out);
}

void PrintConfidence(const RecommendOptions& options, const RunRecord& record,
                     const Recommendation& advice, const ProbedLoss& probed, std::ostream& out) {
  const config::Config& run = record.config;
  const RunNeeds& needs = record.needs;
  // The largest loss of any tensor: what was lost there never reached the gradients after it.
  const TensorNeeds& lost =
      *std::max_element(needs.tensors.begin(), needs.tensors.end(),
                        [](const auto& a, const auto& b) { return a.lost_pct < b.lost_pct; });
  const std::string of = run.train.max_steps > 0
                             ? " of " + std::to_string(StepsOfTraining(record))
                             : ", " + EpochsText(needs.first_epoch, needs.last_epoch) + " of " +
                                   std::to_string(run.train.epochs);
  out << "How sure: " << GradeOf(record) << ". " << Counted(needs.steps, "step")
      << " with histograms (" << needs.first_step << " to " << needs.last_step << of << "), "
      << run.data.batch_size << (run.task == Task::kLanguage ? " sequences" : " images")
      << " each;\n  largest values from " << Counted(record.logged_steps, "logged step") << ".\n";
  out << "  Gradients move as training goes on: steps that were not recorded may ask for more.\n";
  double unsure = 0;
  for (const Predicted& p : advice.predicted) unsure = std::max(unsure, p.unsure_pct);
  if (unsure > 0)
    out << "  Up to " << LostPctText(unsure)
        << " of a tensor's values share the exponent of a threshold; where S is a power\n  of two, "
           "only those equal to it are in doubt.\n";
  if (record.history.stochastic)
    out << "  The run rounds stochastically, where all below the smallest number may be lost: the "
           "scales\n  keep what is above it; the shares are those of rounding to nearest.\n";
  if (needs.left_out > 0)
    out << "  " << Counted(needs.left_out, "histogram")
        << " with inf or NaN, what an overflow left over, counted for nothing.\n";
  if (lost.lost_pct > 100 * options.underflow_target)
    out << "  What the run lost (" << CutText(lost.name(), 40) << ": " << LostPctText(lost.lost_pct)
        << " in step " << lost.lost_step
        << ") is missing in the\n  gradients after it: ask again after a run with these "
           "settings.\n";
  if (probed.lost_pct > 0)
    out << "  On probe steps " << CutText(probed.tensor, 40)
        << " lost most: " << LostPctText(probed.lost_pct)
        << ", what was lost before it included.\n";
}

}  // namespace ada::study

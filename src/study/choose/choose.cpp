// choose: trains a network in several formats and says which one to take, as a table, choose.csv,
// JSON and a page.
// An arm is judged by its loss minus the baseline's of the same seed, against the budget. How sure
// that is follows from Student's t of the distance to the budget: its error is the deviation over
// the seeds or that of twins, whichever is larger, by the root of the number of seeds.
#include <algorithm>
#include <cmath>
#include <ostream>

#include "io/file.h"
#include "io/json_output.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/choose/choice.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

constexpr std::size_t kMostSeeds = 64;
constexpr double kNoiseTimes = 2;  // within so many deviations of twins two losses are the same

bool Trains(const ArmResult& arm) { return arm.trouble.empty() && std::isfinite(arm.mean); }

std::string BitsText(const ArmResult& arm) { return Formatted("%.3g bits", arm.bits); }

// "0.0012 above fp32's (+0.05 %)", with the share of the baseline's loss.
std::string EndsText(const ArmResult& arm, const ArmResult& baseline) {
  return Formatted("%.3g %s ", std::fabs(arm.mean), arm.mean < 0 ? "below" : "above") +
         baseline.name + Formatted("'s (%+.2f %%)", 100 * arm.mean / baseline.loss);
}

// Finds the cheapest arm whose loss stays within the budget of the baseline's; the baseline where
// none does. share: the budget, of the baseline's loss.
class Chooser {
 public:
  Chooser(const Measured& results, const ArmPlan& plan, double share)
      : results_(results), plan_(plan), share_(share), baseline_(results.arms.front()) {}

  Verdict Run() {
    if (!Trains(baseline_)) return NoBaseline();
    budget_ = share_ * std::fabs(baseline_.loss);
    for (const ArmResult& arm : results_.arms)
      if (Trains(arm) && (&arm == &baseline_ || arm.mean <= budget_) &&
          (chosen_ == nullptr || Before(arm, *chosen_)))
        chosen_ = &arm;
    Verdict verdict;
    verdict.arm = chosen_->name;
    verdict.sentence = chosen_ == &baseline_ ? Keep() : Take();
    Grade(verdict);
    return verdict;
  }

 private:
  // The cheaper one; of equals that with the smaller loss.
  static bool Before(const ArmResult& a, const ArmResult& b) {
    return a.bits != b.bits ? a.bits < b.bits : a.mean < b.mean;
  }

  Verdict NoBaseline() const {
    Verdict verdict;
    verdict.arm = "";
    verdict.sentence = "No verdict: the baseline " + baseline_.name + " " + baseline_.fate() +
                       " (" + baseline_.trouble + ")";
    verdict.surer = baseline_.ended_by_error
                        ? kGoesOn
                        : "a baseline that trains: another --baseline, or a smaller optimizer.lr";
    return verdict;
  }

  Sureness FromBudget(const ArmResult& arm) const {
    return SurenessOf(arm.mean - budget_, arm.deviation, arm.minus.size(), results_.noise(),
                      results_.twins().size());
  }
  std::string BudgetText() const { return Formatted("the budget of %.3g %%", 100 * share_); }
  bool IsNoise(const ArmResult& arm) const {
    return std::fabs(arm.mean) <= kNoiseTimes * results_.noise();
  }

  // Arms with fewer bits that were not taken, the nearest first.
  std::vector<const ArmResult*> Rejected() const {
    std::vector<const ArmResult*> arms;
    for (const ArmResult& arm : results_.arms)
      if (&arm != chosen_ && &arm != &baseline_ && arm.bits <= chosen_->bits &&
          !(Trains(arm) && arm.mean <= budget_))
        arms.push_back(&arm);
    std::stable_sort(arms.begin(), arms.end(), [](const ArmResult* a, const ArmResult* b) {
      return (std::isfinite(a->mean) ? a->mean : INFINITY) <
             (std::isfinite(b->mean) ? b->mean : INFINITY);
    });
    return arms;
  }
  // "; nvfp4 (4.5 bits) ends 0.06 above fp32's (+2.4 %)".
  std::string RejectedText() const {
    std::string text;
    for (const ArmResult* arm : Rejected())
      text += "; " + arm->name + " (" + BitsText(*arm) + ") " +
              (Trains(*arm) ? "ends " + EndsText(*arm, baseline_)
                            : std::string(arm->fate()) + ": " + arm->trouble);
    return text;
  }

  std::string Take() const {
    std::string text = "Take " + chosen_->name + ": its loss ends " +
                       EndsText(*chosen_, baseline_) + ", within " + BudgetText();
    if (IsNoise(*chosen_)) text += " and within what chance alone changes";
    text += ", with " + BitsText(*chosen_) + " for an operand's value instead of " +
            Formatted("%.3g", baseline_.bits);
    return text + RejectedText();
  }

  std::string Keep() const {
    return "Keep " + baseline_.name + ": no arm with fewer bits ends within " + BudgetText() +
           " of its loss of " + Formatted("%.4g", baseline_.loss) + RejectedText();
  }

  // The least sure of what the verdict rests on: that the chosen arm lies below the budget, and
  // those with fewer bits above it.
  void Grade(Verdict& verdict) const {
    std::vector<const ArmResult*> arms;
    bool known = true;
    for (const ArmResult* arm : Rejected()) {
      if (Trains(*arm)) arms.push_back(arm);
      known = known && !arm->ended_by_error;
    }
    if (chosen_ != &baseline_) arms.push_back(chosen_);
    const ArmResult* nearest = nullptr;
    double least = INFINITY;
    bool fairly = true, well = plan_.seeds.size() >= kSeedsForWell;
    for (const ArmResult* arm : arms) {
      const Sureness distance = FromBudget(*arm);
      fairly = fairly && distance.fairly();
      well = well && distance.well();
      if (distance.t >= least) continue;
      least = distance.t;
      nearest = arm;
    }
    verdict.sure = !known ? "little" : well ? "well" : fairly ? "fairly" : "little";
    verdict.surer = known ? Surer(nearest, verdict.sure) : kGoesOn;
  }

  std::string Surer(const ArmResult* nearest, const std::string& sure) const {
    std::vector<std::string> words;
    if (plan_.steps < plan_.full_steps)
      words.push_back("all " + std::to_string(plan_.full_steps) + " steps (--steps; this was " +
                      std::to_string(plan_.steps) + ")");
    if (plan_.seeds.size() < kSeedsForWell) {
      words.push_back("--seeds " + std::to_string(kSeedsForWell));
    } else if (sure != "well" && nearest != nullptr) {
      // So many seeds give this distance a t of the quantile of many degrees of freedom.
      const Sureness distance = FromBudget(*nearest);
      const double one = distance.error * std::sqrt(static_cast<double>(plan_.seeds.size()));
      const double need = std::ceil(std::pow(WellSureT() * one / (nearest->mean - budget_), 2));
      words.push_back(need <= static_cast<double>(kMostSeeds)
                          ? "--seeds " + std::to_string(std::max<std::int64_t>(
                                             static_cast<std::int64_t>(need),
                                             static_cast<std::int64_t>(plan_.seeds.size()) + 1))
                          : "another --budget: " + nearest->name + " lies at its edge");
    }
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ", and ") + word;
    return text.empty() ? "a network of the size that is meant" : text;
  }

  const Measured& results_;
  const ArmPlan& plan_;
  double share_, budget_ = 0;
  const ArmResult& baseline_;
  const ArmResult* chosen_ = nullptr;
};

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

void PrintVerdict(const Measured& results, const ArmPlan& plan, const Verdict& verdict,
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
    if (!arm.trouble.empty()) text += std::string(arm.fate()) + " (" + arm.trouble + "); ";
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

}  // namespace

// One sentence of what to take, and one of how far to believe it.
std::string Verdict::text() const {
  return sentence + ". Sure: " + sure + "; surer with " + surer + ".";
}

// Files are written before anything is printed, so that a closed pipe costs none of them.
int Choose(const ChooseOptions& options, std::ostream& out, telemetry::Log& log) {
  ArmPlan plan = PlanTrainings({"choose", "choices", ReadArms(options), options}, log);
  const int signal = RunTrainings(plan, log);
  if (signal != 0) return 128 + signal;
  const Measured results = Measure(plan);
  const Verdict verdict = Chooser(results, plan, options.budget).Run();
  WriteFileAtomically(plan.out + "/choose.csv", TrainingsCsv(results));
  if (options.html)
    WriteFileAtomically(plan.out + "/choose.html", ChoicePage(results, plan, verdict));
  if (options.json)
    PrintChoiceJson(results, plan, verdict, options.budget, out);
  else
    PrintVerdict(results, plan, verdict, out);
  return ExitCodeOf(plan);
}

}  // namespace ada::study

// The parts of `choose`: its arms, the verdict, and what is printed. choose.cpp has the engine of
// arms (study/arms) train them.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "study/arms/arms.h"
#include "study/commands.h"

namespace ada::study {

// The baseline first. Throws ConfigError for a word that is no format, recipe, policy or file, and
// for an arm that is there twice.
std::vector<Arm> ReadArms(const ChooseOptions& options);

struct Verdict {
  std::string arm, sentence;
  const char* sure = "little";  // well, fairly, little
  std::string surer;            // what would make it surer
  std::string text() const;     // all of it
};
// The cheapest arm whose loss stays within the budget of the baseline's; the baseline where none
// does. `budget`: a share of the baseline's loss.
Verdict FindVerdict(const Measured& measured, const ArmPlan& plan, double budget);

void PrintChoice(const Measured& measured, const ArmPlan& plan, const Verdict& verdict,
                 std::ostream& out);
void PrintChoiceJson(const Measured& measured, const ArmPlan& plan, const Verdict& verdict,
                     double budget, std::ostream& out);
// A page that needs no other file: the verdict, loss minus baseline by step, the worst layers.
std::string ChoicePage(const Measured& measured, const ArmPlan& plan, const Verdict& verdict);

}  // namespace ada::study

// The parts of `choose`: its arms, the verdict, and its page. choose.cpp has the engine of arms
// (study/arms) train them.
#pragma once
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
// A page that needs no other file: the verdict, loss minus baseline by step, the worst layers.
std::string ChoicePage(const Measured& measured, const ArmPlan& plan, const Verdict& verdict);

}  // namespace ada::study

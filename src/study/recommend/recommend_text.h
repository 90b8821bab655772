// What recommend says to people: plain text for a terminal of 100 columns.
#pragma once
#include <iosfwd>
#include <string>

#include "study/recommend/recommend_plan.h"

namespace ada::study {

// A probed tensor and the share of its values (percent) that the run lost, here or before it.
struct ProbedLoss {
  std::string tensor;
  double lost_pct = 0;
};

// What each gradient asks for, beside what the run gave it.
void PrintNeeds(const RecommendOptions& options, const RunNeeds& needs, std::ostream& out);
// One scale for all, or why there is none; other formats; what the plan would have lost.
void PrintPlan(const RecommendOptions& options, const RunNeeds& needs, const Plan& plan,
               std::ostream& out);
// How many steps, of which data, and what cannot be known from them.
void PrintConfidence(const RecommendOptions& options, const config::Config& run,
                     const RunNeeds& needs, const Plan& plan, const ProbedLoss& probed,
                     std::ostream& out);

}  // namespace ada::study

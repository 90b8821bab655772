// The parts of `advise`: what of a run's record asks for a change, and how that is said.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "study/recommend/parts.h"
#include "telemetry/totals.h"

namespace ada::study {

// One change: keys of one section with their values as YAML, why, and how sure that is.
struct Advice {
  std::string section;                                    // scaling, precision, optimizer, data
  std::vector<std::pair<std::string, std::string>> keys;  // below it, each once
  std::string reason;
  const char* sure = "fairly";  // well, fairly, little
};

// What of a run is looked at.
struct RunRecord {
  config::Config config;
  telemetry::RunTotals run;
  telemetry::LayerTotals layers;
  bool has_histograms = false;  // of gradients
  RunNeeds needs;               // empty without them
  TensorFormats formats;
};

// Returns the changes, the most urgent first; each section's keys are those of one sentence, so
// that no advice contradicts another.
std::vector<Advice> FindAdvice(const RecommendOptions& options, const RunRecord& record);

}  // namespace ada::study

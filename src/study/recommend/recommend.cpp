// See recommend.h.
#include "study/recommend/recommend.h"

#include <algorithm>
#include <ostream>

#include "core/error.h"
#include "study/recommend/recommend_fragment.h"
#include "study/recommend/recommend_plan.h"
#include "study/recommend/recommend_text.h"
#include "study/run_files.h"
#include "telemetry/csv_reader.h"
#include "train/assemble.h"

namespace ada::study {
namespace {

ProbedLoss WorstProbe(const std::string& folder) {
  ProbedLoss worst;
  if (!HasFile(folder, "probes.csv")) return worst;
  telemetry::CsvReader file(folder + "/probes.csv", telemetry::LastRow::kMayBeTorn);
  const std::size_t layer = file.Column("layer"), tensor = file.Column("tensor");
  const std::size_t lost = file.Column("lost_pct");
  while (file.Next()) {
    const double lost_pct = file.NumberOrNan(lost);
    if (lost_pct > worst.lost_pct) worst = {file.Text(layer) + "." + file.Text(tensor), lost_pct};
  }
  return worst;
}

}  // namespace

void Recommend(const RecommendOptions& options, std::ostream& out) {
  const config::Config run = ReadRunConfig(options.folder);
  const TensorFormats formats = ReadTensorFormats(options.folder, run);
  const RunNeeds needs = CollectNeeds(options.folder, formats, options.underflow_target_pct);
  if (std::none_of(needs.tensors.begin(), needs.tensors.end(),
                   [](const TensorNeeds& t) { return t.carries_s(); }))
    throw DataError(options.folder +
                    "/histograms.csv: has no dx and no dy, the gradients that carry a scale; run "
                    "again with them in log.statistics");
  const Plan plan = MakePlan(options, run, formats, needs);
  out << "run " << run.name << " (" << run.data.dataset << ")\n\n";
  PrintNeeds(options, needs, out);
  out << '\n';
  PrintPlan(options, needs, plan, out);
  out << '\n';
  PrintConfidence(options, run, needs, plan, WorstProbe(options.folder), out);
  out << "\n# Put these sections in place of those of the run's configuration:\n"
      << FragmentOf(plan.config, !plan.changes.empty());
}

}  // namespace ada::study

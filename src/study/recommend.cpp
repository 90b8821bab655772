// recommend: reads the run and prints the ranges that speak for a decision; advise decides.
#include <algorithm>
#include <ostream>

#include "error.h"
#include "io/file.h"
#include "io/shown_text.h"
#include "study/advise/parts.h"
#include "study/recommend/parts.h"
#include "study/run_files.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

// Probes compare with fp32 gradients, so they see also what was lost before the tensor was rounded.
ProbedLoss WorstProbe(const std::string& folder) {
  ProbedLoss worst;
  if (!HasFile(folder, telemetry::ProbeRow::kFile)) return worst;
  EachRow<telemetry::ProbeRow>(folder, [&worst](const telemetry::ProbeRow& row) {
    if (row.lost_pct > worst.lost_pct) worst = {row.layer + "." + row.tensor, row.lost_pct};
  });
  return worst;
}

bool IsOfScaling(const Advice& advice) { return advice.section == "scaling"; }

// Whether what is to be changed of the scaling is what the ranges speak for: then it is predicted.
bool IsChosen(const Recommendation& ranges, const RunRecord& record,
              const std::vector<Advice>& decided) {
  const auto scaling = std::find_if(decided.begin(), decided.end(), IsOfScaling);
  return scaling != decided.end() && scaling->keys == ScalingKeys(ranges.config, record.config);
}

}  // namespace

// A run whose logs have no gradients cannot be judged, and the message says which key logs them.
void Recommend(const RecommendOptions& options, std::ostream& out) {
  const RunRecord record = ReadRecord(options);
  const config::Config& run = record.config;
  // Where a run has no histograms, a second reading says which key makes them.
  const RunNeeds needs = record.needs.steps > 0 ? record.needs
                                                : CollectNeeds(options.folder, record.history,
                                                               options.underflow_target);
  if (std::none_of(needs.tensors.begin(), needs.tensors.end(),
                   [](const TensorNeeds& t) { return t.carries_s(); }))
    throw DataError(options.folder +
                    "/histograms.csv: has no dx and no dy, the gradients that carry a scale; run "
                    "again with them in log.statistics");
  const Recommendation ranges = MakeRecommendation(options, run, record.history, needs);
  const std::vector<Advice> decided = FindAdvice(options, record);
  out << "run " << Visible(run.name) << " (" << run.data.dataset << ")\n";
  PrintWrapped(Visible(LostTextOf(record)), 2, out);
  out << '\n';
  PrintNeeds(options, needs, out);
  out << '\n';
  PrintRecommendation(options, needs, ranges, IsChosen(ranges, record, decided), out);
  out << '\n';
  PrintOperandFormats(record.operands, out);
  PrintSums(options.folder, out);
  PrintConfidence(options, run, needs, ranges, WorstProbe(options.folder), out);
  if (decided.empty()) {
    out << '\n';
    PrintWrapped("Recommended: " + Visible(NothingText(record)), 2, out);
  } else {
    out << "\nRecommended: what `ada-train advise` decides, for these reasons:\n";
    for (const Advice& advice : decided)
      PrintWrapped(
          "  " + advice.section + ": " + Visible(advice.reason) + " (sure: " + advice.sure + ")", 4,
          out);
    out << "\n# Lay this over the run's configuration (train --with FILE):\n"
        << VisibleLines(DocumentOf(decided));
  }
  if (!options.yaml.empty())
    WriteFileAtomically(options.yaml, decided.empty() ? "# " + Visible(NothingText(record)) + "\n"
                                                      : DocumentOf(decided));
}

}  // namespace ada::study

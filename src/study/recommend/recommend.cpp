// recommend: reads the run, decides, prints, and writes the fragment.
#include <algorithm>
#include <ostream>

#include "core/error.h"
#include "core/file.h"
#include "core/shown_text.h"
#include "study/recommend/parts.h"
#include "study/run_files.h"

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

// Rounds all operands to nearest in one format, without a recipe or a transform; layers that were
// spared stay spared. Returns false where all operands had this format already.
bool SetOperands(const AnyFormat& format, config::PrecisionConfig& precision) {
  const auto same = [&](const std::optional<config::OperandConfig>& operand) {
    return operand && operand->format == format;
  };
  auto& operands = precision.operands.by_operand;
  if (std::all_of(operands.begin(), operands.end(), same)) return false;
  precision.recipe = config::PrecisionRecipe::kNone;
  const std::optional<config::SparedConfig> spared = precision.operands.spared;
  precision.operands = {};
  precision.operands.by_operand.fill(config::OperandConfig{format});
  precision.operands.spared = spared;
  return true;
}

}  // namespace

// A run whose logs have no gradients cannot be judged, and the message says which key logs them.
void Recommend(const RecommendOptions& options, std::ostream& out) {
  const config::Config run = ReadRunConfig(options.folder);
  const FormatHistory formats = ReadFormatHistory(options.folder, run);
  const RunNeeds needs = CollectNeeds(options.folder, formats, options.underflow_target);
  if (std::none_of(needs.tensors.begin(), needs.tensors.end(),
                   [](const TensorNeeds& t) { return t.carries_s(); }))
    throw DataError(options.folder +
                    "/histograms.csv: has no dx and no dy, the gradients that carry a scale; run "
                    "again with them in log.statistics");
  Recommendation advice = MakeRecommendation(options, run, formats, needs);
  out << "run " << Visible(run.name) << " (" << run.data.dataset << ")\n\n";
  PrintNeeds(options, needs, out);
  out << '\n';
  PrintRecommendation(options, needs, advice, out);
  out << '\n';
  const std::optional<AnyFormat> operands = PrintOperandFormats(options, out);
  PrintConfidence(options, run, needs, advice, WorstProbe(options.folder), out);
  // `scaling:` is left out where no gradient arrived that asks for S, `precision:` where no format
  // changes.
  const bool other_operands = operands && SetOperands(*operands, advice.config.precision);
  std::string fragment =
      FragmentOf(advice.config, run, AnyAsksForS(needs), !advice.changes.empty() || other_operands);
  if (fragment.empty())
    fragment = AnyArrived(needs) ? "# nothing to recommend: no other format, and no S\n"
                                 : "# nothing to recommend: no gradient arrived\n";
  else
    out << "\n# Put these sections in place of those of the run's configuration:\n"
        << VisibleLines(fragment);
  if (!options.yaml.empty()) WriteFileAtomically(options.yaml, fragment);
}

}  // namespace ada::study

// advise: what to change after a run, in five lines at most.
#include <algorithm>
#include <map>
#include <ostream>

#include "core/file.h"
#include "core/text.h"
#include "core/utf8.h"
#include "study/advise/parts.h"
#include "study/run_files.h"

namespace ada::study {
namespace {

constexpr std::size_t kMost = 5;

RunRecord ReadRecord(const RecommendOptions& options) {
  const std::string& folder = options.folder;
  RunRecord record;
  record.config = ReadRunConfig(folder);
  EachRow<StepRow>(folder, [&](const StepRow& row) { record.run.Add(row); });
  EachRow<EventRow>(folder, [&](const EventRow& row) { record.run.Add(row); });
  EachRow<TensorRow>(folder, [&](const TensorRow& row) { record.layers.Add(row); });
  EachRow<ScaleRow>(folder, [&](const ScaleRow& row) { record.layers.Add(row); });
  if (!HasFile(folder, telemetry::HistogramRow::kFile)) return record;
  record.formats = ReadTensorFormats(folder, record.config);
  record.needs = CollectNeeds(folder, record.formats, options.underflow_target);
  record.has_histograms =
      std::any_of(record.needs.tensors.begin(), record.needs.tensors.end(),
                  [](const TensorNeeds& t) { return t.carries_s() && !t.silent(); });
  return record;
}

std::string FlowOf(const Advice& advice) {
  std::string text;
  for (const auto& [key, value] : advice.keys)
    text += (text.empty() ? "" : ", ") + key + ": " + value;
  return advice.section + ": {" + text + "}";
}

// All of it as one document: a section stands once.
std::string DocumentOf(const std::vector<Advice>& all) {
  std::map<std::string, std::string> sections;
  for (const Advice& advice : all)
    for (const auto& [key, value] : advice.keys)
      sections[advice.section] += "  " + key + ": " + value + "\n";
  std::string text;
  for (const auto& [name, keys] : sections) text += name + ":\n" + keys;
  return text;
}

}  // namespace

void Advise(const AdviseOptions& options, std::ostream& out) {
  const RecommendOptions targets{options.folder};
  std::vector<Advice> all = FindAdvice(targets, ReadRecord(targets));
  if (all.size() > kMost) all.resize(kMost);
  for (const Advice& advice : all)
    out << FlowOf(advice) << "  # " << Visible(advice.reason) << " (sure: " << advice.sure << ")\n";
  if (all.empty())
    out << "# nothing to change: every number is finite, and nothing that was logged loses more "
           "than it may\n";
  if (!options.yaml.empty()) WriteFileAtomically(options.yaml, DocumentOf(all));
}

}  // namespace ada::study

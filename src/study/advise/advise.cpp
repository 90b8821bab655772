// advise: what to change after a run, in five lines at most.
#include <algorithm>
#include <map>
#include <ostream>

#include "config/load.h"
#include "error.h"
#include "io/file.h"
#include "io/shown_text.h"
#include "io/tensor_names.h"
#include "run/checkpoint/checkpoint.h"
#include "study/advise/run_record.h"
#include "study/output.h"
#include "study/run_files.h"
#include "study/run_histograms.h"
#include "telemetry/coverage.h"

namespace ada::study {
namespace {

// The number of channels of the network's input, from a checkpoint of the run; 0 if unknown. For
// data sets whose files determine it, the configuration does not have it. Checkpoints are tried
// until one has it, because older ones may not.
int ChannelsOf(const std::string& run) {
  const std::string folder = run + "/checkpoints";
  try {
    for (const std::int64_t step : run::ListCheckpoints(folder).paired) {
      const std::string path = run::CheckpointStem(folder, step) + ".json";
      const auto& input = run::ReadCheckpointState(path).input;
      if (input) return static_cast<int>(input->image.c);
    }
  } catch (const DataError&) {  // a damaged one: advice goes without
  }
  return 0;
}

using JudgedByName = std::map<std::string, judge::JudgedFormat>;

std::vector<judge::JudgedFormat> NarrowestFirst(JudgedByName all) {
  std::vector<judge::JudgedFormat> judged;
  for (auto& [name, one] : all) judged.push_back(std::move(one));
  judge::SortByBits(judged);
  return judged;
}

void ReadJudgedFormats(const RecommendOptions& options, RunRecord& record) {
  JudgedByName of_layers, of_attention;
  const auto each = [&](const auto& row) {
    judge::JudgedFormat& judged =
        (IsAttentionOperand(row.tensor) ? of_attention : of_layers)[row.format];
    if (judged.format.empty()) {
      judged.format = row.format;
      const AnyFormat read =
          FormatOfRow(options.folder, row.kFile, row.step, row.format, config::ReadAnyFormat);
      if (const auto* block = std::get_if<BlockFormat>(&read)) judged.bits = BitsPerValue(*block);
    }
    judged.Add(row, row.layer, row.tensor, options.underflow_target);
  };
  EachRowIfThere<telemetry::WhatIfBlockRow>(options.folder, each);
  EachRowIfThere<BlockRow>(options.folder, each);
  record.operands = NarrowestFirst(std::move(of_layers));
  record.attention_operands = NarrowestFirst(std::move(of_attention));
}

}  // namespace

// Row by row, so a long run takes no more memory than a short one.
RunRecord ReadRecord(const RecommendOptions& options) {
  const std::string& folder = options.folder;
  RunRecord record;
  record.config = ReadRunConfig(folder);
  EachRow<StepRow>(folder, [&](const StepRow& row) {
    if (row.epoch > 1 && record.epoch_steps == 0) record.epoch_steps = record.run.steps();
    record.run.Add(row);
    record.course.Add(row);
  });
  record.finished = RunState(folder) == "finished";
  EachRow<EventRow>(folder, [&](const EventRow& row) {
    record.run.Add(row);
    if (row.event != "skip" || row.layer.empty()) return;
    RunRecord::Skips& skips = record.skips[{row.layer, row.tensor}];
    if (skips.steps++ == 0) skips.value = row.value;
  });
  std::int64_t logged = 0;
  EachRow<TensorRow>(folder, [&](const TensorRow& row) {
    record.layers.Add(row);
    record.course.Add(row);
    // Rows of one step are consecutive, so a change of the step starts the next one.
    record.logged_steps += row.step != logged;
    logged = row.step;
  });
  EachRow<ScaleRow>(folder, [&](const ScaleRow& row) { record.layers.Add(row); });
  EachRowIfThere<BlockRow>(folder, [&](const BlockRow& row) { record.layers.Add(row); });
  EachRowIfThere<telemetry::AccumulatorRow>(
      folder, [&](const telemetry::AccumulatorRow& row) { record.layers.Add(row); });
  EachRowIfThere<telemetry::ProbeRow>(
      folder, [&](const telemetry::ProbeRow& row) { record.layers.Add(row); });
  record.history = ReadFormatHistory(folder, record.config);
  record.formats = record.history.Last();
  record.channels = ChannelsOf(folder);
  ReadJudgedFormats(options, record);
  if (!HasHistograms(folder)) return record;
  record.needs = CollectNeeds(folder, record.history, options.underflow_target);
  // Histograms in which no gradient had a value tell nothing about scales; then counts are used.
  record.has_histograms =
      std::any_of(record.needs.tensors.begin(), record.needs.tensors.end(),
                  [](const TensorNeeds& t) { return t.carries_s() && !t.silent(); });
  return record;
}

void RequireSteps(const std::string& folder, const RunRecord& record) {
  if (record.run.steps() == 0 && record.layers.tensors().empty())
    throw DataError(folder + "/steps.csv: holds no step yet; wait for the run's first one");
}

telemetry::Coverage CoverageOf(const RunRecord& record) {
  return telemetry::CoverageOf(record.layers, record.run.steps(),
                               config::UncountedStatistics(record.config));
}

std::string LostTextOf(const RunRecord& record) {
  return telemetry::LostText(record.layers, CoverageOf(record));
}

OrderedJson LostJson(const RunRecord& record) {
  return LostJson(record.layers, CoverageOf(record));
}

std::string FlowOf(const Advice& advice) {
  std::string text;
  for (const auto& [key, value] : advice.keys)
    text += (text.empty() ? "" : ", ") + key + ": " + value;
  return advice.section + ": {" + text + "}";
}

OrderedJson AdviceJson(const std::vector<Advice>& all) {
  OrderedJson list = OrderedJson::array();
  for (const Advice& advice : all) {
    OrderedJson keys = OrderedJson::object();
    for (const auto& [key, value] : advice.keys) keys[key] = value;
    list.push_back({{"section", advice.section},
                    {"keys", keys},
                    {"reason", advice.reason},
                    {"sure", advice.sure},
                    {"mends", advice.mends}});
  }
  return list;
}

std::string DocumentOf(const std::vector<Advice>& all) {
  std::map<std::string, std::string> sections;
  for (const Advice& advice : all)
    for (const auto& [key, value] : advice.keys)
      sections[advice.section] += "  " + key + ": " + value + "\n";
  std::string text;
  for (const auto& [name, keys] : sections) text += name + ":\n" + keys;
  return text;
}

void Advise(const AdviseOptions& options, std::ostream& out) {
  const RecommendOptions targets{options.folder};
  const RunRecord record = ReadRecord(targets);
  RequireSteps(options.folder, record);
  const std::vector<Advice> all = FindAdvice(targets, record);
  const std::string nothing = "# " + Visible(NothingText(record)) + "\n";
  const std::string document = all.empty() ? nothing : DocumentOf(all);
  if (options.json) {
    OrderedJson json = CommandJson("advise");
    json["run"] = options.folder;
    json["keep"] = all.empty();
    json["why"] = all.empty() ? NothingText(record) : all.front().reason;
    json["advice"] = AdviceJson(all);
    json["yaml"] = document;
    json["lost"] = LostJson(record);
    PrintJson(json, out);
  } else {
    for (const Advice& advice : all)
      out << FlowOf(advice) << "  # " << Visible(advice.reason) << " (sure: " << advice.sure
          << ")\n";
    if (all.empty()) out << nothing;
  }
  if (!options.yaml.empty()) WriteFileAtomically(options.yaml, document);
}

}  // namespace ada::study

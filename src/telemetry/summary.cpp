// Makes the JSON of a run's summary from its totals and facts.
#include "telemetry/summary.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "io/file.h"
#include "telemetry/coverage.h"
#include "telemetry/progress_text.h"

namespace ada::telemetry {
namespace {

using Json = nlohmann::ordered_json;

// NaN, a stage that was not taken, and inf are null in JSON (what dump writes for them).
// The form depends on the task: metrics over all classes, or top-1 and top-5 with what a language
// model adds.
Json EvaluationJson(const SplitTotals& split, const SummaryFacts& facts) {
  const EvaluationRow& last = split.last;
  if (split.decided_by_classes()) {
    Json json = {
        {"step", last.step}, {"epoch", last.epoch}, {"images", last.images}, {"loss", last.loss}};
    for (const Metric& metric : MetricsOf(*split.last_all)) json[metric.key] = metric.value;
    const ClassRow& best = *split.best_all;
    const Metric decides = MetricsOf(best).front();
    json["best"] = {{"step", best.step}, {"epoch", best.epoch}, {decides.key, decides.value}};
    return json;
  }
  Json json = {{"step", last.step}, {"epoch", last.epoch}, {"images", last.images},
               {"loss", last.loss}, {"top1", last.top1},   {"top5", last.top5}};
  if (facts.tokens > 0) json["perplexity"] = Perplexity(last.loss);
  if (facts.bytes) json["bits_per_byte"] = Bits(last.loss);
  json["best"] = {{"step", split.best.step},
                  {"epoch", split.best.epoch},
                  {"top1", split.best.top1},
                  {"loss", split.best.loss}};
  return json;
}

Json TensorJson(const TensorTotals& tensor) {
  return {{"rows", tensor.rows},
          {"numel", tensor.numel},
          {"zeros_before", tensor.zeros_before},
          {"underflow", tensor.underflow},
          {"overflow", tensor.overflow},
          {"underflow_pct_nonzero_mean", tensor.pct_mean()},
          {"underflow_pct_nonzero_max", tensor.pct_max},
          {"lost_pct_mean", tensor.lost_mean()},
          {"lost_pct_max", tensor.lost_max},
          {"last_scale", tensor.last_scale}};
}

Json ScaleJson(const ScaleTotals& scale) {
  Json json = {{"rows", scale.rows},
               {"last_scale_in", scale.last_scale_in},
               {"last_scale_out", scale.last_scale_out}};
  if (!scale.branch) json["last_alpha"] = scale.last_alpha;
  json["last_limit"] = scale.last_limit;
  json["limits"] = scale.limits;
  return json;
}

// One object a layer, in the order of the logs: its tensors, its decisions, its branch point.
Json LayersJson(const LayerTotals& layers) {
  Json all = Json::object();
  for (const TensorTotals& tensor : layers.tensors()) {
    all[tensor.layer][tensor.tensor] = TensorJson(tensor);
  }
  for (const ScaleTotals& scale : layers.scales()) {
    all[scale.layer][scale.branch ? "branch" : "alpha"] = ScaleJson(scale);
  }
  return all;
}

// What was counted, what that lost most, and the sentence of both.
Json CountedJson(const LayerTotals& layers, const Coverage& coverage) {
  Json json = {{"of", coverage.counted},
               {"not", coverage.uncounted},
               {"logged_steps", coverage.logged_steps}};
  if (const TensorTotals* most = LostMost(layers))
    json["lost_most"] = {{"layer", most->layer},
                         {"tensor", most->tensor},
                         {"pct_mean", most->lost_mean()},
                         {"pct_max", most->lost_max}};
  json["coverage"] = coverage.counted.empty() ? "" : coverage.Text();
  json["text"] = LostText(layers, coverage);
  return json;
}

// Facts whose words are empty are left out.
Json RunJson(const SummaryFacts& facts, const RunTotals& run, const LayerTotals& layers) {
  Json json = {{"name", facts.name}, {"status", RunStatusName(facts.status)}};
  for (const auto& [key, value] : {std::pair("model", &facts.model),
                                   {"dataset", &facts.dataset},
                                   {"format", &facts.format},
                                   {"policy", &facts.policy}}) {
    if (!value->empty()) json[key] = *value;
  }
  json["epochs"] = facts.epochs;
  json["steps"] = run.steps();
  json["skipped"] = run.skipped();
  if (const std::int64_t since = run.finiteness().since(); since > 0) {
    const FirstNotFinite first = run.finiteness().first(FindLostFromTheStart(layers));
    json["not_finite"] = {{"since", since},
                          {"layer", first.layer},
                          {"tensor", first.tensor},
                          {"largest", first.value},
                          {"scale_helps", IsOfScale(first) || IsOfLostGradients(first)},
                          {"advice", AdviceText(first)}};
  }
  if (!run.broken_images().empty()) json["broken_images"] = run.broken_images();
  json["last_scale"] = run.last().scale;
  json["train"] = {
      {"epoch", run.last().epoch}, {"loss", run.epoch_loss()}, {"accuracy", run.epoch_accuracy()}};
  json["evaluation"] = Json::object();
  for (const SplitTotals& split : run.evaluations()) {
    json["evaluation"][split.last.split] = EvaluationJson(split, facts);
  }
  return json;
}

}  // namespace

const char* RunStatusName(RunStatus status) {
  switch (status) {
    case RunStatus::kFinished:
      return "finished";
    case RunStatus::kStopped:
      return "stopped";
    case RunStatus::kInterrupted:
      break;
  }
  return "interrupted";
}

std::string CpuModel() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string SummaryJson(const SummaryFacts& facts, const RunTotals& run,
                        const LayerTotals& layers) {
  Json json = RunJson(facts, run, layers);
  json["counted"] = CountedJson(layers, CoverageOf(layers, run.steps(), facts.uncounted));
  json["layers"] = LayersJson(layers);
  json["seconds"] = facts.seconds;
  json["images_per_second"] = facts.images_per_second;
  if (facts.tokens > 0)
    json["tokens_per_second"] = facts.images_per_second * static_cast<double>(facts.tokens);
  json["folder"] = facts.folder;
  json["versions"] = Json::object();
  for (const auto& [what, version] : facts.versions) json["versions"][what] = version;
  json["host"] = {
      {"processor", facts.processor}, {"threads", facts.threads}, {"device", facts.device}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void WriteSummary(const SummaryFacts& facts, const RunTotals& run, const LayerTotals& layers) {
  WriteFileAtomically(facts.folder + "/summary.json", SummaryJson(facts, run, layers));
}

}  // namespace ada::telemetry

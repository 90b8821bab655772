// Writes the rows of a step file by file, from the attempt and the graph's lists. The counts of a
// layer's parameters are joined, and each tensor gets a row.
#include "record/step_log.h"

#include <algorithm>
#include <cmath>

#include "io/tensor_names.h"
#include "io/text.h"
#include "judge/scale_path.h"
#include "number/stats.h"
#include "step/specs.h"

namespace ada::record {
namespace {

// Errors of two matrices are those of the worse.
void Add(const UpdateRow& part, UpdateRow& all) {
  all.stats = CombinedStats(all.stats, part.stats);
  all.error.mse = std::fmax(all.error.mse, part.error.mse);
  all.error.sqnr_db = std::fmin(all.error.sqnr_db, part.error.sqnr_db);
}

// The rows of all that one layer has of a tensor as one, before those of its parts where there are
// several. Parts of one name (a state of several parameters) are one.
std::vector<UpdateRow> WithWholes(const std::vector<UpdateRow>& parts) {
  std::vector<UpdateRow> rows;
  for (std::size_t first = 0, end = 0; first < parts.size(); first = end) {
    while (end < parts.size() && parts[end].layer == parts[first].layer) ++end;
    for (const char* const whole : {"update", "master", "state", "ns", "orthogonality"}) {
      std::vector<UpdateRow> of_whole;
      for (std::size_t i = first; i < end; ++i) {
        if (WholeTensor(parts[i].tensor) != whole) continue;
        const auto same = std::find_if(of_whole.begin(), of_whole.end(), [&](const UpdateRow& row) {
          return row.tensor == parts[i].tensor;
        });
        if (same == of_whole.end())
          of_whole.push_back(parts[i]);
        else
          Add(parts[i], *same);
      }
      if (of_whole.empty()) continue;
      UpdateRow all = of_whole.front();
      all.tensor = whole;
      for (std::size_t i = 1; i < of_whole.size(); ++i) Add(of_whole[i], all);
      rows.push_back(all);
      if (of_whole.size() > 1) rows.insert(rows.end(), of_whole.begin(), of_whole.end());
    }
  }
  return rows;
}

}  // namespace

StepLog::StepLog(const config::Config& config, const graph::Graph& graph, const std::string& policy,
                 telemetry::Recorder& recorder, telemetry::Log& log, const Probe* probe,
                 const OperandWhatIf* operands, const step::Team& team)
    : config_(config),
      graph_(graph),
      policy_(policy),
      recorder_(recorder),
      events_(config, recorder, log),
      probe_(probe),
      operands_(operands),
      schedule_(config),
      team_(team) {
  for (const config::WhatIfConfig& entry : config.log.what_if)
    if (entry.of_histograms()) scenarios_.emplace_back(entry, config.model);
}

// With several processes, the one whose part of the tensor holds its largest magnitude. A gradient
// that no cause of its own explains may carry another S than the policy's.
EventTensor StepLog::Named(const step::StepResult& r) const {
  using Cause = telemetry::NotFiniteCause;
  const step::NotFiniteTensor& first = r.not_finite;
  if (first.layer.empty()) return {};
  Cause cause = first.cause;
  if (cause == Cause::kNone && CarriesS(first.tensor) && first.carried != r.scale)
    cause = judge::TotalScaleEntry(config_, first.layer, first.tensor) < 0 ? Cause::kLayerScale
                                                                           : Cause::kTotalScale;
  return {first.layer,
          first.tensor,
          NineDigits(static_cast<double>(first.largest)),
          first.rank < 0 ? "" : team_.NameOf(first.rank),
          cause,
          first.carried};
}

// step_log.h promises the order: events that compare with earlier steps come before the rows of
// this step are recorded, because recording changes the recorder's knowledge.
step::StepNews StepLog::Write(const step::Attempt& attempt) {
  const step::StepResult& r = attempt.result;
  news_ = {};
  if (!team_.writes()) return news_;
  const EventTensor first = Named(r);
  events_.Targets(r);
  events_.Loss(r, first);
  events_.LearningRate(r);
  recorder_.Step(
      {r.step, r.epoch, r.loss, r.accuracy, r.lr, r.scale, r.overflow, r.skipped, r.grad_norm});
  if (config_.task == Task::kDetection)
    recorder_.Losses({r.step, r.epoch, r.location_loss, r.loss - r.location_loss, r.terms});
  if (r.logged) {
    WriteScales(r);
    WriteTensors(r, attempt.counts);
    WriteAccumulators(r, attempt.counts, attempt.kept);
    for (const UpdateRow& row : UpdateRows(config_, graph_, attempt.kept))
      WriteUnderflow(r, {row.layer, row.tensor, row.format}, row.stats, row.error);
    WriteSums(r, "sent", attempt.transport);
    WriteSums(r, "accumulated", attempt.accumulated);
    WriteProbe(r);
    if (schedule_.TakesHistograms(r.step)) {
      WriteHistograms(r, attempt.counts);
      WriteOperandsWhatIf(r);
      WriteJudgedSums(r, attempt.counts);
    }
  }
  for (const graph::ScalePoint& point : graph_.scales()) events_.Branch(r, point);
  if (r.overflow) events_.Overflow(r, first);
  for (const step::HalvedMu& halved : attempt.halved) events_.Mu(r, halved);
  for (const step::MeasuredScale& measured : attempt.measured) events_.Measured(r, measured);
  events_.Policy(r, attempt.update);
  events_.EndStep(r);
  if (r.logged) recorder_.Flush();
  news_.skip = r.overflow;
  news_.skip_layer = first.layer;
  return news_;
}

void StepLog::WriteScales(const step::StepResult& r) {
  for (const graph::ScalePoint& point : graph_.scales()) {
    events_.LayerScale(r, point);
    recorder_.Scale(r.step, r.epoch, point.layer, policy_, *point.decision);
  }
}

// Layers that had no gradient before are found first: recording the rows of this step changes the
// answer.
void StepLog::WriteTensors(const step::StepResult& r, const step::BatchCounts& counts) {
  const auto dead_before = telemetry::LayersWithoutGradient(recorder_.layers());
  const auto& points = graph_.roundings();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const graph::RoundingPoint& p = points[i];
    if (!Contains(config_.log.statistics, StatisticOf(p.tensor))) continue;
    WriteUnderflow(r, {p.layer, p.tensor, p.named_format(), p.carried(), p.per_tensor_factor()},
                   counts.LoggedStats(i), ErrorOf(r, p));
    if (p.blocks != nullptr) WriteBlocks(r, p, counts.LoggedBlocks(i));
  }
  events_.NoGradient(r, dead_before);
}

namespace {

template <class AnyRow>
AnyRow SumsRow(const step::StepResult& r, const std::string& layer, const char* tensor,
               const scaling::Accumulator& rule, const scaling::AccumulatorCounts& counts) {
  AnyRow row;
  row.Take(counts);
  row.step = r.step, row.epoch = r.epoch;
  row.layer = layer, row.tensor = tensor;
  row.accumulator = scaling::AccumulatorText(rule);
  return row;
}

}  // namespace

// Then those of muon's iteration, of all matrices of a layer together.
void StepLog::WriteAccumulators(const step::StepResult& r, const step::BatchCounts& counts,
                                const std::vector<optim::UpdateStats>& kept) {
  using telemetry::AccumulatorRow;
  const auto& points = graph_.sums();
  for (std::size_t i = 0; i < points.size(); ++i)
    recorder_.Accumulators(SumsRow<AccumulatorRow>(
        r, points[i].layer, scaling::NameOf(points[i].matmul), points[i].rule, counts.SumsOf(i)));
  const auto& of_iteration = config_.precision.accumulate.newton_schulz;
  if (kept.empty() || !of_iteration || !of_iteration->rule) return;
  std::vector<std::pair<std::string, scaling::AccumulatorCounts>> layers;
  std::size_t next = 0;
  for (const graph::Parameter& parameter : graph_.parameters()) {
    if (!parameter.gradient) continue;
    const scaling::AccumulatorCounts& sums = kept.at(next++).newton_schulz.sums;
    if (sums.sums == 0) continue;
    if (layers.empty() || layers.back().first != parameter.layer)
      layers.emplace_back(parameter.layer, scaling::AccumulatorCounts());
    layers.back().second.Add(sums);
  }
  for (const auto& [layer, sums] : layers)
    recorder_.Accumulators(SumsRow<AccumulatorRow>(r, layer, "ns", *of_iteration->rule, sums));
}

void StepLog::WriteJudgedSums(const step::StepResult& r, const step::BatchCounts& counts) {
  std::vector<std::string> names;
  for (const config::WhatIfConfig& entry : config_.log.what_if)
    if (entry.accumulate) names.push_back(entry.name);
  const auto& points = graph_.judged_sums();
  for (std::size_t i = 0; i < points.size(); ++i) {
    auto row = SumsRow<telemetry::WhatIfAccumulatorRow>(r, points[i].layer,
                                                        scaling::NameOf(points[i].matmul),
                                                        points[i].rule, counts.JudgedSumsOf(i));
    row.scenario = names[points[i].judged];
    recorder_.WhatIf(row);
  }
}

void StepLog::WriteBlocks(const step::StepResult& r, const graph::RoundingPoint& p,
                          const BlockCounts& counts) {
  telemetry::BlockRow row;
  row.Take(counts);
  row.step = r.step, row.epoch = r.epoch;
  row.layer = p.layer, row.tensor = p.tensor;
  row.format = FormatName(p.named_format());
  if (CarriesS(p.tensor)) row.norm_over_noise = std::sqrt(counts.signal / counts.noise);
  events_.Noise(r, row.layer, row.tensor, row.norm_over_noise,
                "that of its rounding's errors in " + row.format);
  recorder_.Blocks(row);
}

// Empty where these sums are fp32.
void StepLog::WriteSums(const step::StepResult& r, const std::string& tensor,
                        const step::DistributedGradients::Transport& sums) {
  for (const step::DistributedGradients::Lost& lost : sums.lost)
    WriteUnderflow(r,
                   {lost.layer, tensor, sums.format, static_cast<double>(sums.scale),
                    static_cast<double>(lost.scale)},
                   lost.stats);
}

void StepLog::WriteUnderflow(const step::StepResult& r, const CountedTensor& at,
                             const TensorStats& stats, const telemetry::ProbeError& error) {
  if (events_.Underflow(r, at, stats) && !news_.alert)
    news_.alert = true, news_.alert_layer = at.layer;
  recorder_.Underflow(r.step, r.epoch, at.layer, at.tensor, at.format, at.carried, stats, error,
                      at.per_tensor_scale);
}

telemetry::ProbeError StepLog::ErrorOf(const step::StepResult& r,
                                       const graph::RoundingPoint& p) const {
  if (probe_ == nullptr || !probe_->Due(r.step)) return {};
  for (const telemetry::ProbeRow& row : probe_->rows())
    if (row.layer == p.layer && row.tensor == p.tensor) return {row.mse, row.sqnr_db};
  return {};
}

void StepLog::WriteProbe(const step::StepResult& r) {
  if (probe_ == nullptr || !probe_->Due(r.step)) return;
  for (telemetry::ProbeRow row : probe_->rows()) {
    row.step = r.step, row.epoch = r.epoch;
    if (row.tensor == "dw")
      events_.Noise(r, row.layer, row.tensor, row.norm_over_noise,
                    "that of its difference from the fp32 gradient");
    recorder_.Probe(row);
  }
}

void StepLog::WriteHistograms(const step::StepResult& r, const step::BatchCounts& counts) {
  const auto& points = graph_.roundings();
  std::vector<judge::HistogramOfTensor> tensors;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const graph::RoundingPoint& p = points[i];
    if (p.bins == nullptr) continue;
    recorder_.Histogram(r.step, r.epoch, p.layer, p.tensor, p.total_scale(), counts.BinsOf(i));
    // Scenarios apply to stored tensors only.
    if (!IsOperand(p.tensor))
      tensors.push_back(
          {p.layer, p.tensor, p.format, p.total_scale(), &counts.BinsOf(i), p.per_tensor_factor()});
  }
  for (judge::Scenario& scenario : scenarios_)
    for (const telemetry::WhatIfRow& row : scenario.Judge(r.step, r.epoch, tensors))
      recorder_.WhatIf(row);
}

// All of it in a file of its own, and what the other scenarios' rows have among those.
void StepLog::WriteOperandsWhatIf(const step::StepResult& r) {
  if (operands_ == nullptr) return;
  for (telemetry::WhatIfBlockRow row : operands_->rows()) {
    row.step = r.step, row.epoch = r.epoch;
    recorder_.WhatIf(row);
    telemetry::WhatIfRow brief;
    brief.step = row.step, brief.epoch = row.epoch;
    brief.layer = row.layer, brief.tensor = row.tensor;
    brief.scenario = row.scenario, brief.format = row.format, brief.scale = row.scale;
    brief.underflow_pct_nonzero = row.lost_pct_nonzero;
    brief.overflow = static_cast<double>(row.saturated);
    brief.underflow_unsure_pct = 0;
    recorder_.WhatIf(brief);
  }
}

std::map<std::string, scaling::StateMap> StepLog::SaveScenarios() const {
  std::map<std::string, scaling::StateMap> states;
  for (const judge::Scenario& scenario : scenarios_) states[scenario.name()] = scenario.SaveState();
  return states;
}

std::vector<std::string> StepLog::LoadScenarios(
    const std::map<std::string, scaling::StateMap>& states) {
  std::vector<std::string> others;
  for (judge::Scenario& scenario : scenarios_) {
    const auto found = states.find(scenario.name());
    if (found != states.end() && !scenario.LoadState(found->second))
      others.push_back(scenario.name());
  }
  return others;
}

// `kept` has an entry for each parameter with a gradient, in the graph's order; entries without
// counts have no values and get no row.
std::vector<UpdateRow> UpdateRows(const config::Config& config, const graph::Graph& graph,
                                  const std::vector<optim::UpdateStats>& kept) {
  if (kept.empty()) return {};
  const config::PrecisionConfig& p = config.precision;
  const backend::UpdateRule rule = step::UpdateRuleOf(config.optimizer, p);
  const bool changes = p.masters.format != kFp32 || Contains(config.log.statistics, "update");
  std::vector<UpdateRow> parts;
  std::size_t next = 0;
  for (const graph::Parameter& parameter : graph.parameters()) {
    if (!parameter.gradient) continue;
    const std::string& layer = parameter.layer;
    const std::string of = "." + parameter.part;
    const optim::UpdateStats& stats = kept.at(next++);
    const std::string masters = FormatName(p.masters.format);
    if (changes) parts.push_back({layer, "update" + of, masters, stats.change});
    if (stats.master.numel > 0) parts.push_back({layer, "master" + of, masters, stats.master});
    const backend::NewtonSchulzStats& ns = stats.newton_schulz;
    const std::string products = FormatName(rule.ns_format);
    if (ns.products.numel > 0)
      parts.push_back({layer, "ns" + of, products, ns.products, {ns.mse, ns.sqnr_db}});
    if (ns.identity.numel > 0)
      parts.push_back({layer, "orthogonality" + of, products, ns.identity});
    for (const auto& [state, counts] : stats.states)
      if (counts.numel > 0)
        parts.push_back({layer, "state." + state, step::StateFormatName(p, rule, state), counts});
  }
  return WithWholes(parts);
}

}  // namespace ada::record

#include "train/observe/step_log.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/stats_sums.h"
#include "core/tensor_names.h"
#include "core/text.h"
#include "train/trainer.h"

namespace ada::train {
namespace {

// The rows of all that one layer has of a tensor as one, before those of its parts where there are
// several. Parts of one name (a state of several parameters) are one.
std::vector<UpdateRow> WithWholes(const std::vector<UpdateRow>& parts) {
  std::vector<UpdateRow> rows;
  for (std::size_t first = 0, end = 0; first < parts.size(); first = end) {
    while (end < parts.size() && parts[end].layer == parts[first].layer) ++end;
    for (const char* const whole : {"update", "master", "state"}) {
      std::vector<UpdateRow> of_whole;
      for (std::size_t i = first; i < end; ++i) {
        if (WholeTensor(parts[i].tensor) != whole) continue;
        const auto same = std::find_if(of_whole.begin(), of_whole.end(), [&](const UpdateRow& row) {
          return row.tensor == parts[i].tensor;
        });
        if (same == of_whole.end())
          of_whole.push_back(parts[i]);
        else
          same->stats = CombinedStats(same->stats, parts[i].stats);
      }
      if (of_whole.empty()) continue;
      UpdateRow all = of_whole.front();
      all.tensor = whole;
      for (std::size_t i = 1; i < of_whole.size(); ++i)
        all.stats = CombinedStats(all.stats, of_whole[i].stats);
      rows.push_back(all);
      if (of_whole.size() > 1) rows.insert(rows.end(), of_whole.begin(), of_whole.end());
    }
  }
  return rows;
}

}  // namespace

bool IsDue(std::int64_t every, std::int64_t step) {
  return every > 0 && (step == 1 || step % every == 0);
}

StepLog::StepLog(const config::Config& config, const graph::Graph& graph, const std::string& policy,
                 telemetry::Recorder& recorder, telemetry::Log& log, const Probe* probe,
                 const OperandWhatIf* operands, const Team& team)
    : config_(config),
      graph_(graph),
      policy_(policy),
      recorder_(recorder),
      events_(config, recorder, log),
      probe_(probe),
      operands_(operands),
      team_(team),
      layer_roundings_(LayerRoundings(graph)) {
  for (const config::WhatIfConfig& entry : config.log.what_if)
    if (entry.block_format() == nullptr) scenarios_.emplace_back(entry, config.model);
}

bool StepLog::Logs(std::int64_t step) const {
  const config::LogConfig& log = config_.log;
  return IsDue(log.every, step) || IsDue(log.probe_every, step) || IsDue(log.dump_every, step) ||
         TakesHistograms(step);
}

bool StepLog::Counts(std::int64_t step) const {
  return Logs(step) && !config_.log.statistics.empty();
}

bool StepLog::TakesHistograms(std::int64_t step) const {
  return IsDue(config_.log.histogram_every.value_or(0), step);
}

bool StepLog::CountsUpdates(std::int64_t step) const {
  const config::PrecisionConfig& p = config_.precision;
  const bool kept_short = p.masters.format != kFp32 || p.optimizer_state.format != kFp32;
  return Logs(step) && (kept_short || Contains(config_.log.statistics, "update"));
}

// A row for all of a layer, and one for each part where it has several.
void StepLog::TakeUpdates(const std::vector<optim::KeptStats>& stats) {
  updates_.clear();
  if (stats.empty()) return;  // the step is skipped
  const config::PrecisionConfig& p = config_.precision;
  const std::vector<std::string> states =
      optim::Optimizer::StatesOf(backend::UpdateRule(config_.optimizer));
  const bool changes = p.masters.format != kFp32 || Contains(config_.log.statistics, "update");
  std::vector<UpdateRow> parts;
  std::size_t next = 0;
  for (const graph::Parameter& parameter : graph_.parameters()) {
    if (!parameter.gradient) continue;
    const std::size_t dot = parameter.name.rfind('.');
    const std::string layer = parameter.name.substr(0, dot), of = parameter.name.substr(dot);
    const optim::KeptStats& kept = stats.at(next++);
    const TensorStats* const of_states[] = {&kept.state1, &kept.state2};
    if (changes) parts.push_back({layer, "update" + of, p.masters.format, kept.change});
    if (kept.master.numel > 0)
      parts.push_back({layer, "master" + of, p.masters.format, kept.master});
    for (std::size_t i = 0; i < states.size(); ++i)
      if (of_states[i]->numel > 0)
        parts.push_back({layer, "state." + states[i], p.optimizer_state.format, *of_states[i]});
  }
  updates_ = WithWholes(parts);
}

void StepLog::TakeTransport(std::vector<DistributedGradients::Lost> lost,
                            const NumberFormat& format, float scale) {
  transport_ = std::move(lost);
  transport_format_ = format, transport_scale_ = scale;
}

void StepLog::AddMicroBatch(const backend::Pass& pass) {
  const auto& points = graph_.roundings();
  const bool first = !pass.accumulate;
  if (first) sums_.assign(points.size(), TensorStats{});
  if (first) largest_at_.assign(points.size(), -1);
  if (first) block_sums_.assign(points.size(), BlockCounts{});
  if (first && pass.bins) bin_sums_.assign(points.size(), ExponentBins{});
  for (std::size_t i = 0; i < points.size(); ++i) {
    // A weight and its gradient exist once a batch, whatever the micro-batches.
    const bool once = IsOfWholeBatch(points[i].tensor);
    if (first || !(points[i].stats->max_abs <= sums_[i].max_abs))
      largest_at_[i] = points[i].largest_at;
    sums_[i] = first || once ? *points[i].stats : CombinedStats(sums_[i], *points[i].stats);
    if (points[i].blocks != nullptr) {
      if (once) block_sums_[i] = BlockCounts{};
      block_sums_[i].Add(*points[i].blocks);
    }
    if (!pass.bins || points[i].bins == nullptr) continue;
    if (once) bin_sums_[i] = ExponentBins{};
    bin_sums_[i].Add(*points[i].bins);
  }
}

const ExponentBins& StepLog::BinsOf(std::size_t point) const {
  return bin_sums_.empty() ? *graph_.roundings()[point].bins : bin_sums_[point];
}

const TensorStats& StepLog::StatsOf(std::size_t point) const {
  return sums_.empty() ? *graph_.roundings()[point].stats : sums_[point];
}

const BlockCounts& StepLog::BlocksOf(std::size_t point) const {
  return block_sums_.empty() ? *graph_.roundings()[point].blocks : block_sums_[point];
}

// The first rounding, in the order of execution, whose largest magnitude is or becomes infinite.
EventTensor StepLog::FirstNotFinite() const {
  const auto& points = graph_.roundings();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const float largest = StatsOf(i).max_abs;
    if (!std::isfinite(RoundTo(points[i].format, largest)))
      return {points[i].layer, points[i].tensor, NineDigits(static_cast<double>(largest)),
              WhoHas(i), points[i].per_tensor_scale != nullptr && std::isfinite(largest)};
  }
  return {};
}

// With several processes, the one whose part of the tensor holds its largest magnitude; "": all.
std::string StepLog::WhoHas(std::size_t point) const {
  const int rank = largest_at_.empty() ? graph_.roundings()[point].largest_at : largest_at_[point];
  return rank < 0 ? "" : team_.NameOf(rank);
}

StepNews StepLog::Write(const StepResult& r, const scaling::ScaleUpdate& update) {
  news_ = {};
  if (!team_.writes()) return news_;
  const EventTensor first = r.overflow || !std::isfinite(r.loss) ? FirstNotFinite() : EventTensor();
  events_.Targets(r);
  events_.Loss(r, first);
  events_.LearningRate(r);
  recorder_.Step(
      {r.step, r.epoch, r.loss, r.accuracy, r.lr, r.scale, r.overflow, r.skipped, r.grad_norm});
  if (config_.task == Task::kDetection)
    recorder_.Losses({r.step, r.epoch, r.location_loss, r.loss - r.location_loss, r.terms});
  if (r.logged) {
    WriteScales(r);
    WriteTensors(r);
    WriteUpdates(r);
    WriteTransport(r);
    WriteProbe(r);
    if (TakesHistograms(r.step)) {
      WriteHistograms(r);
      WriteOperandsWhatIf(r);
    }
  }
  for (const graph::ScalePoint& point : graph_.scales()) events_.Branch(r, point);
  if (r.overflow) events_.Overflow(r, first);
  events_.Policy(r, update);
  events_.EndStep(r);
  if (r.logged) recorder_.Flush();
  news_.skip = r.overflow;
  news_.skip_layer = first.layer;
  return news_;
}

void StepLog::CountEdge(scaling::StepOutcome& attempt) const {
  const auto& points = graph_.roundings();
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!IsDx(points[i].tensor)) continue;
    const TensorStats& s = StatsOf(i);
    attempt.above += s.above_edge;
    attempt.below += s.numel - s.above_edge;
  }
}

void StepLog::FillLayerOverflow(scaling::StepOutcome& attempt) const {
  const auto stats_of = [this](std::size_t i) -> const TensorStats& { return StatsOf(i); };
  train::FillLayerOverflow(graph_, layer_roundings_, stats_of, attempt);
}

std::string StepLog::DecisionErrors() const {
  for (const graph::ScalePoint& point : graph_.scales()) {
    const scaling::DecisionError error = point.decision->error;
    if (error == scaling::DecisionError::kNone) continue;
    return "layer " + point.layer + ": " + scaling::DecisionErrorText(error) +
           " (scaling.reference: true ends the run there, as the original does)";
  }
  return "";
}

void StepLog::WriteScales(const StepResult& r) {
  for (const graph::ScalePoint& point : graph_.scales()) {
    events_.LayerScale(r, point);
    recorder_.Scale(r.step, r.epoch, point.layer, policy_, *point.decision);
  }
}

void StepLog::WriteTensors(const StepResult& r) {
  const auto dead_before = telemetry::LayersWithoutGradient(recorder_.layers());
  const auto& points = graph_.roundings();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const graph::RoundingPoint& p = points[i];
    if (!Contains(config_.log.statistics, StatisticOf(p.tensor))) continue;
    WriteUnderflow(r, {p.layer, p.tensor, p.named_format(), p.carried()}, StatsOf(i),
                   ErrorOf(r, p));
    if (p.blocks != nullptr) WriteBlocks(r, p, BlocksOf(i));
  }
  events_.NoGradient(r, dead_before);
}

void StepLog::WriteBlocks(const StepResult& r, const graph::RoundingPoint& p,
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

void StepLog::WriteUpdates(const StepResult& r) {
  for (const UpdateRow& row : updates_)
    WriteUnderflow(r, {row.layer, row.tensor, row.format}, row.stats);
  updates_.clear();
}

void StepLog::WriteTransport(const StepResult& r) {
  for (const DistributedGradients::Lost& lost : transport_)
    WriteUnderflow(r,
                   {lost.layer, "sent", transport_format_, static_cast<double>(transport_scale_)},
                   lost.stats);
  transport_.clear();
}

void StepLog::WriteUnderflow(const StepResult& r, const CountedTensor& at, const TensorStats& stats,
                             const telemetry::ProbeError& error) {
  if (events_.Underflow(r, at, stats) && !news_.alert)
    news_.alert = true, news_.alert_layer = at.layer;
  recorder_.Underflow(r.step, r.epoch, at.layer, at.tensor, at.format, at.scale, stats, error);
}

telemetry::ProbeError StepLog::ErrorOf(const StepResult& r, const graph::RoundingPoint& p) const {
  if (probe_ == nullptr || !probe_->Due(r.step)) return {};
  for (const telemetry::ProbeRow& row : probe_->rows())
    if (row.layer == p.layer && row.tensor == p.tensor) return {row.mse, row.sqnr_db};
  return {};
}

void StepLog::WriteProbe(const StepResult& r) {
  if (probe_ == nullptr || !probe_->Due(r.step)) return;
  for (telemetry::ProbeRow row : probe_->rows()) {
    row.step = r.step, row.epoch = r.epoch;
    if (row.tensor == "dw")
      events_.Noise(r, row.layer, row.tensor, row.norm_over_noise,
                    "that of its difference from the fp32 gradient");
    recorder_.Probe(row);
  }
}

void StepLog::WriteHistograms(const StepResult& r) {
  const auto& points = graph_.roundings();
  std::vector<what_if::HistogramOfTensor> tensors;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const graph::RoundingPoint& p = points[i];
    if (p.bins == nullptr) continue;
    recorder_.Histogram(r.step, r.epoch, p.layer, p.tensor, p.carried(), BinsOf(i));
    // Scenarios are of what is stored.
    if (!IsOperand(p.tensor))
      tensors.push_back({p.layer, p.tensor, p.format, p.carried(), &BinsOf(i)});
  }
  for (what_if::Scenario& scenario : scenarios_)
    for (const telemetry::WhatIfRow& row : scenario.Judge(r.step, r.epoch, tensors))
      recorder_.WhatIf(row);
}

// All of it in a file of its own, and what the other scenarios' rows have among those.
void StepLog::WriteOperandsWhatIf(const StepResult& r) {
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
  for (const what_if::Scenario& scenario : scenarios_)
    states[scenario.name()] = scenario.SaveState();
  return states;
}

void StepLog::LoadScenarios(const std::map<std::string, scaling::StateMap>& states) {
  for (what_if::Scenario& scenario : scenarios_) {
    const auto found = states.find(scenario.name());
    if (found != states.end()) scenario.LoadState(found->second);
  }
}

}  // namespace ada::train

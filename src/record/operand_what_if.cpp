// Reads the operands of the matmuls that log.what_if asks about as a step observes them, and counts
// in parallel what each format would lose.
#include "record/operand_what_if.h"

#include <algorithm>
#include <array>
#include <utility>

#include "io/run_in_parallel.h"
#include "record/dumped_operands.h"
#include "step/step_observer.h"
#include "step/weight_values.h"

namespace ada::record {
namespace {

constexpr std::array kOfGradient = {Operand::kDxDy, Operand::kDwDy};

}  // namespace

// Entries of log.what_if without a block-scaled format are judged from histograms
// (judge/scenario.h).
OperandWhatIf::OperandWhatIf(const config::Config& config, const graph::Graph& graph,
                             backend::Backend& backend, step::Team& team)
    : config_(config), graph_(graph), backend_(backend), team_(team) {
  for (const config::WhatIfConfig& entry : config.log.what_if)
    if (const BlockFormat* format = entry.block_format()) asked_.push_back({entry.name, *format});
  for (const graph::LayerRow& layer : graph.layers()) {
    const graph::Parameter* weight = step::WeightOf(graph, layer.name);
    if (!layer.has_weight || weight == nullptr) continue;
    by_layer_[layer.name] = matmuls_.size();
    matmuls_.push_back({layer.name, OperandLayer(layer, *weight)});
  }
  for (const graph::RoundingPoint& point : graph.roundings()) {
    const auto found = by_layer_.find(point.layer);
    if (point.tensor == "dx" && found != by_layer_.end()) matmuls_[found->second].has_dx = true;
  }
  head_scales_.assign(graph.judged_operands().size(), 1);
}

bool OperandWhatIf::Due(std::int64_t step) const {
  return step::IsDue(config_.log.histogram_every.value_or(0), step);
}

// A layer that reads the images has no dx, and so no matmul that makes one.
bool OperandWhatIf::Exists(const Matmul& matmul, Operand operand) const {
  return matmul.has_dx || (operand != Operand::kDxDy && operand != Operand::kDxW);
}

// Weights are the same in every process: the first one counts them.
void OperandWhatIf::Begin(std::int64_t /*step*/, const backend::Pass& pass) {
  counts_.assign(asked_.size() * matmuls_.size() * kOperands, BlockCounts());
  of_heads_.assign(head_scales_.size(), BlockCounts());
  if (!team_.writes()) return;
  const bool stochastic = config::IsStochastic(config_.precision.rounding);
  for (const auto& [name, matmul] : by_layer_) {
    const graph::Parameter& weight = *step::WeightOf(graph_, name);
    const graph::RoundingPoint* copy = step::CopyOf(graph_, weight);
    if (copy == nullptr) continue;
    const std::vector<float> values =
        step::RoundedWeights(weight, *copy, stochastic, pass, backend_);
    const OperandLayer& layer = matmuls_[matmul].is;
    Count(
        matmul, {Operand::kForwardW, Operand::kDxW},
        [&](Operand operand) { return layer.PlaceOfWeight(operand); }, IsKeptInBf16(*copy), values,
        AmaxOf(values), step::Team::OfOne());
  }
}

void OperandWhatIf::Observe(const graph::ObservedTensor& seen, const backend::Pass& pass) {
  const auto found = by_layer_.find(seen.layer);
  const bool is_x = seen.tensor == "x";
  if (found == by_layer_.end() || !(is_x || seen.tensor == "dy")) return;
  Matmul& matmul = matmuls_[found->second];
  const Shape& shape = seen.value.shape;
  std::vector<float> values(static_cast<std::size_t>(pass.rows * shape.per_image()));
  backend_.Read(seen.value, pass.rows, values.data());
  if (!is_x) Rescale(found->second, seen.scale != nullptr ? static_cast<double>(*seen.scale) : 1);
  const std::vector<Operand> operands = is_x ? std::vector{Operand::kForwardX, Operand::kDwX}
                                             : std::vector(kOfGradient.begin(), kOfGradient.end());
  if (matmul.is.PlaceOfBatch(operands.front(), shape, pass.rows).linear)
    values = AsPyTorch(values, shape);
  Count(
      found->second, operands,
      [&](Operand operand) { return matmul.is.PlaceOfBatch(operand, shape, pass.rows); },
      IsKeptInBf16(seen.value.format, seen.value.storage), values, AmaxOfBatch(values, team_),
      team_);
}

// Each pair of a format and an operand has counts of its own, so the tasks run in parallel without
// a lock and give the same sums in any order.
void OperandWhatIf::Count(std::size_t matmul, const std::vector<Operand>& operands,
                          const std::function<OperandPlace(Operand)>& place_of, bool bf16,
                          const std::vector<float>& values, float amax, step::Team& team) {
  const bool by_row = std::any_of(asked_.begin(), asked_.end(),
                                  [](const Asked& asked) { return asked.format.row_scaled; });
  std::array<OperandAmaxes, kOperands> amaxes;
  for (const Operand operand : operands) {
    amaxes[IndexOf(operand)].tensor = amax;
    if (by_row) amaxes[IndexOf(operand)].rows = RowAmaxesOfBatch(place_of(operand), values, team);
  }
  std::vector<std::function<void()>> tasks;
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    for (const Operand operand : operands) {
      if (!Exists(matmuls_[matmul], operand)) continue;
      BlockCounts& counts = CountsOf(i, matmul, operand);
      const OperandAmaxes& of = amaxes[IndexOf(operand)];
      tasks.push_back([this, i, place = place_of(operand), bf16, &of, &values, &counts] {
        BlockCounts more;
        QuantizeOperand(asked_[i].format, place, bf16, values, nullptr, &more, of);
        counts.Add(more);
      });
    }
  }
  RunInParallel(tasks);
}

// Micro-batches, and processes, may carry different scales: their counts are added at one, which
// for micro-batches is that of the last.
void OperandWhatIf::Rescale(std::size_t matmul, double scale) {
  const double factor = scale / std::exchange(matmuls_[matmul].scale, scale);
  for (std::size_t i = 0; factor != 1 && i < asked_.size(); ++i)
    for (const Operand operand : kOfGradient) {
      BlockCounts& counts = CountsOf(i, matmul, operand);
      counts = counts.Rescaled(factor);
    }
}

void OperandWhatIf::RescaleHead(std::size_t point, double scale) {
  const double factor = scale / std::exchange(head_scales_[point], scale);
  if (factor != 1) of_heads_[point] = of_heads_[point].Rescaled(factor);
}

void OperandWhatIf::EndMicroBatch(const step::MicroBatch&) {
  const auto& points = graph_.judged_operands();
  for (std::size_t i = 0; i < points.size(); ++i) {
    RescaleHead(i, points[i].scale != nullptr ? static_cast<double>(*points[i].scale) : 1);
    of_heads_[i].Add(*points[i].counts);
  }
}

// Collective: the counts become those of all processes, at the scales of the first.
void OperandWhatIf::Join() {
  std::vector<double> scales;
  for (const Matmul& matmul : matmuls_) scales.push_back(matmul.scale);
  scales = parallel::GatherAll(team_.all(), scales);
  for (std::size_t p = 0; p < matmuls_.size(); ++p) Rescale(p, scales[p]);
  scales = parallel::GatherAll(team_.all(), head_scales_);
  for (std::size_t i = 0; i < of_heads_.size(); ++i) RescaleHead(i, scales[i]);
  for (std::vector<BlockCounts>* const of : {&counts_, &of_heads_}) {
    const std::vector<BlockCounts> all = parallel::GatherAll(team_.all(), *of);
    for (std::size_t i = 0; i < of->size(); ++i) {
      (*of)[i] = BlockCounts();
      for (std::size_t at = i; at < all.size(); at += of->size()) (*of)[i].Add(all[at]);
    }
  }
}

telemetry::WhatIfBlockRow OperandWhatIf::RowOf(std::size_t asked, const std::string& layer,
                                               const char* tensor, double scale,
                                               const BlockCounts& counts) const {
  telemetry::WhatIfBlockRow row;
  row.Take(counts);
  row.layer = layer, row.tensor = tensor;
  row.scenario = asked_[asked].scenario, row.format = FormatName(asked_[asked].format);
  row.scale = CarriesS(row.tensor) ? scale : 1;
  return row;
}

// Rows are made in the order of entries, layers and operands.
void OperandWhatIf::End() {
  Join();
  rows_.clear();
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    for (std::size_t p = 0; p < matmuls_.size(); ++p) {
      for (std::size_t o = 0; o < kOperands; ++o) {
        const auto operand = static_cast<Operand>(o);
        if (!Exists(matmuls_[p], operand)) continue;
        rows_.push_back(RowOf(i, matmuls_[p].layer, NameOf(operand), matmuls_[p].scale,
                              CountsOf(i, p, operand)));
      }
    }
    // A backend that counts none leaves no values.
    for (std::size_t p = 0; p < of_heads_.size(); ++p) {
      const graph::JudgedOperandPoint& point = graph_.judged_operands()[p];
      if (point.format == i && of_heads_[p].numel > 0)
        rows_.push_back(
            RowOf(i, point.layer, NameOf(point.operand), head_scales_[p], of_heads_[p]));
    }
  }
}

}  // namespace ada::record

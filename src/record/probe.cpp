// The run's tensors of a micro-batch are kept, then the fp32 graph runs the same
// images and each of its tensors is compared when it appears.
#include "record/probe.h"

#include <cmath>

#include "io/tensor_names.h"
#include "io/text.h"
#include "parallel/gradient_sums.h"
#include "step/specs.h"
#include "step/step_observer.h"
#include "step/weight_values.h"

namespace ada::record {
namespace {

// The training graph in fp32: the same layers, fused in the same way, so that its tensors appear
// under the same names and in the same order.
graph::GraphSpec Fp32Graph(const config::Config& config, const Shape& image,
                           const step::Team& team) {
  graph::GraphSpec spec = step::EvaluationGraph(config, image);
  spec.precision = graph::Precision{};
  spec.precision.base = {kFp32, kFp32, kFp32, kFp32};
  step::TakeTrainingLoss(config, spec);
  spec.input.n = team.LargestShare(config.data.batch_size / config.train.accumulate);
  spec.training = true;
  spec.fuse = !step::WatchesEverything(config);
  spec.recompute = !step::ProbesGradients(config);
  return spec;
}

bool IsStatistic(const graph::Parameter& parameter) { return !parameter.gradient; }

}  // namespace

// Observes the fp32 graph.
class Probe::Fp32Observer : public graph::TensorObserver {
 public:
  explicit Fp32Observer(Probe& probe) : probe_(probe) {}
  void Observe(const graph::ObservedTensor& seen, const backend::Pass& pass) override {
    probe_.Compare(seen, pass);
  }

 private:
  Probe& probe_;
};

// `lost` counts what is zero in the run although it is not in fp32.
void Probe::Sums::Add(double run, double reference) {
  const double error = run - reference;
  nonzero += reference != 0;
  lost += reference != 0 && run == 0;
  error_square += error * error;
  fp32_square += reference * reference;
  run_square += run * run;
  product += run * reference;
}

void Probe::Sums::Add(const Sums& more) {
  numel += more.numel, nonzero += more.nonzero, lost += more.lost;
  error_square += more.error_square, fp32_square += more.fp32_square;
  run_square += more.run_square, product += more.product;
}

// With sums of zero, ratios without a meaning are NaN, and ratios without any error are
// infinite.
void Probe::Sums::Fill(telemetry::ProbeRow& row) const {
  const auto n = static_cast<double>(numel);
  row.numel = numel, row.nonzero = nonzero, row.lost = lost;
  row.mse = error_square / n;
  row.sqnr_db = 10 * std::log10(fp32_square / error_square);
  if (error_square == 0) row.sqnr_db = INFINITY;
  row.cosine = product / std::sqrt(run_square * fp32_square);
  if (IsGradient(row.tensor)) row.norm_over_noise = std::sqrt(fp32_square / error_square);
}

Probe::Probe(const config::Config& config, const Shape& image, graph::Graph& graph,
             backend::Backend& backend, step::Team& team)
    : config_(config),
      graph_(graph),
      backend_(backend),
      team_(team),
      fp32_(graph::Graph::Build(Fp32Graph(config, image, team), backend, &graph)),
      fp32_observer_(std::make_unique<Fp32Observer>(*this)) {}
Probe::~Probe() = default;

bool Probe::Due(std::int64_t step) const { return step::IsDue(config_.log.probe_every, step); }

bool Probe::Wants(const std::string& tensor) const {
  return Contains(config_.log.statistics, StatisticOf(tensor));
}

// The copies of weights of the fp32 graph are made from the shared masters, before the run's update
// moves them.
void Probe::Begin(std::int64_t /*step*/, const backend::Pass& pass) {
  first_pass_ = pass;
  sums_.clear();
  rows_.clear();
  backend::Pass fp32 = pass;
  fp32.count = fp32.bins = false;
  fp32_->RefreshWeights(fp32);
}

// Values are kept with their scale; memory grows with the tensors of a micro-batch, until
// EndMicroBatch compares and frees them.
void Probe::Observe(const graph::ObservedTensor& seen, const backend::Pass& pass) {
  if (!seen.rounded || !Wants(seen.tensor)) return;
  TensorCopy& kept = copies_[{seen.layer, seen.tensor}];
  kept.values.resize(static_cast<std::size_t>(pass.rows * seen.value.shape.per_image()));
  backend_.Read(seen.value, pass.rows, kept.values.data());
  kept.scale = seen.scale != nullptr ? *seen.scale : 1.0f;
}

// The same random draws (Pass::draw) give the same dropout. Running statistics are shared with the
// run's graph, and a second forward pass would move them twice.
void Probe::EndMicroBatch(const step::MicroBatch& batch) {
  backend::Pass pass = batch.pass;
  pass.count = pass.bins = false;
  pass.loss_scale = 1;
  SaveStatistics();
  const step::Batches::Rows& rows = batch.rows;
  if (rows.tokens != nullptr)
    fp32_->SetTokens(rows.tokens, rows.targets, pass.rows);
  else
    fp32_->SetBatch(rows.images, rows.targets, pass.rows);
  fp32_->Forward(pass, fp32_observer_.get());
  fp32_->Backward(pass, fp32_observer_.get());
  RestoreStatistics();
  copies_.clear();
}

void Probe::Compare(const graph::ObservedTensor& seen, const backend::Pass& pass) {
  if (!seen.rounded) return;
  const auto found = copies_.find({seen.layer, seen.tensor});
  if (found == copies_.end()) return;
  const TensorCopy& run = found->second;
  std::vector<float> reference(run.values.size());
  backend_.Read(seen.value, pass.rows, reference.data());
  Sums& sums = sums_[found->first];
  sums.numel += static_cast<std::int64_t>(reference.size());
  const double scale = run.scale;
  for (std::size_t i = 0; i < reference.size(); ++i)
    sums.Add(static_cast<double>(run.values[i]) / scale, reference[i]);
  copies_.erase(found);
}

// w against the master, dw against the fp32 graph's.
void Probe::CompareParameters(const graph::RoundingPoint& point, Sums& sums) {
  const graph::Parameter* weight = step::WeightOf(graph_, point.layer);
  const bool w = point.tensor == "w";
  const graph::Parameter* fp32_weight = step::WeightOf(*fp32_, point.layer);
  const bool stochastic = config::IsStochastic(config_.precision.rounding);
  const std::vector<float> run =
      w ? step::RoundedWeights(*weight, point, stochastic, first_pass_, backend_)
        : step::HostValues(weight->gradient, backend_);
  std::vector<float> reference =
      step::HostValues(w ? weight->value : fp32_weight->gradient, backend_);
  // Each process has a part of the fp32 graph's gradients; the run's are sums already.
  if (!w) parallel::SumOverRanks(team_.world().small(), reference);
  sums.numel = static_cast<std::int64_t>(reference.size());
  for (std::size_t i = 0; i < reference.size(); ++i) sums.Add(run[i], reference[i]);
}

// Sums of tensors of the batch, in the order of processes.
// All processes have the same names in the same order, since std::map sorts them.
void Probe::JoinSums() {
  std::vector<Sums> mine;
  for (const auto& item : sums_) mine.push_back(item.second);
  const std::vector<Sums> all = parallel::GatherAll(team_.all(), mine);
  std::size_t place = 0;
  for (auto& item : sums_) {
    item.second = Sums();
    for (std::size_t at = place; at < all.size(); at += mine.size()) item.second.Add(all[at]);
    ++place;
  }
}

void Probe::End() {
  JoinSums();
  for (const graph::RoundingPoint& point : graph_.roundings()) {
    // The images are the same on both sides.
    if (!Wants(point.tensor) || point.layer == "input") continue;
    // What exists only within an op, such as attention's p or an operand, is not compared.
    const bool of_parameter = point.tensor == "w" || point.tensor == "dw";
    if (!of_parameter && !sums_.contains({point.layer, point.tensor})) continue;
    Sums& sums = sums_[{point.layer, point.tensor}];
    if (of_parameter) CompareParameters(point, sums);
    telemetry::ProbeRow row;
    row.layer = point.layer, row.tensor = point.tensor;
    row.format = FormatName(point.format);
    row.scale = point.total_scale();
    sums.Fill(row);
    rows_.push_back(std::move(row));
  }
}

void Probe::SaveStatistics() {
  statistics_.clear();
  for (const graph::Parameter& p : graph_.parameters())
    if (IsStatistic(p)) statistics_.push_back(step::HostValues(p.value, backend_));
}

void Probe::RestoreStatistics() {
  std::size_t next = 0;
  for (const graph::Parameter& p : graph_.parameters())
    if (IsStatistic(p)) backend_.Upload(p.value.data, statistics_[next++].data(), p.value.bytes());
}

}  // namespace ada::record

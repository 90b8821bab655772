// One step of training with a scaled loss, as DESIGN's "One step" tells it.
#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "train/assemble.h"
#include "train/scaling_config.h"

namespace ada::train {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Trainer::Trainer(const config::Config& config, graph::Graph& graph, data::Loader& loader,
                 scaling::Policy& policy, optim::Optimizer& optimizer, StepLog& log,
                 std::vector<Onlooker*> onlookers, std::int64_t total_steps)
    : config_(config),
      graph_(graph),
      loader_(loader),
      policy_(policy),
      optimizer_(optimizer),
      log_(log),
      onlookers_(std::move(onlookers)),
      schedule_(MakeSchedule(config)),
      steps_per_epoch_(loader.batches_per_epoch()),
      total_steps_(total_steps),
      retry_(MaxRetries(config.train)),
      sanitize_limit_(config.precision.gradients.value_or(config.precision.format).largest()),
      tensor_amax_(graph.scaled_tensors().size()) {}

StepResult Trainer::Step() {
  StepResult r;
  r.step = ++step_;
  r.epoch = (step_ - 1) / steps_per_epoch_ + 1;
  r.logged = log_.Logs(step_);
  r.scale = policy_.Scale();
  wishes_ = policy_.NextWishes();
  lap_start_ = Now();

  // 1. A batch, and the low-precision copies of the weights that it meets.
  const data::Batch& batch = loader_.Next();
  Lap(seconds_.data);
  const backend::Pass pass = MakePass(r);
  if (weights_changed_ || pass.count || r.logged || !tensor_amax_.empty())
    graph_.RefreshWeights(pass);
  weights_changed_ = false;
  onlookers_.Begin(step_, pass);

  // 2. Forward, loss and backward, with the logit gradient multiplied by S.
  BeforeBackward();
  const backend::LossResult loss = Gradients(batch, pass);
  r.images = batch.rows;
  r.loss = loss.loss_sum / batch.rows;
  r.accuracy = static_cast<double>(loss.top1) / batch.rows;

  // 3. Tell the policy how the attempt ended: it decides what becomes of it.
  const bool hold = config_.train.schedule_on_skip == config::ScheduleOnSkip::kHold;
  r.lr = optim::LearningRate(schedule_, hold ? optimizer_.updates() : schedule_steps_,
                             steps_per_epoch_, total_steps_);
  r.grad_norm = optimizer_.GradientNorm();
  r.overflow = !std::isfinite(r.grad_norm);
  const scaling::Verdict verdict = policy_.Update(AttemptOf(r));

  // 4. Update the masters, or leave them, and write down what happened and why.
  Finish(r, verdict);
  Lap(seconds_.update);
  log_.Write(r, verdict);
  UpdateTensorScales();
  Lap(seconds_.log);
  return r;
}

backend::Pass Trainer::MakePass(const StepResult& result) const {
  backend::Pass pass;
  pass.bins = log_.TakesHistograms(step_);
  pass.count = log_.Counts(step_) || wishes_.edge > 0;
  if (wishes_.edge > 0) pass.edge = wishes_.edge;
  pass.init_scale = static_cast<float>(result.scale);
  pass.seed = config_.seed;
  pass.draw = static_cast<std::uint64_t>((step_ - 1) * config_.train.accumulate);
  return pass;
}

// Layers whose scale is a state machine of the policy get it for this attempt.
void Trainer::BeforeBackward() {
  if (!wishes_.layers) return;
  for (const graph::ScalePoint& point : graph_.scales())
    if (point.scaler != nullptr)
      point.scaler->state.own_scale = static_cast<float>(policy_.LayerScale(point.layer));
}

// All micro-batches of a batch: gradients of the mean loss over its rows.
backend::LossResult Trainer::Gradients(const data::Batch& batch, backend::Pass pass) {
  const int micro = config_.data.batch_size / config_.train.accumulate;
  const auto per_image = static_cast<std::int64_t>(batch.images.size()) / batch.rows;
  backend::LossResult total;
  pass.loss_rows = batch.rows;
  for (int first = 0; first < batch.rows; first += micro, ++pass.draw) {
    pass.rows = std::min(micro, batch.rows - first);
    pass.accumulate = first > 0;
    const MicroBatch part{batch.images.data() + first * per_image, batch.labels.data() + first,
                          pass};
    graph_.SetBatch(part.images, part.labels, pass.rows);
    graph_.Forward(pass, onlookers_.watcher());
    Lap(seconds_.forward);
    const backend::LossResult loss = graph_.Result();
    total.loss_sum += loss.loss_sum;
    total.top1 += loss.top1;
    total.top5 += loss.top5;
    graph_.Backward(pass, onlookers_.watcher());
    if (config_.train.accumulate > 1) log_.AddMicroBatch(pass);
    ObserveTensorScales(/*first=*/first == 0);
    Lap(seconds_.backward);
    onlookers_.EndMicroBatch(part);
    Lap(seconds_.log);
  }
  onlookers_.End();
  Lap(seconds_.log);
  return total;
}

// Largest unscaled magnitude of each tensor with a scale of its own; a NaN stays.
void Trainer::ObserveTensorScales(bool first) {
  const auto& tensors = graph_.scaled_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const float amax = tensors[i].stats->max_abs / tensors[i].scaler->scale;
    float& largest = tensor_amax_[i];
    if (first || std::isnan(amax) || amax > largest) largest = amax;
  }
}

scaling::Attempt Trainer::AttemptOf(const StepResult& result) {
  scaling::Attempt attempt;
  attempt.overflow = result.overflow;
  if (wishes_.amax) attempt.amax = static_cast<double>(optimizer_.LargestGradient());
  if (wishes_.edge > 0) log_.CountEdge(attempt);
  if (wishes_.layers) log_.NoteLayers(attempt);
  return attempt;
}

void Trainer::Finish(StepResult& r, const scaling::Verdict& verdict) {
  r.error = verdict.error.empty() ? log_.DecisionErrors() : verdict.error;
  r.skipped = verdict.action == scaling::Action::kSkip;
  if (verdict.action == scaling::Action::kSanitize && r.overflow) {
    optimizer_.Sanitize(static_cast<float>(sanitize_limit_ / r.scale));
    r.sanitized = true;
  }
  if (!r.skipped) optimizer_.Apply(r.lr);
  weights_changed_ = !r.skipped;
  r.retried = retry_.Next(r.skipped);
  if (!r.retried) ++schedule_steps_;
  skips_in_a_row_ = r.skipped ? skips_in_a_row_ + 1 : 0;
}

void Trainer::UpdateTensorScales() {
  const auto& tensors = graph_.scaled_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i)
    scaling::UpdateTensorScale(*tensors[i].scaler, tensor_amax_[i]);
}

void Trainer::Lap(double& phase) {
  const double now = Now();
  phase += now - std::exchange(lap_start_, now);
}

PhaseSeconds Trainer::TakeSeconds() { return std::exchange(seconds_, PhaseSeconds{}); }

void Trainer::Resume(const Position& position) {
  step_ = position.step;
  skips_in_a_row_ = position.skips_in_a_row;
  schedule_steps_ = position.schedule_steps;
  retry_.Restore(position.retries);
  loader_.Seek(step_ / steps_per_epoch_, step_ % steps_per_epoch_);
}

}  // namespace ada::train

// One step of training with a scaled loss, as DESIGN's "One step" tells it.
#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "train/assemble.h"

namespace ada::train {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Trainer::Trainer(const config::Config& config, graph::Graph& graph, data::Loader& loader,
                 scaling::Policy& policy, optim::Optimizer& optimizer, StepLog& log,
                 std::int64_t total_steps)
    : config_(config),
      graph_(graph),
      loader_(loader),
      policy_(policy),
      optimizer_(optimizer),
      log_(log),
      schedule_(MakeSchedule(config)),
      steps_per_epoch_(loader.batches_per_epoch()),
      total_steps_(total_steps) {}

StepResult Trainer::Step() {
  StepResult r;
  r.step = ++step_;
  r.epoch = (step_ - 1) / steps_per_epoch_ + 1;
  r.logged = log_.Logs(step_);
  lap_start_ = Now();

  // 1. A batch, and the low-precision copies of the weights that it meets.
  const data::Batch& batch = loader_.Next();
  Lap(seconds_.data);
  const bool count = log_.Counts(step_);
  if (weights_changed_ || count) graph_.RefreshWeights(count);
  weights_changed_ = false;

  // 2. Forward, loss and backward, with the logit gradient multiplied by S.
  r.scale = policy_.Scale();
  const backend::LossResult loss = Gradients(batch, r);
  r.images = batch.rows;
  r.loss = loss.loss_sum / batch.rows;
  r.accuracy = static_cast<double>(loss.top1) / batch.rows;

  // 3. Update the masters, or skip the step where a gradient is not finite.
  const bool hold = config_.train.schedule_on_skip == config::ScheduleOnSkip::kHold;
  r.lr = optim::LearningRate(schedule_, hold ? optimizer_.updates() : step_ - 1, steps_per_epoch_,
                             total_steps_);
  const optim::StepOutcome outcome = optimizer_.Step(r.lr);
  r.grad_norm = outcome.grad_norm;
  r.overflow = r.skipped = !outcome.finite;
  weights_changed_ = outcome.finite;
  skips_in_a_row_ = r.skipped ? skips_in_a_row_ + 1 : 0;
  Lap(seconds_.update);

  // 4. Tell the policy, and write down what happened and why.
  const scaling::ScaleChange change = policy_.Update(r.overflow);
  log_.Write(r, change);
  Lap(seconds_.log);
  return r;
}

// All micro-batches of a batch: gradients of the mean loss over its rows.
backend::LossResult Trainer::Gradients(const data::Batch& batch, const StepResult& result) {
  const int micro = config_.data.batch_size / config_.train.accumulate;
  const auto per_image = static_cast<std::int64_t>(batch.images.size()) / batch.rows;
  backend::LossResult total;
  backend::Pass pass;
  pass.count = log_.Counts(step_);
  pass.loss_rows = batch.rows;
  pass.init_scale = static_cast<float>(result.scale);
  pass.seed = config_.seed;
  for (int first = 0; first < batch.rows; first += micro) {
    pass.rows = std::min(micro, batch.rows - first);
    pass.accumulate = first > 0;
    pass.draw = static_cast<std::uint64_t>((step_ - 1) * config_.train.accumulate + first / micro);
    graph_.SetBatch(batch.images.data() + first * per_image, batch.labels.data() + first,
                    pass.rows);
    graph_.Forward(pass);
    Lap(seconds_.forward);
    const backend::LossResult loss = graph_.Result();
    total.loss_sum += loss.loss_sum;
    total.top1 += loss.top1;
    total.top5 += loss.top5;
    graph_.Backward(pass);
    if (config_.train.accumulate > 1) log_.AddMicroBatch(/*first=*/first == 0);
    Lap(seconds_.backward);
  }
  return total;
}

void Trainer::Lap(double& phase) {
  const double now = Now();
  phase += now - std::exchange(lap_start_, now);
}

PhaseSeconds Trainer::TakeSeconds() { return std::exchange(seconds_, PhaseSeconds{}); }

void Trainer::Resume(std::int64_t step, std::int64_t skips_in_a_row) {
  step_ = step;
  skips_in_a_row_ = skips_in_a_row;
  loader_.Seek(step / steps_per_epoch_, step % steps_per_epoch_);
}

}  // namespace ada::train

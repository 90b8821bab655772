// One step of training with a scaled loss (src/README.md, "One step").
#include "step/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "config/load.h"
#include "error.h"
#include "io/run_in_parallel.h"
#include "step/specs.h"

namespace ada::step {

Trainer::Trainer(const config::Config& config, graph::Graph& graph, Batches& batches,
                 scaling::Policy& policy, optim::Optimizer& optimizer, AttemptLog& log,
                 std::vector<StepObserver*> observers, std::int64_t total_steps,
                 DistributedGradients& distributed, Team& team)
    : config_(config),
      graph_(graph),
      batches_(batches),
      policy_(policy),
      optimizer_(optimizer),
      log_(log),
      schedule_(config),
      observers_(std::move(observers)),
      counts_(graph),
      facts_(graph, counts_),
      distributed_(distributed),
      accumulated_(config, distributed),
      team_(team),
      steps_per_epoch_(batches.batches_per_epoch()),
      total_steps_(total_steps),
      retry_(config::MaxRetries(config.train)),
      sanitize_limit_(config.precision.gradients.value_or(config.precision.format).largest()),
      tensor_scales_(graph, optimizer) {}

StepResult Trainer::Step() {
  Attempt attempt(counts_);
  StepResult& r = attempt.result;
  r.step = ++step_;
  r.epoch = (step_ - 1) / steps_per_epoch_ + 1;
  r.logged = schedule_.Logs(step_);
  r.scale = policy_.Scale();
  request_ = policy_.RequiredStats();
  const bool hold = config_.train.schedule_on_skip == config::ScheduleOnSkip::kHold;
  const std::int64_t at = (hold ? optimizer_.updates() : schedule_steps_) - set_back_;
  r.lr = optim::LearningRate(config_.schedule, config_.optimizer.lr, at, steps_per_epoch_,
                             total_steps_);
  r.rate_moves = optim::MovesEachStep(config_.schedule, at, steps_per_epoch_);
  clock_.Start();

  // 1. Get a batch, and round the copies of the weights that it will be multiplied with.
  batches_.Next();
  r.images = batches_.whole_rows();
  clock_.Lap(&PhaseSeconds::data);
  const backend::Pass pass = MakePass(r);
  attempt.measured = tensor_scales_.Measure(distributed_.backend());
  wants_scalers_ = r.logged || policy_.FollowsReference();
  observers_.Choose(step_);
  runs_as_one_ =
      observers_.active() == nullptr && !distributed_.on_host() && !accumulated_.active();
  // Copies are made again after a skipped step too: stochastic rounding draws anew in each step,
  // and a step that is resumed or logged rounds like any other.
  if (!runs_as_one_) graph_.RefreshWeights(pass);
  observers_.Begin(step_, pass);

  // 2. Forward, loss and backward, with the logit gradient multiplied by S. What the update has to
  // do is known beforehand: the policy has already decided what follows an overflow.
  SendLayerScales();
  plan_ = PlanFor(r, policy_.OnOverflow());
  optimizer_.Plan(plan_);
  Gradients(r.images, pass);

  // 3. Update the masters, or leave them. The policy is told how the attempt ended.
  Update(attempt, pass);
  Finish(attempt);
  clock_.Lap(&PhaseSeconds::update);

  // 4. Write down what happened and why.
  observers_.Conclude(log_.Write(attempt));
  tensor_scales_.Update(r.skipped ? 0 : r.lr);
  clock_.Lap(&PhaseSeconds::log);
  return r;
}

// Fills the fields of the pass that all micro-batches share. `draw` numbers micro-batches over the
// whole run, so that stochastic rounding and dropout differ from one to the next and are the same
// when a run is resumed.
backend::Pass Trainer::MakePass(const StepResult& result) const {
  backend::Pass pass;
  pass.bins = schedule_.TakesHistograms(step_);
  pass.count = schedule_.Counts(step_) || request_.edge > 0;
  if (request_.edge > 0) pass.edge = request_.edge;
  pass.loss_scale = static_cast<float>(result.scale);
  pass.part = distributed_.are_parts();
  pass.seed = config_.seed;
  pass.draw = static_cast<std::uint64_t>((step_ - 1) * config_.train.accumulate);
  return pass;
}

// Sends the layers' scales to the backend, where the policy keeps one for each layer and one of
// them has changed. The rest of each scaler is fetched first, because ops have written it.
void Trainer::SendLayerScales() {
  if (!request_.layers) return;
  const auto scale_of = [&](const graph::ScalePoint& point) {
    return static_cast<float>(policy_.LayerScale(point.layer));
  };
  const std::vector<graph::ScalePoint>& points = graph_.scales();
  const bool moved = std::any_of(points.begin(), points.end(), [&](const graph::ScalePoint& point) {
    return point.scaler != nullptr && !(point.scaler->state.state_scale == scale_of(point));
  });
  if (!moved) return;
  graph_.CollectLayerScalers();
  for (const graph::ScalePoint& point : points)
    if (point.scaler != nullptr) point.scaler->state.state_scale = scale_of(point);
  graph_.SendLayerScalers();
}

// Computes the gradients of the mean loss over a batch of `rows` images, one micro-batch after the
// other. Waits for each one if an observer is active or counts are added up. Where several
// processes share the batch, each computes its part of every micro-batch.
void Trainer::Gradients(int rows, backend::Pass pass) {
  const int micro = config_.data.batch_size / config_.train.accumulate;
  const bool several = config_.train.accumulate > 1;
  const std::vector<std::int64_t> terms = parallel::GatherAll(team_.all(), batches_.terms());
  terms_ = std::accumulate(terms.begin(), terms.end(), std::int64_t{0});
  pass.loss_terms = terms_;
  // This process's share of the batch: the weight of its running statistics when those of several
  // processes are averaged.
  pass.share = static_cast<float>(static_cast<double>(batches_.rows()) /
                                  static_cast<double>(batches_.whole_rows()));
  distributed_.Begin(pass.loss_scale);
  int fed = 0;
  for (int first = 0; first < rows; first += micro, ++pass.draw) {
    const int whole = std::min(micro, rows - first);
    const bool last = first + whole == rows;
    const ada::Share part = team_.ShareOf(whole);
    pass.rows = static_cast<int>(part.count);
    pass.first_row = part.first;
    pass.whole_rows = whole;
    pass.accumulate = first > 0;
    const Batches::Rows seen = batches_.Feed(graph_, fed, pass.rows);
    fed += pass.rows;
    Work(pass, last);
    if (accumulated_.active()) {
      accumulated_.Take(pass, last);
      if (last) distributed_.ReduceAll();
    }
    joined_ = false;
    const bool summed =
        last && distributed_.FinishOnHost(pass, batches_.rows(), batches_.whole_rows());
    if (last && accumulated_.active()) halved_ = accumulated_.MoveScales(step_);
    // Otherwise Update collects the counts, after it has asked the optimizer to work, so that the
    // host waits for the device only once a step.
    if (summed || several || observers_.active() != nullptr) JoinCounts(pass);
    if (request_.layers && !runs_as_one_) optimizer_.CheckWatched();
    if (several) counts_.Add(pass, accumulated_.active());
    if (several) tensor_scales_.Observe(/*first=*/first == 0);
    clock_.Lap(&PhaseSeconds::backward);
    observers_.EndMicroBatch({seen, pass});
    clock_.Lap(&PhaseSeconds::log);
  }
  observers_.End();
  clock_.Lap(&PhaseSeconds::log);
}

// Asks for all of a micro-batch that the host need not look at: both passes and, where nobody reads
// results in between (runs_as_one_), the weight refresh before them and the update after the last
// one. A device may replay all of it as one unit; then no lap is measured in between.
void Trainer::Work(const backend::Pass& pass, bool last) {
  // Only the last micro-batch hands its gradients to the sum: until then they are accumulated in
  // place, and a sum would count them twice. Where the host adds them up, it hands them over.
  graph::GradientReducer* const reducer =
      last && !accumulated_.active() ? distributed_.reducer() : nullptr;
  if (!runs_as_one_) {
    graph_.Forward(pass, observers_.active());
    clock_.Lap(&PhaseSeconds::forward);
    graph_.Backward(pass, observers_.active(), reducer);
    return;
  }
  graph::Graph::MicroBatch batch;
  batch.refreshes = !pass.accumulate;  // once a batch
  batch.reducer = reducer;
  if (request_.layers) batch.check = [this] { optimizer_.CheckWatched(); };
  if (last) batch.update = PlannedUpdate();
  batch.after = [this](graph::Graph::Stage stage) {
    using enum graph::Graph::Stage;
    clock_.Lap(stage == kForward    ? &PhaseSeconds::forward
               : stage == kBackward ? &PhaseSeconds::backward
                                    : &PhaseSeconds::update);
  };
  graph_.RunMicroBatch(pass, batch);
}

graph::Graph::Update Trainer::PlannedUpdate() {
  return {plan_.kind(), [this] { optimizer_.Update(); }};
}

// Asks for the update alone, which a device may replay as a unit of its own.
void Trainer::AskForUpdate(const backend::Pass& pass) {
  graph_.RunUpdate(pass, PlannedUpdate());
  clock_.Lap(&PhaseSeconds::update);
}

// Replaces the counts by those of all processes, once a pass: fetching again would undo it.
void Trainer::JoinCounts(const backend::Pass& pass) {
  if (std::exchange(joined_, true)) return;
  graph_.Collect(pass, {.counts = true, .scalers = wants_scalers_});
  graph_.Join(team_.all(), pass);
}

// Whether the host needs to know more about the attempt than the outcome of its update.
bool Trainer::WantsCounts(const StepResult& r, const backend::Pass& pass) const {
  return r.logged || pass.count || request_.layers || !tensor_scales_.empty();
}

// Asks for everything that is still to be done, then waits for it, once a step. What the policy
// then decides must be what the optimizer has done.
void Trainer::Update(Attempt& attempt, const backend::Pass& pass) {
  StepResult& r = attempt.result;
  if (!runs_as_one_) AskForUpdate(pass);
  const ada::Share part = team_.ShareOf(config_.data.batch_size / config_.train.accumulate);
  // The next batch is transferred to the device while that still works on this one.
  batches_.SendAhead(graph_, static_cast<int>(part.count));
  clock_.Lap(&PhaseSeconds::data);
  if (WantsCounts(r, pass)) JoinCounts(pass);
  if (!joined_) graph_.Collect(pass, {.counts = false, .scalers = wants_scalers_});
  const backend::UpdateOutcome outcome = optimizer_.Outcome();
  if (schedule_.CountsUpdates(step_)) attempt.kept = optimizer_.Stats();
  if (distributed_.narrow() && r.logged) attempt.transport = distributed_.LostInTransport();
  if (accumulated_.active() && r.logged && pass.count) attempt.accumulated = accumulated_.Lost();
  attempt.halved = std::move(halved_);
  attempt.update = policy_.Update(OutcomeOf(r, outcome, pass));
  ADA_CHECK((attempt.update.action != scaling::Action::kSkip) == outcome.updated);
}

backend::UpdatePlan Trainer::PlanFor(const StepResult& r, scaling::Action on_overflow) const {
  backend::UpdatePlan plan;
  plan.step.lr = r.lr, plan.step.seed = config_.seed;
  plan.largest = request_.amax, plan.count = schedule_.CountsUpdates(step_);
  if (on_overflow != scaling::Action::kSanitize) return plan;
  const scaling::OverflowRepair& repair = config_.scaling.on_overflow;
  if (repair.action == scaling::OverflowRepair::Action::kSanitize) {
    AddRepair(repair, r.scale, plan);
    return plan;
  }
  plan.on_overflow = backend::UpdatePlan::OnOverflow::kSanitize;
  // The largest value of the scaled gradients' format, divided by S, but at most the largest value
  // of fp32, which is the type of weight gradients.
  plan.sanitize_to = static_cast<float>(std::clamp<double>(sanitize_limit_ / r.scale,
                                                           std::numeric_limits<float>::denorm_min(),
                                                           std::numeric_limits<float>::max()));
  return plan;
}

// Adds up the losses of all processes, in the order of their ranks.
backend::LossResult Trainer::Loss() {
  backend::LossResult loss;
  for (const backend::LossResult& part : parallel::GatherAll(team_.all(), graph_.Result()))
    loss.Add(part);
  return loss;
}

// Called when all work of the attempt is done. Fills the result with loss, accuracy and norm, and
// returns the facts that the policy decides by.
scaling::StepOutcome Trainer::OutcomeOf(StepResult& r, const backend::UpdateOutcome& outcome,
                                        const backend::Pass& pass) {
  const backend::LossResult loss = Loss();
  clock_.Lap(&PhaseSeconds::backward);
  if (config_.train.accumulate == 1) tensor_scales_.Observe(/*first=*/true);
  r.terms = terms_;
  // Avoids a division by zero for a batch in which no label counts.
  const double terms = static_cast<double>(std::max<std::int64_t>(r.terms, 1));
  r.loss = loss.loss_sum / terms;
  r.location_loss = loss.location_sum / terms;
  r.accuracy = static_cast<double>(loss.top1) / terms;
  r.grad_norm = outcome.norm;
  // Where a mask keeps an overflow of dx out of every weight gradient, only the watch has seen it.
  r.overflow = outcome.overflow || outcome.watched;
  // Counts tell which tensor overflowed first. Norm and loss are the same in all processes.
  if (r.overflow || !std::isfinite(r.loss)) JoinCounts(pass);
  scaling::StepOutcome attempt;
  attempt.overflow = outcome.overflow;
  if (request_.amax) attempt.amax = static_cast<double>(outcome.largest);
  facts_.Fill(request_, attempt);
  return attempt;
}

// Completes the result with what the policy decided. A retried attempt does not advance the
// schedule, so that the same update is tried again with the same learning rate.
void Trainer::Finish(Attempt& attempt) {
  StepResult& r = attempt.result;
  const scaling::ScaleUpdate& update = attempt.update;
  if (r.overflow || !std::isfinite(r.loss)) r.not_finite = facts_.FirstNotFinite();
  r.error = update.error.empty() ? facts_.DecisionErrors() : update.error;
  r.skipped = update.action == scaling::Action::kSkip;
  r.sanitized = update.action == scaling::Action::kSanitize && r.overflow;
  r.retried = retry_.Next(r.skipped);
  if (!r.retried) ++schedule_steps_;
  skips_in_a_row_ = r.skipped ? skips_in_a_row_ + 1 : 0;
}

void Trainer::Resume(const Position& position,
                     const std::map<std::string, scaling::StateMap>& tensors) {
  accumulated_.LoadScales(tensors);
  step_ = position.step;
  skips_in_a_row_ = position.skips_in_a_row;
  schedule_steps_ = position.schedule_steps;
  set_back_ = position.set_back;
  retry_.Restore(position.retries);
  batches_.Seek(step_ / steps_per_epoch_, step_ % steps_per_epoch_);
}

}  // namespace ada::step

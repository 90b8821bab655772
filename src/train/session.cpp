// The loop of a run; see session.h.
#include "train/session.h"

#include <cstdio>

#include "core/error.h"
#include "core/file.h"
#include "train/run.h"

namespace ada::train {

int Session::Run() {
  TellNewRemarks();
  const bool may_reside = p_.graph.label_memory() != nullptr && p_.config.log.probe_every == 0;
  if (may_reside && !batches_.resident())
    p_.log.Info(
        "training images stay on the host: they would take more than half of the device's "
        "free memory");
  const End end = Loop();
  if (end == End::kFinished || end == End::kTime) {
    // The evaluation at the end stands behind what the checkpoint records: a run that is extended
    // later has it only where an undisturbed one would.
    if (checkpoint_step_ != trainer_.steps()) Checkpoint();
    if (evaluated_step_ != trainer_.steps()) EvaluateAll();
    recorder_.Sync();
    progress_.Clear();
    Summarise(end == End::kFinished ? telemetry::RunStatus::kFinished
                                    : telemetry::RunStatus::kStopped);
    return 0;
  }
  if (checkpoint_step_ != trainer_.steps()) Checkpoint();
  progress_.Clear();
  if (end != End::kSignal) FailTraining(end);
  Summarise(telemetry::RunStatus::kInterrupted);
  p_.log.Info("stopped by signal " + std::to_string(signals_.signal()) + " after step " +
              std::to_string(trainer_.steps()) + "; go on with --resume");
  return 128 + signals_.signal();
}

void Session::FailTraining(End end) {
  Summarise(telemetry::RunStatus::kStopped);
  if (end == End::kPolicy)
    throw TrainingError("stopped by policy " + std::string(p_.policy.name()) + " at step " +
                        std::to_string(trainer_.steps()) + ": " + policy_end_);
  throw TrainingError(
      "stopped: " + std::to_string(trainer_.skips_in_a_row()) +
      " steps in a row were skipped at step " + std::to_string(trainer_.steps()) +
      " (train.stop_after_skips: " + std::to_string(p_.config.train.stop_after_skips) +
      "); gradients overflow at every scale tried: events.csv names the first layer. Try a smaller "
      "scale (scaling.scale, scaling.init_scale), a smaller optimizer.lr, or a format with more "
      "range");
}

Session::End Session::Loop() {
  const double limit = p_.config.train.max_minutes * 60;
  while (trainer_.steps() < total_steps_) {
    const StepResult r = trainer_.Step();
    images_ += r.images;
    timed_images_ += r.images;
    skipped_ += r.skipped ? 1 : 0;
    ShowProgress(r);
    if (r.logged) Timing(r);
    if (r.logged || images_ == r.images) TellNewRemarks();
    if (!r.error.empty()) {
      policy_end_ = r.error;
      return End::kPolicy;
    }
    if (r.step % steps_per_epoch_ == 0) progress_.EndEpoch();
    if (EvaluationDue(r)) EvaluateAll();
    if (CheckpointDue(r)) Checkpoint();
    if (signals_.signal() != 0) return End::kSignal;
    const std::int64_t most = p_.config.train.stop_after_skips;
    if (most > 0 && trainer_.skips_in_a_row() >= most) return End::kSkips;
    if (limit > 0 && Seconds() >= limit)
      return trainer_.steps() < total_steps_ ? End::kTime : End::kFinished;
  }
  return End::kFinished;
}

void Session::Timing(const StepResult& r) {
  const double now = telemetry::SteadySeconds();
  const PhaseSeconds s = trainer_.TakeSeconds();
  telemetry::TimingRow row;
  row.step = r.step;
  row.seconds = now - last_timing_;
  row.images_per_second =
      static_cast<double>(timed_images_) / (s.data + s.forward + s.backward + s.update + s.log);
  row.data = s.data, row.forward = s.forward, row.backward = s.backward, row.update = s.update,
  row.log = s.log;
  training_seconds_ += s.data + s.forward + s.backward + s.update + s.log;
  recorder_.Timing(row);
  last_timing_ = now;
  timed_images_ = 0;
}

// A backend may find out how ops run only when they do.
void Session::TellNewRemarks() {
  const std::vector<std::string> diagnostics = p_.backend.Diagnostics();
  for (; remarks_told_ < diagnostics.size(); ++remarks_told_)
    p_.log.Debug(diagnostics[remarks_told_]);
}

void Session::ShowProgress(const StepResult& r) {
  telemetry::ProgressState s;
  s.epoch = r.epoch;
  s.epochs = (total_steps_ + steps_per_epoch_ - 1) / steps_per_epoch_;
  s.step = r.step, s.steps = total_steps_;
  s.loss = r.loss, s.accuracy = r.accuracy;
  s.scale = r.scale, s.skipped = skipped_;
  const double limit = p_.config.train.max_minutes * 60;
  progress_.Update(s, r.images, limit > 0 ? limit - Seconds() : -1);
}

bool Session::EvaluationDue(const StepResult& r) const {
  const int every = p_.config.evaluate.every_epochs;
  return every > 0 && r.step % (steps_per_epoch_ * every) == 0;
}
bool Session::CheckpointDue(const StepResult& r) const {
  const config::CheckpointConfig& c = p_.config.checkpoint;
  return (c.every_epochs > 0 && r.step % (steps_per_epoch_ * c.every_epochs) == 0) ||
         (c.every_steps > 0 && r.step % c.every_steps == 0) || r.step == total_steps_;
}

void Session::EvaluateAll() {
  progress_.Pause("evaluating");
  evaluated_step_ = trainer_.steps();
  const bool held_back = p_.data.validation.images() > 0;
  if (held_back) EvaluateSplit("validation", p_.data.validation, true);
  if (p_.data.test.images() > 0) EvaluateSplit("test", p_.data.test, !held_back);
  recorder_.Flush();
  TellNewRemarks();
  progress_.Pause();
}

void Session::EvaluateSplit(const std::string& split, const data::Dataset& dataset,
                            bool decides_best) {
  const EvaluationResult e = evaluator_.Run(dataset, EvaluationLoader(p_.config, p_.data));
  const std::int64_t epoch = (trainer_.steps() - 1) / steps_per_epoch_ + 1;
  recorder_.Evaluation({trainer_.steps(), epoch, split, e.images, e.loss, e.top1, e.top5});
  char text[160];
  std::snprintf(text, sizeof text,
                "epoch %lld  %s: loss %.4f  top-1 %.2f%%  top-5 %.2f%%  (%lld images)",
                static_cast<long long>(epoch), split.c_str(), telemetry::Printable(e.loss),
                100 * e.top1, 100 * e.top5, static_cast<long long>(e.images));
  p_.log.Info(text);
  if (!p_.config.checkpoint.best || !decides_best || !(e.top1 > best_top1_)) return;
  best_top1_ = e.top1;
  CreateFolders(p_.folder + "/checkpoints");
  WriteCheckpoint(p_.folder + "/checkpoints/best", State(), p_.graph, optimizer_, p_.backend);
}

void Session::Summarise(telemetry::RunStatus status) {
  telemetry::SummaryFacts f;
  f.name = p_.config.name;
  f.folder = p_.folder;
  f.status = status;
  f.model = p_.config.model.zoo.empty() ? "layers" : p_.config.model.zoo;
  f.dataset = p_.config.data.dataset;
  f.format = FormatName(p_.config.precision.format);
  f.policy = p_.policy.name();
  f.device = p_.backend.Describe();
  f.epochs = trainer_.steps() / steps_per_epoch_;
  f.seconds = Seconds();
  const PhaseSeconds rest = trainer_.TakeSeconds();
  training_seconds_ += rest.data + rest.forward + rest.backward + rest.update + rest.log;
  f.images_per_second =
      training_seconds_ > 0 ? static_cast<double>(images_) / training_seconds_ : 0;
  f.log_every = p_.config.log.every;
  f.processor = telemetry::CpuModel();
  f.threads = p_.threads;
  for (const Version& v : Versions()) f.versions.emplace_back(v.name, v.value);
  telemetry::WriteSummary(f, recorder_.run(), recorder_.layers());
  p_.log.Info(telemetry::SummaryText(f, recorder_.run(), recorder_.layers()));
}

double Session::Seconds() const { return telemetry::SteadySeconds() - start_; }

}  // namespace ada::train

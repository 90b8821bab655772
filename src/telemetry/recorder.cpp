// Passes each row to the run's logs, its totals and its event files.
#include "telemetry/recorder.h"

#include "telemetry/run_folder.h"

namespace ada::telemetry {

// Logs are opened, and cut to the checkpoint, before totals are rebuilt from them: rows of steps
// that will be done again must not count.
void Recorder::Open(const std::string& folder, const std::map<std::string, std::int64_t>& lengths,
                    const LogChoice& choice, bool tensorboard) {
  logs_.emplace(folder, lengths, choice);
  run_.DecideByLoss(choice.best_by_loss);
  if (lengths.empty()) {
    RemoveEventFiles(folder);
    RemoveDumps(folder);
  } else {
    run_.RebuildFrom(folder);
    layers_.RebuildFrom(folder);
    earlier_seconds_ = run_.logged_seconds();
  }
  if (tensorboard) tensorboard_.emplace(folder, run_.steps() + 1);
}

void Recorder::Step(const StepRow& row) {
  if (logs_) logs_->Step(row);
  run_.Add(row);
  if (tensorboard_) tensorboard_->Step(row);
}

void Recorder::Scale(std::int64_t step, std::int64_t epoch, const std::string& layer,
                     const std::string& policy, const scaling::ScaleDecision& decision) {
  if (logs_) logs_->Scale(step, epoch, layer, policy, decision);
  layers_.AddScale(layer, decision);
  if (tensorboard_) tensorboard_->Scale(step, layer, decision);
}

void Recorder::Underflow(std::int64_t step, std::int64_t epoch, const std::string& layer,
                         const std::string& tensor, const FormatLabel& format, double carried,
                         const TensorStats& stats, const ProbeError& error,
                         double per_tensor_scale) {
  if (logs_)
    logs_->Underflow(step, epoch, layer, tensor, format, carried, stats, error, per_tensor_scale);
  layers_.AddUnderflow(layer, tensor, carried * per_tensor_scale, stats, format.text, step);
  if (tensorboard_) tensorboard_->Underflow(step, layer, tensor, stats);
}

void Recorder::Histogram(std::int64_t step, std::int64_t epoch, const std::string& layer,
                         const std::string& tensor, double scale, const ExponentBins& bins) {
  if (logs_) logs_->Histogram(step, epoch, layer, tensor, scale, bins);
  if (tensorboard_) tensorboard_->Histogram(step, layer, tensor, bins);
}

void Recorder::Event(const EventRow& row) {
  if (logs_) logs_->Event(row);
  run_.Add(row);
}

void Recorder::Evaluation(const EvaluationRow& row) {
  if (logs_) logs_->Evaluation(row);
  run_.Add(row);
  if (tensorboard_) tensorboard_->Evaluation(row);
}

void Recorder::Classes(const ClassRow& row) {
  if (logs_) logs_->Classes(row);
  run_.Add(row);
  if (tensorboard_ && row.all()) tensorboard_->Classes(row);
}

void Recorder::Timing(const TimingRow& row) {
  if (logs_) logs_->Timing(row);
  run_.Add(row);
}

void Recorder::Flush() {
  if (logs_) logs_->Flush();
  if (tensorboard_) tensorboard_->Flush();
}

// Event files hold no state of the run, so that they are flushed and not recorded.
std::map<std::string, std::int64_t> Recorder::Sync() {
  if (tensorboard_) tensorboard_->Flush();
  return logs_ ? logs_->Sync() : std::map<std::string, std::int64_t>();
}

}  // namespace ada::telemetry

#include "telemetry/recorder.h"

namespace ada::telemetry {

Recorder::Recorder(const std::string& folder, const std::map<std::string, std::int64_t>& lengths)
    : logs_(folder, lengths) {
  if (lengths.empty()) return;
  run_.RebuildFrom(folder);
  layers_.RebuildFrom(folder);
  earlier_seconds_ = run_.logged_seconds();
}

void Recorder::Step(const StepRow& row) {
  logs_.Step(row);
  run_.Add(row);
}

void Recorder::Scale(std::int64_t step, std::int64_t epoch, const std::string& layer,
                     const std::string& policy, const scaling::ScaleDecision& decision) {
  logs_.Scale(step, epoch, layer, policy, decision);
  layers_.AddScale(layer, decision);
}

void Recorder::Underflow(std::int64_t step, std::int64_t epoch, const std::string& layer,
                         const std::string& tensor, const NumberFormat& format, double scale,
                         const TensorStats& stats) {
  logs_.Underflow(step, epoch, layer, tensor, format, scale, stats);
  layers_.AddUnderflow(layer, tensor, scale, stats);
}

void Recorder::Evaluation(const EvaluationRow& row) {
  logs_.Evaluation(row);
  run_.Add(row);
}

void Recorder::Timing(const TimingRow& row) {
  logs_.Timing(row);
  run_.Add(row);
}

}  // namespace ada::telemetry

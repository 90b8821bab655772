// The log of a step: its rows in all CSV files of a run, from what is known of the attempt. Its
// events are rows of events.csv and lines for people, in which repeated messages are printed only
// once.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "graph/graph.h"
#include "judge/scenario.h"
#include "optim/optimizer.h"
#include "record/operand_what_if.h"
#include "record/probe.h"
#include "scaling/policies/policy.h"
#include "step/attempt/attempt.h"
#include "step/step_observer.h"
#include "telemetry/log.h"
#include "telemetry/recorder.h"
#include "telemetry/totals.h"

namespace ada::record {

// Console messages that could come with every step: each is printed once, then only counted. The
// first message of a kind is printed at once and opens a window of kFirstWindow steps. Further
// messages of the kind are counted; at the window's end the last of them is printed with the count,
// and a window twice as long opens. A window without messages closes: the next one is printed at
// once. Owned by StepEvents. Windows are not kept in checkpoints: a resumed run prints the first
// message of a kind again.
class RepeatedNotes {
 public:
  static constexpr std::int64_t kFirstWindow = 100;

  explicit RepeatedNotes(telemetry::Log& log) : log_(log) {}

  void Add(const std::string& kind, std::int64_t step, const std::string& message);
  // To be called once a step, after the step's messages.
  void EndStep(std::int64_t step);

 private:
  struct Window {
    std::int64_t begin = 0;  // the step of the message that was printed
    std::int64_t length = 0;
    std::int64_t counted = 0;  // since then
    std::int64_t last_step = 0;
    std::string last;
  };
  void Say(std::int64_t step, const std::string& message);

  telemetry::Log& log_;
  std::map<std::string, Window> windows_;
};

// The tensor that an event is about; layer empty: there is none. process: which of several has it.
struct EventTensor {
  std::string layer, tensor, value;
  std::string process = {};
  telemetry::NotFiniteCause cause = telemetry::NotFiniteCause::kNone;
  double carried = 1;  // S
};

// What a row of underflow.csv is about.
struct CountedTensor {
  std::string layer, tensor;
  telemetry::FormatLabel format;
  double carried = 1;           // S, which the counted values carry
  double per_tensor_scale = 1;  // by which they are multiplied beside it when they are rounded
  double scale() const { return carried * per_tensor_scale; }
};

// The events of a step, as rows of events.csv and lines of the log: overflow with its first layer,
// changes of scale with their reasons, scales at their bounds, layers that lose more than they
// should, losses that are not finite, changes of the learning rate. A resumed run writes the same
// as an uninterrupted one, because earlier steps are known from the recorder only. Owned by StepLog
// and called by it only, in the first process. The order of its calls within a step is the order of
// the rows.
class StepEvents {
 public:
  StepEvents(const config::Config& config, telemetry::Recorder& recorder, telemetry::Log& log)
      : config_(config), recorder_(recorder), log_(log), repeated_(log) {}

  // Called before the rows of the step are recorded (except NoGradient): these compare with earlier
  // steps. loss_not_finite: for the first of several such steps in a row, with its first tensor.
  void Loss(const step::StepResult& result, const EventTensor& first);
  // no_targets: no label of the batch counts in the loss, which is a mean over nothing.
  void Targets(const step::StepResult& result);
  // lr_change: every change, but only the first of an epoch if the schedule changes it each step.
  void LearningRate(const step::StepResult& result);
  // underflow_alert: a tensor rises above log.alert_underflow_pct. Returns whether it does.
  // exploding_state: averages that an update divides by become zero under others that do not.
  bool Underflow(const step::StepResult& result, const CountedTensor& tensor,
                 const TensorStats& stats);
  // gradient_noise: the norm of a gradient falls below sqrt(3) times that of its errors, which
  // `of_errors` names ("that of its rounding's errors in nvfp4"). Before the row is recorded.
  void Noise(const step::StepResult& result, const std::string& layer, const std::string& tensor,
             double norm_over_noise, const std::string& of_errors);
  // no_gradient: a layer's dx or dw has become all zero; `before`: the layers where this was so in
  // the previous logged step. To be called when the rows of the step have been recorded.
  void NoGradient(const step::StepResult& result,
                  const std::vector<telemetry::LayerWithoutGradient>& before);
  // ceiling: a layer's alpha or scale is cut by an upper bound for the first time in the run, or a
  // layer's own state machine comes to its largest scale; floor: to its smallest.
  void LayerScale(const step::StepResult& result, const graph::ScalePoint& point);

  // sanitize, skip or retry, naming the first tensor that was not finite.
  void Overflow(const step::StepResult& result, const EventTensor& first);
  // branch_halved
  void Branch(const step::StepResult& result, const graph::ScalePoint& point);
  // mu_halved: too large a share of a summed gradient saturates (scaling fp8_lm).
  void Mu(const step::StepResult& result, const step::HalvedMu& halved);
  // scale_measured: the scale of a weight was measured, not predicted (tensor_scaling predicted).
  void Measured(const step::StepResult& result, const step::MeasuredScale& measured);
  // scale_change, with floor or ceiling where it ends at a bound; policy_end.
  void Policy(const step::StepResult& result, const scaling::ScaleUpdate& update);
  // To be called after all events of a step.
  void EndStep(const step::StepResult& result);

 private:
  void ExplodingState(const step::StepResult& result, const CountedTensor& tensor,
                      const TensorStats& stats);
  void Add(const step::StepResult& result, const std::string& name, const EventTensor& at,
           const std::string& message);
  void LayerBound(const step::StepResult& result, const graph::ScalePoint& point);
  void WriteLine(const step::StepResult& result, const std::string& message);

  const config::Config& config_;
  telemetry::Recorder& recorder_;
  telemetry::Log& log_;
  RepeatedNotes repeated_;    // messages of Overflow and Branch
  bool scale_moved_ = false;  // in the previous step
};

// One kind of values that the update of a layer made (masters, optimizer state, changes of
// weights, Newton-Schulz's matrices), and what rounding did to them: a row of underflow.csv.
struct UpdateRow {
  std::string layer, tensor;
  std::string format;  // its name, or that of a layout
  TensorStats stats;
  telemetry::ProbeError error = {};
};

// Returns one row for the whole of a layer, then one for each part if it has several. kept: by
// trained parameter, or empty.
std::vector<UpdateRow> UpdateRows(const config::Config& config, const graph::Graph& graph,
                                  const std::vector<optim::UpdateStats>& kept);

// Logs a step: rows of steps.csv, scales.csv, underflow.csv, histograms.csv, what_if.csv and
// probes.csv, from what is known of the attempt. Reads the graph and changes nothing. One for each
// session (or fork), called by the trainer after every attempt. In processes that do not write,
// Write returns at once.
class StepLog : public step::AttemptLog {
 public:
  // `probe`, `operands`: null where there are none. One process of the team writes.
  StepLog(const config::Config& config, const graph::Graph& graph, const std::string& policy,
          telemetry::Recorder& recorder, telemetry::Log& log, const Probe* probe,
          const OperandWhatIf* operands = nullptr, const step::Team& team = step::Team::OfOne());

  step::StepNews Write(const step::Attempt& attempt) override;

  // State of the scenarios (log.what_if), by their names. LoadScenarios returns the names of those
  // whose state is that of another choice: they begin anew.
  std::map<std::string, scaling::StateMap> SaveScenarios() const;
  std::vector<std::string> LoadScenarios(const std::map<std::string, scaling::StateMap>& states);

 private:
  EventTensor Named(const step::StepResult& result) const;
  void WriteScales(const step::StepResult& result);
  void WriteTensors(const step::StepResult& result, const step::BatchCounts& counts);
  void WriteAccumulators(const step::StepResult& result, const step::BatchCounts& counts,
                         const std::vector<optim::UpdateStats>& kept);
  void WriteJudgedSums(const step::StepResult& result, const step::BatchCounts& counts);
  void WriteBlocks(const step::StepResult& result, const graph::RoundingPoint& point,
                   const BlockCounts& counts);
  void WriteSums(const step::StepResult& result, const std::string& tensor,
                 const step::DistributedGradients::Transport& sums);
  // A row of underflow.csv, and the alert that it may be.
  void WriteUnderflow(const step::StepResult& result, const CountedTensor& at,
                      const TensorStats& stats, const telemetry::ProbeError& error = {});
  void WriteProbe(const step::StepResult& result);
  void WriteHistograms(const step::StepResult& result, const step::BatchCounts& counts);
  void WriteOperandsWhatIf(const step::StepResult& result);
  telemetry::ProbeError ErrorOf(const step::StepResult& result,
                                const graph::RoundingPoint& point) const;

  const config::Config& config_;
  const graph::Graph& graph_;
  std::string policy_;
  telemetry::Recorder& recorder_;
  StepEvents events_;
  const Probe* probe_;
  const OperandWhatIf* operands_;
  const step::LogSchedule schedule_;
  const step::Team& team_;
  std::deque<judge::Scenario> scenarios_;  // one for each log.what_if entry of histograms
  step::StepNews news_;                    // of the current step
};

}  // namespace ada::record

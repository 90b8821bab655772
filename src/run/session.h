// One run from its first or next step to its end, or to a switch of its precision: the loop over
// epochs with evaluation, checkpoints, limits and signals around Trainer::Step.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "record/dump.h"
#include "record/operand_what_if.h"
#include "record/probe.h"
#include "record/step_log.h"
#include "run/assemble/assemble.h"
#include "run/checkpoint/checkpoint.h"
#include "run/evaluate/evaluator.h"
#include "run/evaluate/norm_statistics.h"
#include "run/evaluate/weights.h"
#include "run/facts/data_facts.h"
#include "run/signals.h"
#include "scaling/policies/start_scale.h"
#include "step/batches/batches.h"
#include "step/distributed_gradients.h"
#include "step/team.h"
#include "step/trainer.h"
#include "telemetry/progress.h"
#include "telemetry/recorder.h"
#include "telemetry/summary.h"

namespace ada::run {

// How long a run has taken so far, in this process, and how much of that was training.
struct Elapsed {
  double start = 0;  // telemetry::SteadySeconds of the run
  double training_seconds = 0;
  std::int64_t images = 0;
};

// What all sessions of a run share; it outlives them.
struct RunContext {
  const config::Config& config;
  const RunData& data;
  telemetry::Log& log;
  const SignalWatch& signals;
  std::string folder;
  std::string program = "ada-train";  // as it was called
  bool progress = false;
  step::Team& team = step::Team::OfOne();
};
// What a session trains, and on what; it outlives the session.
struct SessionParts {
  const config::Config& config;  // the run's with the precision of this session's steps
  backend::Backend& backend;
  graph::Graph& graph;
  scaling::Policy& policy;
  int threads;
};

// Made by Train (run.cpp) in each process, once for the run and once more after each switch of the
// precision; used by one thread. The calls are: the constructor, OpenLogs and NoteLeftOut in the
// first process only, then Run once. What is collective inside (steps, evaluations, checkpoints)
// every process does in the same order.
class Session {
 public:
  // Loads the state that `from` holds, or makes a fresh one, and changes no file. Throws DataError
  // if the checkpoint, or a log whose length it stores, is not as it must be. before: of the run's
  // sessions before this one, in this process.
  Session(const RunContext& run, const SessionParts& parts, const std::optional<Elapsed>& before,
          const std::optional<ResumePoint>& from);
  // Opens the logs and truncates them to the state's step; to be called once, before Run.
  void OpenLogs();
  // Records, when a run begins, which images are left out of its splits and which were left out of
  // the computation of class weights; always warns of them. To be called before Run.
  void NoteLeftOut(const std::vector<data::BrokenImage>& of_weights);
  // The exit code, in every process of the run; nothing where precision.schedule changes the
  // precision of the next step: its checkpoint is written, from which another session goes on.
  // Throws TrainingError after train.stop_after_skips skipped steps in a row and where the policy
  // ends the run.
  std::optional<int> Run();
  std::int64_t steps() const { return trainer_.steps(); }
  Elapsed elapsed() const { return {start_, training_seconds_, images_}; }
  const step::DistributedGradients& distributed() const { return distributed_; }

 private:
  // How a loop ended: all steps are made, train.max_minutes is over, too many steps in a row were
  // skipped, the policy ended the run, a signal came, or the precision changes.
  enum class End { kFinished, kTime, kSkips, kPolicy, kSignal, kSwitch };
  // Reasons from outside to end the loop, as all processes agree on them after a step.
  struct StopReason {
    int signal = 0;
    bool time_is_up = false;
  };
  StopReason Agreed() const;
  std::string ResumeCommand() const;  // as it must be typed
  bool writes() const { return run_.team.writes(); }
  // Broken images of all processes, in their order.
  std::vector<data::BrokenImage> BrokenOfAll(const std::vector<data::BrokenImage>& mine);
  // Collective. Fills layer_states_ in every process.
  void GatherLayerStates();
  End Loop();
  // Called for logged steps: a row of timing.csv.
  void Timing(const step::StepResult& result);
  void ReportStart();
  void ReportSwitch();
  // Logs those of the backend's diagnostics and warnings that were not logged before.
  void LogDiagnostics();
  void ShowProgress(const step::StepResult& result);
  bool EvaluationDue(std::int64_t step) const;
  bool CheckpointDue(std::int64_t step) const;
  bool EvaluationMissing() const;
  // Evaluates every split and writes the best checkpoint if it is one. Whatever that fails in, the
  // step's checkpoint is written before the error leaves.
  void EvaluateAll();
  void EvaluateUnguarded();
  // Writes the checkpoint of the present step, with logs of these lengths, and tells of it; throws
  // nothing.
  void KeepWeights(const std::map<std::string, std::int64_t>& lengths);
  void EvaluateSplits();
  void RecomputeNorms(NormStatistics& norms, const std::string& of);
  void RestoreNorms();
  // Rows of events.csv, and a warning for the first of each.
  void NoteBroken(const std::string& split, const std::vector<data::BrokenImage>& broken);
  void WarnOfBroken(const std::string& split, const data::BrokenImage& image);
  void EvaluateSplit(const std::string& split, const data::Dataset& dataset, bool decides_best);
  void EvaluateWith(Evaluator& evaluator, const std::string& split, const data::Dataset& dataset,
                    bool decides_best);
  // 0: samples are images.
  std::int64_t TokensOfSample() const { return TokensOfSequence(p_.config, run_.data.image); }
  std::string TextHits(const EvaluationResult& result) const;
  // The rows of classes.csv and confusion.csv.
  void RecordMetrics(const std::string& split, const MetricsResult& metrics_result);
  void DecideBest(double score);
  // Writes the checkpoint of the present step and deletes those that are no longer kept.
  void Checkpoint();
  // Writes both files of a checkpoint at `stem`; does nothing except in the first process.
  void WriteState(const std::string& stem);
  void WriteState(const std::string& stem, const CheckpointState& state);
  CheckpointState State();
  void Restore(const ResumePoint& from);
  void ChooseStart();
  [[noreturn]] void FailTraining(End end);
  // Returns whether somebody reads the summary: false for a closed pipe.
  bool Summarize(telemetry::RunStatus status);
  double Seconds() const;

  RunContext run_;
  SessionParts p_;
  telemetry::Recorder recorder_;
  std::unique_ptr<step::Batches> batches_;
  optim::Optimizer optimizer_;
  std::unique_ptr<record::Probe> probe_;  // null: log.probe_every is 0
  std::unique_ptr<record::Dump> dump_;    // null: nothing is dumped
  std::unique_ptr<record::OperandWhatIf>
      operand_what_if_;  // null: log.what_if has no block-scaled format
  step::DistributedGradients distributed_;
  record::StepLog step_log_;
  std::int64_t steps_per_epoch_, total_steps_;
  step::Trainer trainer_;
  Evaluator evaluator_;
  std::unique_ptr<WeightAverage> average_;  // null: train.ema.decay is 0
  std::vector<std::string> class_names_;    // of tasks whose metrics are by class
  // Null: evaluate.recompute_batch_norm is false. Those of the average need a graph that trains.
  std::unique_ptr<NormStatistics> norms_, average_norms_;
  std::vector<NormStatistics*> replaced_norms_;  // those whose averages are replaced now
  std::unique_ptr<graph::Graph> average_graph_;
  telemetry::Progress progress_;
  InputFacts input_facts_;
  int signal_ = 0;  // that ended the loop
  // parallel.statistics: local: states of layers of the other processes, by their names in
  // checkpoints.
  std::map<std::string, scaling::StateMap> layer_states_;
  double start_, last_timing_;
  std::int64_t images_ = 0, timed_images_ = 0;  // of this process; since the last timing row
  double training_seconds_ = 0;
  std::int64_t evaluated_step_ = -1, checkpoint_step_ = -1, skipped_ = 0;
  std::map<std::string, std::int64_t> lengths_;  // of the logs at the checkpoint; empty: afresh
  double best_top1_ = -1;                        // CheckpointState's
  bool best_due_ = false;  // the present evaluation is the best, and its checkpoint not written
  std::size_t diagnostics_logged_ = 0;
  std::vector<std::string> warnings_logged_;
  std::set<std::string> broken_;                    // files that this process has warned of
  std::string policy_end_;                          // why the policy ended the run
  std::optional<scaling::StartScale> start_scale_;  // chosen by this process (init_scale: auto)
};

}  // namespace ada::run

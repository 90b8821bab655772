// One attempt: what it did, what was counted in its passes, and the facts derived from that for the
// logs, the policy and the end of the run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "scaling/policies/policy.h"
#include "step/accumulated_gradients.h"
#include "step/attempt/tensor_scales.h"
#include "step/distributed_gradients.h"
#include "telemetry/not_finite.h"

namespace ada::step {

// The first rounding, in the order of execution, whose largest magnitude is or becomes infinite.
struct NotFiniteTensor {
  std::string layer, tensor;  // layer empty: there is none
  float largest = 0;
  int rank = -1;  // the process that has it in its part of the tensor; -1: all have the same
  telemetry::NotFiniteCause cause = telemetry::NotFiniteCause::kNone;
  double carried = 1;  // S that it carries
};

// Filled by the trainer during Step and returned to the session; the logs get the same through
// Attempt. In a run of several processes it describes the whole batch.
struct StepResult {
  std::int64_t step = 0, epoch = 0;  // from 1
  double loss = 0, accuracy = 0, lr = 0, scale = 1, grad_norm = 0;
  double location_loss = 0;  // detection: the part of `loss` that comes from box locations
  int images = 0;            // of all processes
  std::int64_t terms = 0;    // that the loss is averaged over
  bool overflow = false, skipped = false;
  bool retried = false;    // skipped, and the next attempt retries the same update
  bool sanitized = false;  // not finite, but updated with sanitized gradients
  bool logged = false;
  bool rate_moves = false;     // the schedule may change lr at any step, not only at milestones
  NotFiniteTensor not_finite;  // searched for if a weight gradient or the loss is not finite
  std::string error;           // if not empty: the policy ends the run, for this reason
};

// The counts of all passes of a batch: the graph's own counts if the batch is a single micro-batch,
// otherwise their sums over the micro-batches. Owned by the trainer. As long as Add is never called
// it forwards the graph's counts and costs nothing; after the first Add it returns the sums.
// References that it returns are valid until the next Add or pass.
class BatchCounts {
 public:
  explicit BatchCounts(const graph::Graph& graph) : graph_(graph) {}

  // Adds the counts of a collected micro-batch; not called if a batch is a single micro-batch.
  // `apart`: each micro-batch's dw is one of its own, which others add up.
  void Add(const backend::Pass& pass, bool apart);

  // Statistics by index in the graph's list of roundings.
  const TensorStats& StatsOf(std::size_t point) const;
  const ExponentBins& BinsOf(std::size_t point) const;
  const BlockCounts& BlocksOf(std::size_t point) const;
  int LargestAt(std::size_t point) const;      // RoundingPoint::largest_at
  bool LeavesFormat(std::size_t point) const;  // RoundingPoint::leaves_format, in any pass
  // The same for logs: as if all values had carried the scale of the last micro-batch, which the
  // logs name.
  TensorStats LoggedStats(std::size_t point) const;
  BlockCounts LoggedBlocks(std::size_t point) const;
  // By index in the graph's list of sums.
  const scaling::AccumulatorCounts& SumsOf(std::size_t point) const;
  const scaling::AccumulatorCounts& JudgedSumsOf(std::size_t point) const;

 private:
  const graph::Graph& graph_;
  // The factor from the scale that a sum carries to that of the last micro-batch.
  double ToLastScale(std::size_t point) const;
  // The counts of one rounding, added up over micro-batches.
  struct Sum {
    TensorStats stats;
    BlockCounts blocks;  // in block-scaled formats
    double scale = 1;    // S that the values carry
    int largest_at = -1;
    bool left = false;  // the largest magnitude left its format
    void Add(const graph::RoundingPoint& point);
  };
  std::vector<Sum> sums_;
  std::vector<ExponentBins> bin_sums_;  // where histograms are taken
  std::vector<scaling::AccumulatorCounts> accumulators_, judged_;
};

// All that is known of one attempt when it is over: the input of the logs. Made on the stack by
// Trainer::Step and handed to StepLog::Write; `counts` are the trainer's and are overwritten by the
// next attempt.
struct Attempt {
  explicit Attempt(const BatchCounts& counted) : counts(counted) {}

  const BatchCounts& counts;
  StepResult result;
  scaling::ScaleUpdate update;  // what the policy decided
  // Set in steps whose updates are counted (LogSchedule::CountsUpdates); empty if skipped.
  std::vector<optim::UpdateStats> kept = {};
  // In logged steps, what gradients lost between processes (`parallel`) and where micro-batches are
  // added up (precision.accumulated_gradients).
  DistributedGradients::Transport transport = {}, accumulated = {};
  std::vector<HalvedMu> halved = {};         // by this attempt's sums (scaling fp8_lm)
  std::vector<MeasuredScale> measured = {};  // before its passes (tensor_scaling predicted)
};

// A rounding whose overflow is attributed to a layer with a scale: that of its dx or dw. The logit
// gradient is attributed to the last layer, whose scale it carries.
struct LayerRounding {
  std::size_t point;  // index in the graph's roundings
  std::string layer;
  float most;  // the largest magnitude that stays finite when it is rounded
};
std::vector<LayerRounding> LayerRoundings(const graph::Graph& graph);
// The same roundings in the backend's terms: the optimizer checks their statistics, so that it
// knows of an overflow before it updates.
std::vector<backend::WatchedRounding> WatchedRoundings(const graph::Graph& graph);

// Fills layer_overflow, which layers' own gradients overflowed, for policies that keep a scale for
// every layer (layerwise_dynamic). If the attempt overflowed and no layer can be named as the
// cause, all layers are marked.
void FillLayerOverflow(const graph::Graph& graph, const std::vector<LayerRounding>& roundings,
                       const BatchCounts& counts, scaling::StepOutcome& attempt);

// Derives the facts of an attempt that the policy and the end of the run need from its counts. One
// for each trainer, which calls it after every attempt when the counts are on the host.
class AttemptFacts {
 public:
  // Both must outlive it.
  AttemptFacts(const graph::Graph& graph, const BatchCounts& counts);

  // Fills in what the policy has asked for: how many values of the rounded dx are above and below
  // Pass::edge, and which layers' own gradients are not finite.
  void Fill(const scaling::StatsRequest& request, scaling::StepOutcome& attempt) const;
  NotFiniteTensor FirstNotFinite() const;
  // Errors of the authors' program in this attempt (scaling.reference) as one line, or "".
  std::string DecisionErrors() const;

 private:
  const graph::Graph& graph_;
  const BatchCounts& counts_;
  std::vector<LayerRounding> layer_roundings_;
};

}  // namespace ada::step

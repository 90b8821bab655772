// Sums up the rows of a run's files for the summary: for the whole run, and by tensor and layer.
// Rows being written and rows read back give the same totals, so that those of a resumed run equal
// those of an uninterrupted one.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "number/stats.h"
#include "scaling/rules/rules.h"
#include "telemetry/accumulator_totals.h"
#include "telemetry/not_finite.h"
#include "telemetry/rows.h"

namespace ada::telemetry {

// A number of the row of all classes: of segmentation mIoU, which decides about the best, mean
// class accuracy and pixel accuracy; of detection mAP as in 2007, which decides, and by area.
struct Metric {
  const char *key, *name;  // in summary.json; in texts
  double value;            // a share, 0 to 1; NaN: nothing to measure
};
std::vector<Metric> MetricsOf(const ClassRow& all);

// The evaluations of one split: the last one, and the best one (by largest top1 or first metric of
// all classes, or by smallest loss; the first of equal ones).
struct SplitTotals {
  EvaluationRow last, best;
  std::optional<ClassRow> last_all = {}, best_all = {};  // unset: classification
  bool decided_by_classes() const { return last_all.has_value(); }
};

// Held by Recorder while a run goes on, and by commands that read finished runs. Rows are added in
// the order of the files.
class RunTotals {
 public:
  // To be called before rows are added: makes the smallest loss decide which evaluation is best.
  void DecideByLoss(bool by_loss) { by_loss_ = by_loss; }
  void Add(const StepRow& row);
  void Add(const EvaluationRow& row);
  void Add(const ClassRow& row);  // after its evaluation
  void Add(const TimingRow& row) { seconds_ += row.seconds; }
  void Add(const EventRow& row);
  // Starts from the CSVs in `folder`, already cut to a checkpoint. Throws DataError with file and
  // line.
  void RebuildFrom(const std::string& folder);

  std::int64_t steps() const { return last_.step; }
  std::int64_t skipped() const { return skipped_; }
  const Finiteness& finiteness() const { return finiteness_; }
  const StepRow& last() const { return last_; }
  // Means over the steps of the current or last epoch whose loss is finite; NaN if there is none.
  double epoch_loss() const;
  double epoch_accuracy() const;
  const std::vector<SplitTotals>& evaluations() const { return evaluations_; }
  // Images that could not be read and were left out, by name, each with how often.
  const std::map<std::string, std::int64_t>& broken_images() const { return broken_images_; }
  double logged_seconds() const { return seconds_; }  // the sum of timing.csv

 private:
  bool by_loss_ = false;
  StepRow last_;
  std::int64_t skipped_ = 0, epoch_steps_ = 0;
  double loss_sum_ = 0, accuracy_sum_ = 0, seconds_ = 0;
  std::vector<SplitTotals> evaluations_;
  std::map<std::string, std::int64_t> broken_images_;
  Finiteness finiteness_;
};

// The rows of one tensor of one layer: sums over the logged steps, and the last row's scale.
struct TensorTotals {
  std::string layer, tensor;
  std::int64_t rows = 0, last_step = 0;  // of the last row, 0: not known
  std::int64_t numel = 0, zeros_before = 0, underflow = 0, overflow = 0;
  std::int64_t pct_rows = 0;  // rows with a value that is not zero
  double pct_sum = 0;         // of underflow_pct_nonzero
  double pct_max = 0;
  // The same of all that was lost: what underflowed, and what left the range and became infinite or
  // the largest value.
  double lost_sum = 0, lost_max = 0;
  // What underflowed in the first row that has a share, its step (0: not known), S and format.
  double first_pct = 0, first_scale = 1;
  std::int64_t first_step = 0;
  std::string first_format;
  std::int64_t broken_rows = 0;  // with values that were not finite, or became so
  double last_scale = 1;
  double last_pct = 0;  // underflow_pct_nonzero of the last row; 0 where it is empty
  // Whether all values of the last row were zero before rounding, and after it.
  bool came_empty = false, left_empty = false;
  std::string last_format;
  // TensorStats::zero_denominators of the last row, and the most of any row.
  std::int64_t last_zero_denominators = -1, most_zero_denominators = -1;
  std::string name() const { return layer + "." + tensor; }
  double pct_mean() const { return pct_rows > 0 ? pct_sum / static_cast<double>(pct_rows) : 0; }
  double lost_mean() const { return pct_rows > 0 ? lost_sum / static_cast<double>(pct_rows) : 0; }
};

// The decisions of one layer, or (branch) of the point where its consumers' gradients are summed.
struct ScaleTotals {
  std::string layer;
  bool branch = false;
  std::int64_t rows = 0;
  double last_scale_in = 1, last_scale_out = 1;
  double last_bound = NAN, last_alpha = NAN;  // NaN: not taken
  std::string last_limit;
  std::map<std::string, std::int64_t> limits;  // limit -> rows
};

// The same of tensors and decisions of the logged steps.
class LayerTotals {
 public:
  // Adds counts directly, with the same sums as from the row in which they are logged.
  void AddUnderflow(const std::string& layer, const std::string& tensor, double scale,
                    const TensorStats& stats, const std::string& format = "",
                    std::int64_t step = 0);
  void AddScale(const std::string& layer, const scaling::ScaleDecision& decision);
  void Add(const TensorRow& row);
  void Add(const ScaleRow& row);
  void Add(const BlockRow& row);
  void Add(const ProbeRow& row);
  void Add(const AccumulatorRow& row);
  // norm_over_noise in the last row of blocks.csv, or for a tensor of probes.csv; inf if there is
  // none.
  double NoiseBefore(const std::string& layer, const std::string& tensor) const;
  // The same of all gradients, by layer and tensor: operands, and dw on probe steps.
  const std::map<std::pair<std::string, std::string>, double>& noise() const { return noise_; }
  // Rows of blocks.csv in which finite values became inf or NaN, or were that before.
  std::int64_t broken_blocks() const { return broken_blocks_; }
  // Starts from the rows of scales.csv, underflow.csv and, where they are there, blocks.csv,
  // probes.csv and accumulators.csv in `folder`, already cut to the lengths of the checkpoint.
  // Throws DataError with file and line.
  void RebuildFrom(const std::string& folder);

  // In the order of their first rows.
  const std::vector<AccumulatorTotals>& sums() const { return sums_; }
  const std::vector<TensorTotals>& tensors() const { return tensors_; }
  const std::vector<ScaleTotals>& scales() const { return scales_; }
  // Null: none was logged.
  const ScaleTotals* FindScale(const std::string& layer, bool branch) const;
  const TensorTotals* FindTensor(const std::string& layer, const std::string& tensor) const;

 private:
  std::vector<TensorTotals> tensors_;
  std::vector<ScaleTotals> scales_;
  std::vector<AccumulatorTotals> sums_;
  std::map<std::pair<std::string, std::string>, std::size_t> tensor_index_;
  std::map<std::pair<std::string, bool>, std::size_t> scale_index_;
  std::map<std::pair<std::string, std::string>, double> noise_;  // norm_over_noise of the last rows
  std::int64_t broken_blocks_ = 0;                               // rows
};

// The tensor with the largest `share`, a function or member of its totals, of those that `counts`
// holds for; the first of equal ones. Null: there is none.
template <class Share, class Counts>
const TensorTotals* WorstTensor(const LayerTotals& layers, const Share& share,
                                const Counts& counts) {
  const TensorTotals* worst = nullptr;
  for (const TensorTotals& t : layers.tensors())
    if (counts(t) && (!worst || std::invoke(share, t) > std::invoke(share, *worst))) worst = &t;
  return worst;
}

// The gradient that the first logged step lost most of, where that was half of it or more; nothing
// where all kept more. Operands are not asked: no S of the policy is theirs alone.
std::optional<LostFromTheStart> FindLostFromTheStart(const LayerTotals& layers);

// A layer that receives no gradient, or whose weights get none: all values of its dx or dw are
// zero. Such a layer does not learn, and underflow shares do not show it, because no value arrives
// that could be lost.
struct LayerWithoutGradient {
  std::string layer,
      tensor;  // whose values are all zero: dx, or dw if dx has values or does not exist
  // The last tensor before it that still had values; otherwise "loss". "branch": later tensors have
  // values, so the gradient continues on another path.
  std::string died_at;
  std::string died_layer, died_tensor;  // its two parts, where it is a tensor
  // Whether rounding lost those values; otherwise the network itself made them zero.
  bool by_rounding = false;
  std::string why;  // in words: what died_at lost, or what may leave a branch without
};

// As of the last logged step, in the order of the backward pass. `layers` has its tensors in the
// order of execution, as the logs have them.
std::vector<LayerWithoutGradient> LayersWithoutGradient(const LayerTotals& layers);

// The cause for one layer, for the message of its event.
std::string CauseText(const LayerWithoutGradient& layer);

// One line: where the gradient died and why, and which layers have none (at most `names` of them).
std::string NoGradientText(const std::vector<LayerWithoutGradient>& dead, std::size_t names);

}  // namespace ada::telemetry

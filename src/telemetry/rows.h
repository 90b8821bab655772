// The rows of a run's CSV files: their content and their columns. Writers, readers, `watch`,
// `what-if` and the other commands all use the columns defined here; README.md in this folder
// explains each of them. A new column is a member and a line of the table.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "scaling/rules/accumulator.h"
#include "telemetry/block_figures.h"
#include "telemetry/columns.h"

namespace ada::telemetry {

// One attempt to update the weights.
// loss is the mean over the batch, accuracy a share (0 to 1), scale the S of the attempt, grad_norm
// the Euclidean norm of all weight gradients without scale.
struct StepRow {
  static constexpr char kFile[] = "steps.csv";
  std::int64_t step = 0, epoch = 0;  // from 1
  double loss = NAN, accuracy = NAN, lr = NAN, scale = 1;
  bool overflow = false, skipped = false;
  double grad_norm = NAN;
};
template <>
inline constexpr auto kColumns<StepRow> = std::to_array<Column<StepRow>>({
    {"step", &StepRow::step, kKey},
    {"epoch", &StepRow::epoch},
    {"loss", &StepRow::loss, kKey},
    {"accuracy", &StepRow::accuracy},
    {"lr", &StepRow::lr},
    {"scale", &StepRow::scale, kExact | kWordNan},
    {"overflow", &StepRow::overflow},
    {"skipped", &StepRow::skipped},
    {"grad_norm", &StepRow::grad_norm},
});

// How a layer (or the point where gradients of several layers are summed) got its scale.
struct ScaleRow {
  static constexpr char kFile[] = "scales.csv";
  std::int64_t step = 0, epoch = 0;
  std::string layer, policy;
  // scale_in and scale_out are S of dy and of dx; unbound, bound and pow2 are the stages between
  // them (ScaleDecision).
  double scale_in = 1, unbound = NAN, bound = NAN, pow2 = NAN, alpha = NAN;  // NaN: not taken
  double scale_out = 1;
  std::string limit;
  bool branch() const { return limit == "branch"; }
};
template <>
inline constexpr auto kColumns<ScaleRow> = std::to_array<Column<ScaleRow>>({
    {"step", &ScaleRow::step, kKey},
    {"epoch", &ScaleRow::epoch},
    {"layer", &ScaleRow::layer, kKey},
    {"policy", &ScaleRow::policy},
    {"scale_in", &ScaleRow::scale_in, kExact | kWordNan},
    {"unbound", &ScaleRow::unbound, kEmptyNan},
    {"bound", &ScaleRow::bound, kEmptyNan},
    {"pow2", &ScaleRow::pow2, kExact},
    {"alpha", &ScaleRow::alpha, kExact},
    {"scale_out", &ScaleRow::scale_out, kExact | kWordNan | kKey},
    {"limit", &ScaleRow::limit},
});

// The effects of rounding one tensor in one step. Counts are numbers of values, percentages go from
// 0 to 100. min_abs to l2 are computed from the values without their scale; mse and sqnr_db compare
// with fp32 in probe steps.
struct TensorRow {
  static constexpr char kFile[] = "underflow.csv";
  std::int64_t step = 0, epoch = 0;
  std::string layer, tensor, format;
  double scale = 1;
  std::int64_t numel = 0, zeros_before = 0, zeros_after = 0, underflow = 0;
  double underflow_pct_nonzero = NAN, underflow_pct_numel = NAN, below_min_pct = NAN;
  std::int64_t subnormal = 0, overflow = 0, inf = 0, nan = 0;
  std::optional<double> min_abs = std::nullopt;  // none if no value is finite and not zero
  double max_abs = NAN, mean = NAN, std = NAN, l1 = NAN, l2 = NAN;
  std::optional<double> range_log2 = std::nullopt;  // none where min_abs is none
  double mse = NAN, sqnr_db = NAN;
  // TensorStats::zero_denominators; none where they are not counted.
  std::optional<double> zero_denominators = std::nullopt;
};
template <>
inline constexpr auto kColumns<TensorRow> = std::to_array<Column<TensorRow>>({
    {"step", &TensorRow::step, kKey},
    {"epoch", &TensorRow::epoch},
    {"layer", &TensorRow::layer, kKey},
    {"tensor", &TensorRow::tensor, kKey},
    {"format", &TensorRow::format},
    {"scale", &TensorRow::scale, kExact | kWordNan},
    {"numel", &TensorRow::numel},
    {"zeros_before", &TensorRow::zeros_before},
    {"zeros_after", &TensorRow::zeros_after},
    {"underflow", &TensorRow::underflow},
    {"underflow_pct_nonzero", &TensorRow::underflow_pct_nonzero, kEmptyNan},
    {"underflow_pct_numel", &TensorRow::underflow_pct_numel, kEmptyNan},
    {"below_min_pct", &TensorRow::below_min_pct, kEmptyNan},
    {"subnormal", &TensorRow::subnormal},
    {"overflow", &TensorRow::overflow},
    {"inf", &TensorRow::inf},
    {"nan", &TensorRow::nan},
    {"min_abs", &TensorRow::min_abs, kEmptyNan},
    {"max_abs", &TensorRow::max_abs},
    {"mean", &TensorRow::mean},
    {"std", &TensorRow::std},
    {"l1", &TensorRow::l1},
    {"l2", &TensorRow::l2},
    {"range_log2", &TensorRow::range_log2, kEmptyNan},
    {"mse", &TensorRow::mse, kEmptyNan},
    {"sqnr_db", &TensorRow::sqnr_db, kEmptyNan},
    {"zero_denominators", &TensorRow::zero_denominators, kEmptyNan | kPlain},
});

// What a block-scaled format did to one operand of one layer's matmuls in one step.
struct BlockRow : BlockFigures {
  static constexpr char kFile[] = "blocks.csv";
  std::int64_t step = 0, epoch = 0;
  std::string layer, tensor, format;
  double norm_over_noise = NAN;  // for a gradient: its norm divided by that of its rounding errors
};
template <>
inline constexpr auto kColumns<BlockRow> = Joined(Joined(std::to_array<Column<BlockRow>>({
                                                             {"step", &BlockRow::step, kKey},
                                                             {"epoch", &BlockRow::epoch},
                                                             {"layer", &BlockRow::layer, kKey},
                                                             {"tensor", &BlockRow::tensor, kKey},
                                                             {"format", &BlockRow::format},
                                                         }),
                                                         BlockColumns<BlockRow>()),
                                                  std::to_array<Column<BlockRow>>({
                                                      {"norm_over_noise",
                                                       &BlockRow::norm_over_noise, kEmptyNan},
                                                  }));

// What the sums of one product of one layer lost in one step to the accumulator that made them,
// beside sums in fp32.
struct AccumulatorRow {
  static constexpr char kFile[] = "accumulators.csv";
  std::int64_t step = 0, epoch = 0;
  std::string layer, tensor;  // forward, dx or dw
  std::string accumulator;    // its name, or its map
  std::int64_t numel = 0, products = 0, swallowed = 0;
  double swallowed_pct = NAN;
  std::int64_t lost = 0, overflow = 0;
  double sqnr_db = NAN, bias = NAN, max_rel = NAN;
  void Take(const scaling::AccumulatorCounts& counts);
};
template <class Row>
constexpr auto AccumulatorColumns() {
  return std::to_array<Column<Row>>({
      {"accumulator", &Row::accumulator},
      {"numel", &Row::numel},
      {"products", &Row::products},
      {"swallowed", &Row::swallowed},
      {"swallowed_pct", &Row::swallowed_pct, kEmptyNan},
      {"lost", &Row::lost},
      {"overflow", &Row::overflow},
      {"sqnr_db", &Row::sqnr_db, kEmptyNan},
      {"bias", &Row::bias, kEmptyNan},
      {"max_rel", &Row::max_rel, kEmptyNan},
  });
}
template <>
inline constexpr auto kColumns<AccumulatorRow> = Joined(std::to_array<Column<AccumulatorRow>>({
                                                            {"step", &AccumulatorRow::step, kKey},
                                                            {"epoch", &AccumulatorRow::epoch},
                                                            {"layer", &AccumulatorRow::layer, kKey},
                                                            {"tensor", &AccumulatorRow::tensor,
                                                             kKey},
                                                        }),
                                                        AccumulatorColumns<AccumulatorRow>());

// The same of an accumulator that a scenario of log.what_if asks about.
struct WhatIfAccumulatorRow : AccumulatorRow {
  static constexpr char kFile[] = "what_if_accumulators.csv";
  std::string scenario;
};
template <>
inline constexpr auto kColumns<WhatIfAccumulatorRow> =
    Joined(std::to_array<Column<WhatIfAccumulatorRow>>({
               {"step", &WhatIfAccumulatorRow::step, kKey},
               {"epoch", &WhatIfAccumulatorRow::epoch},
               {"layer", &WhatIfAccumulatorRow::layer, kKey},
               {"tensor", &WhatIfAccumulatorRow::tensor, kKey},
               {"scenario", &WhatIfAccumulatorRow::scenario, kKey},
           }),
           AccumulatorColumns<WhatIfAccumulatorRow>());

// How many values of one tensor have one exponent in one step.
// Rows of one tensor stand together: zero, inf and nan first, then exponents that occur.
struct HistogramRow {
  static constexpr char kFile[] = "histograms.csv";
  std::int64_t step = 0, epoch = 0;
  std::string layer, tensor;
  double scale = 1;
  std::string exponent;  // an integer, zero, inf or nan
  std::int64_t count = 0;
};
template <>
inline constexpr auto kColumns<HistogramRow> = std::to_array<Column<HistogramRow>>({
    {"step", &HistogramRow::step, kKey},
    {"epoch", &HistogramRow::epoch},
    {"layer", &HistogramRow::layer, kKey},
    {"tensor", &HistogramRow::tensor, kKey},
    {"scale", &HistogramRow::scale, kExact | kWordNan},
    {"exponent", &HistogramRow::exponent, kKey},
    {"count", &HistogramRow::count, kKey},
});

// What a scenario would have lost of one tensor in one step.
struct WhatIfRow {
  static constexpr char kFile[] = "what_if.csv";
  std::int64_t step = 0, epoch = 0;
  std::string layer, tensor, scenario, format;
  double scale = 1;
  double underflow_pct_nonzero = NAN, overflow = 0;  // the percentage: NaN where all are zero
  // The content of the bins that contain the thresholds: how far off the two may be.
  double underflow_unsure_pct = NAN;
  std::int64_t overflow_unsure = 0;
};
template <>
inline constexpr auto kColumns<WhatIfRow> = std::to_array<Column<WhatIfRow>>({
    {"step", &WhatIfRow::step, kKey},
    {"epoch", &WhatIfRow::epoch},
    {"layer", &WhatIfRow::layer, kKey},
    {"tensor", &WhatIfRow::tensor, kKey},
    {"scenario", &WhatIfRow::scenario, kKey},
    {"format", &WhatIfRow::format},
    {"scale", &WhatIfRow::scale, kExact},
    {"underflow_pct_nonzero", &WhatIfRow::underflow_pct_nonzero, kEmptyNan},
    {"overflow", &WhatIfRow::overflow},
    {"underflow_unsure_pct", &WhatIfRow::underflow_unsure_pct, kEmptyNan},
    {"overflow_unsure", &WhatIfRow::overflow_unsure},
});

// What a scenario with a block-scaled format would have done to one operand in one step.
struct WhatIfBlockRow : BlockFigures {
  static constexpr char kFile[] = "what_if_blocks.csv";
  std::int64_t step = 0, epoch = 0;
  std::string layer, tensor, scenario, format;
  double scale = 1;  // S that the values carry
};
template <>
inline constexpr auto kColumns<WhatIfBlockRow> =
    Joined(std::to_array<Column<WhatIfBlockRow>>({
               {"step", &WhatIfBlockRow::step, kKey},
               {"epoch", &WhatIfBlockRow::epoch},
               {"layer", &WhatIfBlockRow::layer, kKey},
               {"tensor", &WhatIfBlockRow::tensor, kKey},
               {"scenario", &WhatIfBlockRow::scenario, kKey},
               {"format", &WhatIfBlockRow::format},
               {"scale", &WhatIfBlockRow::scale, kExact},
           }),
           BlockColumns<WhatIfBlockRow>());

// One tensor of a probe step compared with the same tensor computed in fp32 from the same weights
// and batch. All values are without scale.
struct ProbeRow {
  static constexpr char kFile[] = "probes.csv";
  std::int64_t step = 0, epoch = 0;
  std::string layer, tensor, format;
  double scale = 1;
  std::int64_t numel = 0;
  std::int64_t nonzero = 0;  // of the fp32 values
  std::int64_t lost = 0;     // of those: zero in the run, through this rounding or earlier ones
  double mse = NAN;          // mean of (run - fp32)^2
  double sqnr_db = NAN;      // 10 log10(mean of fp32^2 / mse); inf where they are equal
  double cosine = NAN;       // of the angle between the two; NaN where one is zero
  double lost_pct = NAN;     // of `nonzero`; RunLogs fills it in
  // For a gradient: its fp32 norm divided by that of the run's errors; inf if both are equal.
  double norm_over_noise = NAN;
};
template <>
inline constexpr auto kColumns<ProbeRow> = std::to_array<Column<ProbeRow>>({
    {"step", &ProbeRow::step},
    {"epoch", &ProbeRow::epoch},
    {"layer", &ProbeRow::layer, kKey},
    {"tensor", &ProbeRow::tensor, kKey},
    {"format", &ProbeRow::format},
    {"scale", &ProbeRow::scale, kExact},
    {"numel", &ProbeRow::numel},
    {"nonzero", &ProbeRow::nonzero},
    {"lost", &ProbeRow::lost},
    {"lost_pct", &ProbeRow::lost_pct, kEmptyNan | kKey},
    {"mse", &ProbeRow::mse, kEmptyNan},
    {"sqnr_db", &ProbeRow::sqnr_db, kEmptyNan},
    {"cosine", &ProbeRow::cosine, kEmptyNan},
    {"norm_over_noise", &ProbeRow::norm_over_noise, kEmptyNan},
});

// An event that a reader of the run should know about. `value` is a number or a word,
// depending on the event (listed in README.md); layer and tensor are empty if it concerns
// neither.
struct EventRow {
  static constexpr char kFile[] = "events.csv";
  std::int64_t step = 0, epoch = 0;
  std::string event, layer, tensor, value, message;
};
// The event of an image that could not be used and was left out; `value` is its broken file.
inline constexpr char kBrokenImage[] = "broken_image";
template <>
inline constexpr auto kColumns<EventRow> = std::to_array<Column<EventRow>>({
    {"step", &EventRow::step, kKey},
    {"epoch", &EventRow::epoch},
    {"event", &EventRow::event, kKey},
    {"layer", &EventRow::layer},
    {"tensor", &EventRow::tensor},
    {"value", &EventRow::value},
    {"message", &EventRow::message},
});

// One evaluation of one split. top1 and top5 are of classification and language; other tasks have
// ClassRows.
// loss is the mean over the images, top1 and top5 shares of 0 to 1.
struct EvaluationRow {
  static constexpr char kFile[] = "evaluation.csv";
  std::int64_t step = 0, epoch = 0;
  std::string split;
  std::int64_t images = 0;
  double loss = NAN, top1 = NAN, top5 = NAN;
};
template <>
inline constexpr auto kColumns<EvaluationRow> = std::to_array<Column<EvaluationRow>>({
    {"step", &EvaluationRow::step, kKey},
    {"epoch", &EvaluationRow::epoch},
    {"split", &EvaluationRow::split, kKey},
    {"images", &EvaluationRow::images},
    {"loss", &EvaluationRow::loss, kKey},
    {"top1", &EvaluationRow::top1, kKey | kEmptyNan},
    {"top5", &EvaluationRow::top5, kEmptyNan},
});

// An evaluation's results for one class, or (kAllClasses) for all classes together: segmentation
// and detection. Members of the other task are unset; NaN: nothing to measure. iou, accuracy and
// pixel_accuracy are shares, 0 to 1, for segmentation; ap_07 and ap are average precisions, by the
// rules of VOC2007 and by area, for detection.
struct ClassRow {
  static constexpr char kFile[] = "classes.csv";
  std::int64_t step = 0, epoch = 0;
  std::string split, name;
  std::int64_t count = 0;  // pixels of the class with a label; its objects that are not difficult
  std::optional<double> iou = std::nullopt, accuracy = std::nullopt, pixel_accuracy = std::nullopt;
  std::optional<double> ap_07 = std::nullopt, ap = std::nullopt;
  bool all() const;  // the row of all classes: means, and pixel_accuracy
};
inline constexpr char kAllClasses[] = "all";
inline bool ClassRow::all() const { return name == kAllClasses; }
template <>
inline constexpr auto kColumns<ClassRow> = std::to_array<Column<ClassRow>>({
    {"step", &ClassRow::step, kKey},
    {"epoch", &ClassRow::epoch},
    {"split", &ClassRow::split, kKey},
    {"class", &ClassRow::name, kKey},
    {"count", &ClassRow::count},
    {"iou", &ClassRow::iou, kEmptyNan},
    {"accuracy", &ClassRow::accuracy, kEmptyNan},
    {"pixel_accuracy", &ClassRow::pixel_accuracy, kEmptyNan},
    {"ap_07", &ClassRow::ap_07, kEmptyNan},
    {"ap", &ClassRow::ap, kEmptyNan},
});

// How many pixels of one class were predicted as another class, or as itself.
struct ConfusionRow {
  static constexpr char kFile[] = "confusion.csv";
  std::int64_t step = 0, epoch = 0;
  std::string split, truth, prediction;
  std::int64_t count = 0;
};
template <>
inline constexpr auto kColumns<ConfusionRow> = std::to_array<Column<ConfusionRow>>({
    {"step", &ConfusionRow::step, kKey},
    {"epoch", &ConfusionRow::epoch},
    {"split", &ConfusionRow::split, kKey},
    {"class", &ConfusionRow::truth, kKey},
    {"prediction", &ConfusionRow::prediction, kKey},
    {"count", &ConfusionRow::count, kKey},
});

// The two parts of the loss of one attempt: detection.
struct LossRow {
  static constexpr char kFile[] = "losses.csv";
  std::int64_t step = 0, epoch = 0;
  double locations = NAN, classes = NAN;
  std::int64_t terms = 0;  // default boxes with an object, over which the loss is a mean
};
template <>
inline constexpr auto kColumns<LossRow> = std::to_array<Column<LossRow>>({
    {"step", &LossRow::step, kKey},
    {"epoch", &LossRow::epoch},
    {"locations", &LossRow::locations, kKey},
    {"classes", &LossRow::classes, kKey},
    {"terms", &LossRow::terms},
});

// Seconds of one logged interval, and of its parts: waiting for data, the passes, the weight update
// and writing logs. The remainder of `seconds` is evaluation, checkpoints and the like.
struct TimingRow {
  static constexpr char kFile[] = "timing.csv";
  std::int64_t step = 0;
  double seconds = 0, images_per_second = 0;
  double data = 0, forward = 0, backward = 0, update = 0, log = 0;
  double tokens = NAN;  // per second; NaN: samples are images
};
template <>
inline constexpr auto kColumns<TimingRow> = std::to_array<Column<TimingRow>>({
    {"step", &TimingRow::step, kKey},
    {"seconds", &TimingRow::seconds},
    {"images_per_second", &TimingRow::images_per_second},
    {"data", &TimingRow::data},
    {"forward", &TimingRow::forward},
    {"backward", &TimingRow::backward},
    {"update", &TimingRow::update},
    {"log", &TimingRow::log},
    {"tokens", &TimingRow::tokens, kEmptyNan},
});

}  // namespace ada::telemetry

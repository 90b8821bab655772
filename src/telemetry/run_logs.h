// The CSV files of a run: one typed row each, columns as in INTERFACE ("A run's folder"). Rows are
// written as they come; what they sum up to is run_totals.h's work. Whole numbers in columns of
// real ones are written as `65536.0`: readers that guess types need no options.
#pragma once
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/exponent_bins.h"
#include "core/number_format.h"
#include "core/stats.h"
#include "scaling/rules/rules.h"

namespace ada::telemetry {

struct StepRow {
  std::int64_t step = 0, epoch = 0;  // from 1
  double loss = 0, accuracy = 0, lr = 0, scale = 1;
  bool overflow = false, skipped = false;
  double grad_norm = 0;
};
struct EventRow {
  std::int64_t step = 0, epoch = 0;
  std::string event, layer, tensor, value, message;
};
struct EvaluationRow {
  std::int64_t step = 0, epoch = 0;
  std::string split;
  std::int64_t images = 0;
  double loss = 0, top1 = 0, top5 = 0;
};
// What a scenario would have lost of one tensor in one step (WouldLose).
struct WhatIfRow {
  std::int64_t step = 0, epoch = 0;
  std::string layer, tensor, scenario, format;
  double scale = 1;
  double underflow_pct_nonzero = 0, overflow = 0;  // the percentage: NaN where all are zero
  // What the bins in which the thresholds lie hold: how far off the two may be.
  double underflow_unsure_pct = 0;
  std::int64_t overflow_unsure = 0;
};
// One tensor of a probe step beside the same tensor computed in fp32 from the same weights and
// batch. All values without scale.
struct ProbeRow {
  std::int64_t step = 0, epoch = 0;
  std::string layer, tensor, format;
  double scale = 1;
  std::int64_t numel = 0;
  std::int64_t nonzero = 0;  // of the fp32 values
  std::int64_t lost = 0;     // of those: zero in the run, here or because of what came before
  double mse = 0;            // mean of (run - fp32)^2
  double sqnr_db = 0;        // 10 log10(mean of fp32^2 / mse); inf where they are equal
  double cosine = 1;         // of the angle between the two; NaN where one is zero
};
// Seconds of one logged interval, by phase.
struct TimingRow {
  std::int64_t step = 0;
  double seconds = 0, images_per_second = 0;
  double data = 0, forward = 0, backward = 0, update = 0, log = 0;
};

// The first lines of the files.
inline constexpr char kStepColumns[] =
    "step,epoch,loss,accuracy,lr,scale,overflow,skipped,grad_norm";
inline constexpr char kScaleColumns[] =
    "step,epoch,layer,policy,scale_in,unbound,bound,pow2,alpha,scale_out,limit";
inline constexpr char kUnderflowColumns[] =
    "step,epoch,layer,tensor,format,scale,numel,zeros_before,zeros_after,underflow,"
    "underflow_pct_nonzero,underflow_pct_numel,below_min_pct,subnormal,overflow,inf,nan,min_abs,"
    "max_abs,mean,std,l1,l2,range_log2,mse,sqnr_db";
inline constexpr char kEventColumns[] = "step,epoch,event,layer,tensor,value,message";
inline constexpr char kEvaluationColumns[] = "step,epoch,split,images,loss,top1,top5";
inline constexpr char kHistogramColumns[] = "step,epoch,layer,tensor,scale,exponent,count";
inline constexpr char kWhatIfColumns[] =
    "step,epoch,layer,tensor,scenario,format,scale,underflow_pct_nonzero,overflow,"
    "underflow_unsure_pct,overflow_unsure";
inline constexpr char kProbeColumns[] =
    "step,epoch,layer,tensor,format,scale,numel,nonzero,lost,lost_pct,mse,sqnr_db,cosine";
// seconds: of the logged interval, and of its parts: waiting for data, the passes, the weight
// update, writing logs. What is missing to `seconds` is evaluation, checkpoints and the like.
inline constexpr char kTimingColumns[] =
    "step,seconds,images_per_second,data,forward,backward,update,log";

// Files that exist only where they are asked for, or where the checkpoint knows them. One that a
// resumed run asks for and its checkpoint does not know starts afresh; one that is neither asked
// for nor known is deleted where it lies in the folder.
struct LogChoice {
  bool histograms = false, what_if = false, probes = false;
};
// mse and sqnr_db of a row of underflow.csv; NaN: empty (not a probe step).
struct ProbeError {
  double mse = NAN, sqnr_db = NAN;
};

class RunLogs {
 public:
  // `lengths`: file name -> bytes to keep, from a checkpoint; empty: start afresh. timing.csv,
  // which no checkpoint records, is cut behind the last step that steps.csv keeps. Throws
  // OutputError with the system's reason; DataError where the files are not those of the
  // checkpoint.
  RunLogs(const std::string& folder, const std::map<std::string, std::int64_t>& lengths,
          const LogChoice& choice = {});
  ~RunLogs();
  void Step(const StepRow& row);
  void Scale(std::int64_t step, std::int64_t epoch, const std::string& layer,
             const std::string& policy, const scaling::ScaleDecision& decision);
  // `stats` must be full; its values carry `scale` and are logged without it.
  void Underflow(std::int64_t step, std::int64_t epoch, const std::string& layer,
                 const std::string& tensor, const NumberFormat& format, double scale,
                 const TensorStats& stats, const ProbeError& error = {});
  // `zero`, `inf` and `nan` first, always (the column is then text to every reader), then one row
  // for each exponent that occurs, rising. The rows' scale is the one that the tensor carried.
  // InternalError where the file was not asked for, as in the two below.
  void Histogram(std::int64_t step, std::int64_t epoch, const std::string& layer,
                 const std::string& tensor, double scale, const ExponentBins& bins);
  void WhatIf(const WhatIfRow& row);
  void Probe(const ProbeRow& row);
  void Event(const EventRow& row);
  void Evaluation(const EvaluationRow& row);
  void Timing(const TimingRow& row);

  void Flush();  // throws OutputError naming the file
  // Syncs all files; lengths for a checkpoint (timing.csv is not among them).
  std::map<std::string, std::int64_t> Sync();

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

}  // namespace ada::telemetry

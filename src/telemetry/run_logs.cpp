// Opens the CSV files of a run, cut to its checkpoint, and writes rows to them.
#include "telemetry/run_logs.h"

#include <sys/stat.h>

#include <cmath>
#include <filesystem>

#include "error.h"

namespace ada::telemetry {
namespace {

using Lengths = std::map<std::string, std::int64_t>;

// What the checkpoint keeps of a file that every run has.
template <class Row>
std::int64_t KnownLength(const std::string& folder, const Lengths& lengths) {
  const auto known = lengths.find(Row::kFile);
  if (known != lengths.end()) return known->second;
  throw DataError(folder + "/" + Row::kFile +
                  ": the checkpoint does not say how long it was; start again with --overwrite");
}

template <class Row>
CsvFile Open(const std::string& folder, const Lengths& lengths) {
  return CsvFile(folder + "/" + Row::kFile, Header<Row>(),
                 lengths.empty() ? -1 : KnownLength<Row>(folder, lengths));
}

template <class Row>
void Check(const std::string& folder, const Lengths& lengths) {
  CheckCsv(folder + "/" + Row::kFile, Header<Row>(), KnownLength<Row>(folder, lengths));
}

template <class Row>
void CheckOptional(const std::string& folder, const Lengths& lengths) {
  if (lengths.contains(Row::kFile)) Check<Row>(folder, lengths);
}

// The whole file is read: rows have no fixed length.
std::int64_t LastStep(const std::string& path) {
  CsvReader steps(path);
  std::int64_t last = 0;
  ReadRows<StepRow>(steps, Expect::kKeys, [&](const StepRow& row) { last = row.step; });
  return last;
}

// Bytes of timing.csv up to its last row at or before the last step of the (already cut) steps.csv.
// -1, a fresh file: there is none, or the killed run had not written its header.
std::int64_t KeepTiming(const std::string& folder, const Lengths& lengths) {
  const std::string path = folder + "/" + TimingRow::kFile;
  struct stat status = {};
  if (lengths.empty() || stat(path.c_str(), &status) != 0 || status.st_size == 0) return -1;
  const std::int64_t last = LastStep(folder + "/" + StepRow::kFile);
  CsvReader timing(path);
  const std::size_t column = timing.Column("step");
  std::int64_t keep = timing.offset();
  try {
    while (timing.Next() && timing.Integer(column) <= last) keep = timing.offset();
  } catch (const DataError&) {  // a torn last row goes the way of the steps that are done again
  }
  return keep;
}

// A file that not every run has: there where it is wanted, or where the checkpoint knows it (then
// it is cut like the others). Else one that lies there goes: its rows are of steps to be done
// again, or of an earlier run.
template <class Row>
std::unique_ptr<CsvFile> OpenOptional(const std::string& folder, const Lengths& lengths,
                                      bool wanted) {
  const std::string path = folder + "/" + Row::kFile;
  const auto known = lengths.find(Row::kFile);
  if (known != lengths.end()) {
    return std::make_unique<CsvFile>(path, Header<Row>(), known->second);
  }
  if (wanted) return std::make_unique<CsvFile>(path, Header<Row>());
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) throw OutputError(path + ": cannot be deleted: " + error.message());
  return nullptr;
}

}  // namespace

// Values that are not finite count as not zero, in the columns as well.
double UnderflowPct(const TensorStats& stats) {
  const std::int64_t not_zero = stats.numel - stats.zeros_before;
  // Nothing can be said where no number is finite.
  return stats.inf + stats.nan == not_zero ? NAN : PercentOf(stats.underflow, not_zero);
}

// A branch point has no alpha and no stages.
ScaleRow ScaleRowOf(std::int64_t step, std::int64_t epoch, const std::string& layer,
                    const std::string& policy, const scaling::ScaleDecision& decision) {
  ScaleRow row;
  row.step = step;
  row.epoch = epoch;
  row.layer = layer;
  row.policy = policy;
  row.scale_in = decision.scale_in;
  if (decision.limit != scaling::Limit::kBranch) {
    row.unbound = decision.unbound;
    row.bound = decision.bound;
    row.pow2 = decision.pow2;
    row.alpha = decision.alpha;
  }
  row.scale_out = decision.scale_out;
  row.limit = scaling::LimitName(decision.limit);
  return row;
}

void AccumulatorRow::Take(const scaling::AccumulatorCounts& counts) {
  numel = counts.sums, products = counts.products, swallowed = counts.swallowed;
  swallowed_pct = PercentOf(counts.swallowed, counts.products);
  lost = counts.lost, overflow = counts.overflow;
  sqnr_db = counts.sqnr_db(), bias = counts.bias(), max_rel = counts.max_rel;
}

// Members are opened in this order; KeepTiming reads steps.csv, which was cut before it.
struct RunLogs::Files {
  Files(const std::string& folder, const Lengths& lengths, const LogChoice& choice)
      : steps(Open<StepRow>(folder, lengths)),
        scales(Open<ScaleRow>(folder, lengths)),
        underflow(Open<TensorRow>(folder, lengths)),
        events(Open<EventRow>(folder, lengths)),
        evaluation(Open<EvaluationRow>(folder, lengths)),
        timing(folder + "/" + TimingRow::kFile, Header<TimingRow>(), KeepTiming(folder, lengths)),
        histograms(OpenOptional<HistogramRow>(folder, lengths, choice.histograms)),
        what_if(OpenOptional<WhatIfRow>(folder, lengths, choice.what_if)),
        what_if_blocks(OpenOptional<WhatIfBlockRow>(folder, lengths, choice.what_if_blocks)),
        probes(OpenOptional<ProbeRow>(folder, lengths, choice.probes)),
        blocks(OpenOptional<BlockRow>(folder, lengths, choice.blocks)),
        accumulators(OpenOptional<AccumulatorRow>(folder, lengths, choice.accumulators)),
        what_if_accumulators(
            OpenOptional<WhatIfAccumulatorRow>(folder, lengths, choice.what_if_accumulators)),
        classes(OpenOptional<ClassRow>(folder, lengths, choice.classes)),
        confusion(OpenOptional<ConfusionRow>(folder, lengths, choice.confusion)),
        losses(OpenOptional<LossRow>(folder, lengths, choice.losses)) {}

  CsvFile steps, scales, underflow, events, evaluation, timing;
  // Null: not written.
  std::unique_ptr<CsvFile> histograms, what_if, what_if_blocks, probes, blocks, accumulators,
      what_if_accumulators, classes, confusion, losses;
};

void CheckLogs(const std::string& folder, const Lengths& lengths) {
  Check<StepRow>(folder, lengths);
  Check<ScaleRow>(folder, lengths);
  Check<TensorRow>(folder, lengths);
  Check<EventRow>(folder, lengths);
  Check<EvaluationRow>(folder, lengths);
  CheckOptional<HistogramRow>(folder, lengths);
  CheckOptional<WhatIfRow>(folder, lengths);
  CheckOptional<WhatIfBlockRow>(folder, lengths);
  CheckOptional<ProbeRow>(folder, lengths);
  CheckOptional<BlockRow>(folder, lengths);
  CheckOptional<AccumulatorRow>(folder, lengths);
  CheckOptional<WhatIfAccumulatorRow>(folder, lengths);
  CheckOptional<ClassRow>(folder, lengths);
  CheckOptional<ConfusionRow>(folder, lengths);
  CheckOptional<LossRow>(folder, lengths);
}

// All files are checked before the first is cut, so that a wrong one leaves the others whole.
RunLogs::RunLogs(const std::string& folder, const Lengths& lengths, const LogChoice& choice) {
  if (!lengths.empty()) CheckLogs(folder, lengths);
  files_ = std::make_unique<Files>(folder, lengths, choice);
}
RunLogs::~RunLogs() = default;

void RunLogs::Step(const StepRow& row) { files_->steps.Add(FieldsOf(row)); }

void RunLogs::Scale(std::int64_t step, std::int64_t epoch, const std::string& layer,
                    const std::string& policy, const scaling::ScaleDecision& decision) {
  files_->scales.Add(FieldsOf(ScaleRowOf(step, epoch, layer, policy, decision)));
}

void RunLogs::Underflow(std::int64_t step, std::int64_t epoch, const std::string& layer,
                        const std::string& tensor, const FormatLabel& format, double carried,
                        const TensorStats& stats, const ProbeError& error,
                        double per_tensor_scale) {
  ADA_CHECK(stats.full);
  TensorRow row;
  row.step = step;
  row.epoch = epoch;
  row.layer = layer;
  row.tensor = tensor;
  row.format = format.text;
  row.scale = carried * per_tensor_scale;
  row.numel = stats.numel;
  row.zeros_before = stats.zeros_before;
  row.zeros_after = stats.zeros_after;
  row.underflow = stats.underflow;
  row.underflow_pct_nonzero = UnderflowPct(stats);
  row.underflow_pct_numel = PercentOf(stats.underflow, stats.numel);
  row.below_min_pct = PercentOf(stats.below_min, stats.numel);
  row.subnormal = stats.subnormal;
  row.overflow = stats.overflow;
  row.inf = stats.inf;
  row.nan = stats.nan;
  const double smallest = stats.min_abs, largest = stats.max_abs;
  if (smallest > 0) {  // a finite value that is not zero
    row.min_abs = smallest / carried;
    row.range_log2 = std::log2(largest / smallest);
  }
  row.max_abs = largest / carried;
  row.mean = stats.mean / carried;
  row.std = stats.std / carried;
  row.l1 = stats.l1 / carried;
  row.l2 = stats.l2 / carried;
  row.mse = error.mse;
  row.sqnr_db = error.sqnr_db;
  if (stats.zero_denominators >= 0)
    row.zero_denominators = static_cast<double>(stats.zero_denominators);
  files_->underflow.Add(FieldsOf(row));
}

void RunLogs::Histogram(std::int64_t step, std::int64_t epoch, const std::string& layer,
                        const std::string& tensor, double scale, const ExponentBins& bins) {
  ADA_CHECK(files_->histograms != nullptr);
  HistogramRow row{step, epoch, layer, tensor, scale, "", 0};
  const auto write = [&](const std::string& exponent, std::int64_t count) {
    row.exponent = exponent;
    row.count = count;
    files_->histograms->Add(FieldsOf(row));
  };
  write("zero", bins.zeros);
  write("inf", bins.inf);
  write("nan", bins.nan);
  for (int exponent = ExponentBins::kLowest; exponent <= ExponentBins::kHighest; ++exponent) {
    if (bins[exponent] > 0) write(std::to_string(exponent), bins[exponent]);
  }
}

void RunLogs::Blocks(const BlockRow& row) {
  ADA_CHECK(files_->blocks != nullptr);
  files_->blocks->Add(FieldsOf(row));
}

void RunLogs::Accumulators(const AccumulatorRow& row) {
  ADA_CHECK(files_->accumulators != nullptr);
  files_->accumulators->Add(FieldsOf(row));
}

void RunLogs::WhatIf(const WhatIfRow& row) {
  ADA_CHECK(files_->what_if != nullptr);
  files_->what_if->Add(FieldsOf(row));
}

void RunLogs::WhatIf(const WhatIfBlockRow& row) {
  ADA_CHECK(files_->what_if_blocks != nullptr);
  files_->what_if_blocks->Add(FieldsOf(row));
}

void RunLogs::WhatIf(const WhatIfAccumulatorRow& row) {
  ADA_CHECK(files_->what_if_accumulators != nullptr);
  files_->what_if_accumulators->Add(FieldsOf(row));
}

void RunLogs::Probe(ProbeRow row) {
  ADA_CHECK(files_->probes != nullptr);
  row.lost_pct = PercentOf(row.lost, row.nonzero);
  files_->probes->Add(FieldsOf(row));
}

void RunLogs::Classes(const ClassRow& row) {
  ADA_CHECK(files_->classes != nullptr);
  files_->classes->Add(FieldsOf(row));
}

void RunLogs::Confusion(const ConfusionRow& row) {
  ADA_CHECK(files_->confusion != nullptr);
  files_->confusion->Add(FieldsOf(row));
}

void RunLogs::Losses(const LossRow& row) {
  ADA_CHECK(files_->losses != nullptr);
  files_->losses->Add(FieldsOf(row));
}

void RunLogs::Event(const EventRow& row) { files_->events.Add(FieldsOf(row)); }

void RunLogs::Evaluation(const EvaluationRow& row) { files_->evaluation.Add(FieldsOf(row)); }

void RunLogs::Timing(const TimingRow& row) { files_->timing.Add(FieldsOf(row)); }

void RunLogs::Flush() {
  Files& f = *files_;
  for (CsvFile* file : {f.histograms.get(), f.what_if.get(), f.what_if_blocks.get(), f.probes.get(),
                        f.blocks.get(), f.accumulators.get(), f.what_if_accumulators.get(),
                        f.classes.get(), f.confusion.get(), f.losses.get()}) {
    if (file != nullptr) file->Flush();
  }
  // steps.csv last: a row there means that the other files know its step.
  for (CsvFile* file : {&f.scales, &f.underflow, &f.events, &f.evaluation, &f.timing, &f.steps}) {
    file->Flush();
  }
}

Lengths RunLogs::Sync() {
  Files& f = *files_;
  Lengths lengths;
  if (f.histograms) lengths[HistogramRow::kFile] = f.histograms->Sync();
  if (f.what_if) lengths[WhatIfRow::kFile] = f.what_if->Sync();
  if (f.what_if_blocks) lengths[WhatIfBlockRow::kFile] = f.what_if_blocks->Sync();
  if (f.probes) lengths[ProbeRow::kFile] = f.probes->Sync();
  if (f.blocks) lengths[BlockRow::kFile] = f.blocks->Sync();
  if (f.accumulators) lengths[AccumulatorRow::kFile] = f.accumulators->Sync();
  if (f.what_if_accumulators) lengths[WhatIfAccumulatorRow::kFile] = f.what_if_accumulators->Sync();
  if (f.classes) lengths[ClassRow::kFile] = f.classes->Sync();
  if (f.confusion) lengths[ConfusionRow::kFile] = f.confusion->Sync();
  if (f.losses) lengths[LossRow::kFile] = f.losses->Sync();
  lengths[ScaleRow::kFile] = f.scales.Sync();
  lengths[TensorRow::kFile] = f.underflow.Sync();
  lengths[EventRow::kFile] = f.events.Sync();
  lengths[EvaluationRow::kFile] = f.evaluation.Sync();
  f.timing.Sync();
  lengths[StepRow::kFile] = f.steps.Sync();
  return lengths;
}

}  // namespace ada::telemetry

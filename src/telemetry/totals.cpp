// Adds rows up as they were logged, and reads them back from the files of a run that goes on.
#include "telemetry/totals.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "io/tensor_names.h"
#include "telemetry/run_logs.h"

namespace ada::telemetry {
namespace {

// The element of `items` under `key`, made where there is none.
// Keeps the order of first appearance, which the map alone would lose.
template <class Item, class Key>
Item& At(std::vector<Item>& items, std::map<Key, std::size_t>& index, const Key& key) {
  const auto [place, is_new] = index.try_emplace(key, items.size());
  if (is_new) items.emplace_back();
  return items[place->second];
}

// Calls `use` with each row of a file that the run goes on from.
template <class Row, class Use>
void EachRow(const std::string& folder, const Use& use) {
  CsvReader file(folder + "/" + Row::kFile);
  ReadRows<Row>(file, Expect::kAll, use);
}

}  // namespace

// Sums are over the values as logged, so that reading them back gives the same.
void RunTotals::Add(const StepRow& row) {
  // Means begin anew with each epoch.
  if (row.epoch != last_.epoch) {
    epoch_steps_ = 0;
    loss_sum_ = accuracy_sum_ = 0;
  }
  last_ = row;
  last_.loss = AsLogged(row.loss);
  last_.accuracy = AsLogged(row.accuracy);
  last_.lr = AsLogged(row.lr);
  last_.grad_norm = AsLogged(row.grad_norm);
  skipped_ += row.skipped;
  finiteness_.Add(row);
  // A loss of 0 without a right answer is that of a batch without labels, which has none.
  const bool has_labels = last_.loss != 0 || last_.accuracy != 0;
  if (!std::isfinite(row.loss) || !has_labels) return;
  ++epoch_steps_;
  loss_sum_ += last_.loss;
  accuracy_sum_ += last_.accuracy;
}

// Only a better one replaces the best, so that the first of equals stays; NaN is worse than any.
void RunTotals::Add(const EvaluationRow& row) {
  EvaluationRow logged = row;
  logged.loss = AsLogged(row.loss);
  logged.top1 = AsLogged(row.top1);
  logged.top5 = AsLogged(row.top5);
  const auto split = std::find_if(evaluations_.begin(), evaluations_.end(),
                                  [&](const SplitTotals& s) { return s.last.split == row.split; });
  if (split == evaluations_.end()) {
    evaluations_.push_back({logged, logged});
    return;
  }
  split->last = logged;
  const double now = by_loss_ ? -logged.loss : logged.top1;
  const double best = by_loss_ ? -split->best.loss : split->best.top1;
  if (now > best || (std::isnan(best) && !std::isnan(now))) split->best = logged;
}

void RunTotals::Add(const ClassRow& row) {
  if (!row.all()) return;
  const auto split = std::find_if(evaluations_.begin(), evaluations_.end(),
                                  [&](const SplitTotals& s) { return s.last.split == row.split; });
  if (split == evaluations_.end()) return;
  ClassRow logged = row;
  for (std::optional<double> ClassRow::*share :
       {&ClassRow::iou, &ClassRow::accuracy, &ClassRow::pixel_accuracy, &ClassRow::ap_07,
        &ClassRow::ap})
    if (logged.*share) logged.*share = AsLogged(*(logged.*share));
  const std::vector<Metric> now = MetricsOf(logged);
  if (now.empty()) return;
  split->last_all = logged;
  // A metric without anything to measure is worse than any other.
  const bool better = by_loss_
                          ? split->best.step == logged.step
                          : !split->best_all ||
                                now.front().value > MetricsOf(*split->best_all).front().value ||
                                std::isnan(MetricsOf(*split->best_all).front().value);
  if (better) split->best_all = logged;
}

std::vector<Metric> MetricsOf(const ClassRow& all) {
  std::vector<Metric> metrics;
  const auto add = [&](const char* key, const char* name, std::optional<double> value) {
    if (value) metrics.push_back({key, name, *value});
  };
  add("miou", "mIoU", all.iou);
  add("mean_class_accuracy", "mean class accuracy", all.accuracy);
  add("pixel_accuracy", "pixel accuracy", all.pixel_accuracy);
  add("map_07", "mAP (2007)", all.ap_07);
  add("map", "mAP", all.ap);
  return metrics;
}

double RunTotals::epoch_loss() const {
  return epoch_steps_ > 0 ? loss_sum_ / static_cast<double>(epoch_steps_) : NAN;
}
double RunTotals::epoch_accuracy() const {
  return epoch_steps_ > 0 ? accuracy_sum_ / static_cast<double>(epoch_steps_) : NAN;
}

void RunTotals::Add(const EventRow& row) {
  if (row.event == kBrokenImage) ++broken_images_[row.value];
  finiteness_.Add(row);
}

// Evaluations before classes, which belong to them. Which number decides is a choice of the run,
// not of the files.
void RunTotals::RebuildFrom(const std::string& folder) {
  const bool by_loss = by_loss_;
  *this = RunTotals();
  by_loss_ = by_loss;
  EachRow<StepRow>(folder, [this](const StepRow& row) { Add(row); });
  EachRow<EvaluationRow>(folder, [this](const EvaluationRow& row) { Add(row); });
  std::error_code error;
  if (std::filesystem::exists(folder + "/" + ClassRow::kFile, error))  // of some tasks
    EachRow<ClassRow>(folder, [this](const ClassRow& row) { Add(row); });
  EachRow<TimingRow>(folder, [this](const TimingRow& row) { Add(row); });
  EachRow<EventRow>(folder, [this](const EventRow& row) { Add(row); });
}

// A row whose share is NaN (nothing but zeros, inf and NaN) counts as a row, and not in the mean.
void LayerTotals::AddUnderflow(const std::string& layer, const std::string& tensor, double scale,
                               const TensorStats& stats, const std::string& format,
                               std::int64_t step) {
  TensorTotals& totals = At(tensors_, tensor_index_, std::pair(layer, tensor));
  totals.layer = layer;
  totals.tensor = tensor;
  ++totals.rows;
  totals.last_step = step;
  totals.numel += stats.numel;
  totals.zeros_before += stats.zeros_before;
  totals.underflow += stats.underflow;
  totals.overflow += stats.overflow;
  totals.last_scale = scale;
  totals.last_format = format;
  totals.last_zero_denominators = stats.zero_denominators;
  totals.most_zero_denominators = std::max(totals.most_zero_denominators, stats.zero_denominators);
  totals.came_empty = stats.numel > 0 && stats.zeros_before == stats.numel;
  totals.left_empty = stats.numel > 0 && stats.zeros_before + stats.underflow == stats.numel;
  totals.broken_rows += stats.inf + stats.nan + stats.overflow > 0;
  totals.last_pct = 0;
  const double pct = UnderflowPct(stats);
  if (std::isnan(pct)) return;
  totals.last_pct = pct;
  if (totals.pct_rows == 0) {
    totals.first_pct = pct, totals.first_scale = scale;
    totals.first_step = step, totals.first_format = format;
  }
  ++totals.pct_rows;
  const double lost = pct + 100 * static_cast<double>(stats.overflow) /
                                static_cast<double>(stats.numel - stats.zeros_before);
  totals.lost_sum += lost;
  totals.lost_max = std::max(totals.lost_max, lost);
  totals.pct_sum += pct;
  totals.pct_max = std::max(totals.pct_max, pct);
}

void LayerTotals::Add(const TensorRow& row) {
  TensorStats stats;
  stats.numel = row.numel;
  stats.zeros_before = row.zeros_before;
  stats.underflow = row.underflow;
  stats.overflow = row.overflow;
  stats.inf = row.inf;
  stats.nan = row.nan;
  if (row.zero_denominators)
    stats.zero_denominators = static_cast<std::int64_t>(*row.zero_denominators);
  AddUnderflow(row.layer, row.tensor, row.scale, stats, row.format, row.step);
}

void LayerTotals::AddScale(const std::string& layer, const scaling::ScaleDecision& decision) {
  Add(ScaleRowOf(0, 0, layer, "", decision));
}

void LayerTotals::Add(const ScaleRow& row) {
  ScaleTotals& totals = At(scales_, scale_index_, std::pair(row.layer, row.branch()));
  totals.layer = row.layer;
  totals.branch = row.branch();
  ++totals.rows;
  totals.last_scale_in = row.scale_in;
  totals.last_scale_out = row.scale_out;
  totals.last_bound = AsLogged(row.bound);
  totals.last_alpha = row.alpha;
  totals.last_limit = row.limit;
  ++totals.limits[row.limit];
}

const ScaleTotals* LayerTotals::FindScale(const std::string& layer, bool branch) const {
  const auto found = scale_index_.find({layer, branch});
  return found == scale_index_.end() ? nullptr : &scales_[found->second];
}

const TensorTotals* LayerTotals::FindTensor(const std::string& layer,
                                            const std::string& tensor) const {
  const auto found = tensor_index_.find({layer, tensor});
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

void LayerTotals::RebuildFrom(const std::string& folder) {
  *this = LayerTotals();
  EachRow<TensorRow>(folder, [this](const TensorRow& row) { Add(row); });
  EachRow<ScaleRow>(folder, [this](const ScaleRow& row) { Add(row); });
  std::error_code error;
  if (std::filesystem::exists(folder + "/" + BlockRow::kFile, error))
    EachRow<BlockRow>(folder, [this](const BlockRow& row) { Add(row); });
  if (std::filesystem::exists(folder + "/" + ProbeRow::kFile, error))
    EachRow<ProbeRow>(folder, [this](const ProbeRow& row) { Add(row); });
  if (std::filesystem::exists(folder + "/" + AccumulatorRow::kFile, error))
    EachRow<AccumulatorRow>(folder, [this](const AccumulatorRow& row) { Add(row); });
}

void LayerTotals::Add(const BlockRow& row) {
  broken_blocks_ += row.broken_blocks > 0;
  noise_[{row.layer, row.tensor}] = AsLogged(row.norm_over_noise);
}

void LayerTotals::Add(const AccumulatorRow& row) { AddSums(row, sums_); }

void LayerTotals::Add(const ProbeRow& row) {
  // The row tells of dx too, which is made anew in each layer; dw is what training follows.
  if (row.tensor != "dw" || std::isnan(row.norm_over_noise)) return;
  noise_[{row.layer, row.tensor}] = AsLogged(row.norm_over_noise);
}

// A tensor whose first share is of a later step had no values before, and one whose scale grew has
// what it needed since.
std::optional<LostFromTheStart> FindLostFromTheStart(const LayerTotals& layers) {
  constexpr double kHalf = 50;  // percent
  constexpr double kGrown = 4;  // times
  std::int64_t first_step = 0;
  for (const TensorTotals& t : layers.tensors())
    if (t.pct_rows > 0 && (first_step == 0 || t.first_step < first_step)) first_step = t.first_step;
  const TensorTotals* most =
      WorstTensor(layers, &TensorTotals::first_pct, [&](const TensorTotals& t) {
        return CarriesS(t.tensor) && !IsOperand(t.tensor) && t.first_step == first_step &&
               t.first_pct >= kHalf && t.last_scale < kGrown * t.first_scale;
      });
  if (most == nullptr) return std::nullopt;
  return LostFromTheStart{most->layer,     most->tensor,      most->first_format,
                          most->first_pct, most->first_scale, most->first_step};
}

double LayerTotals::NoiseBefore(const std::string& layer, const std::string& tensor) const {
  const auto found = noise_.find({layer, tensor});
  return found == noise_.end() ? INFINITY : found->second;
}

}  // namespace ada::telemetry

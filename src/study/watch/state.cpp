// How the files of a run become the state that is drawn. steps.csv is the clock: a step's rows in
// the other files are complete once it is there.
#include <algorithm>
#include <limits>

#include "config/load.h"
#include "error.h"
#include "study/run_files.h"
#include "study/watch/watch_view.h"
#include "telemetry/progress_text.h"

namespace ada::study {
namespace {

// What is read of long files at first: some hundred logged steps of a large network.
// A follower that starts in the middle of a long file shows a history that is shorter, and at once.
constexpr std::int64_t kUnderflowWindow = 24 << 20, kScalesWindow = 8 << 20;
constexpr std::int64_t kNoStep = std::numeric_limits<std::int64_t>::max();

// Adds the rows of `rows` up to a step to the state; whether there were any.
template <class Rows>
bool Take(Rows& rows, std::int64_t up_to, WatchState& state) {
  bool any = false;
  for (; !rows.empty() && rows.front().step <= up_to; rows.pop_front()) {
    state.Add(rows.front());
    any = true;
  }
  return any;
}

template <class Rows>
std::int64_t FirstStep(const Rows& rows) {
  return rows.empty() ? kNoStep : rows.front().step;
}

template <class Row, class Use>
void EachNewRow(telemetry::CsvFollower& file, const Use& use) {
  file.Read([&use](telemetry::CsvReader& reader) {
    telemetry::ReadRows<Row>(reader, telemetry::Expect::kNone, use);
  });
}

}  // namespace

double WatchedLayer::mean_pct() const {
  double sum = 0;
  int count = 0;
  for (const double pct : history) {
    if (!std::isfinite(pct)) continue;
    sum += pct;
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

WatchedLayer& WatchState::Layer(const std::string& layer) {
  const auto [at, added] = index_.try_emplace(layer, layers.size());
  if (added) layers.emplace_back().name = layer;
  return layers[at->second];
}

// The run ends at the first of its two limits, where both are known.
std::int64_t WatchState::steps_in_all() const {
  const std::int64_t of_epochs = epochs * epoch_steps;
  return StepsInAll(of_epochs, max_steps);
}

std::int64_t WatchState::epochs_in_all() const {
  return max_steps == 0 ? epochs : telemetry::WholeEpochs(steps_in_all(), epoch_steps);
}

void WatchState::Add(const StepRow& row) {
  const bool begins_epoch = step.epoch > 0 && row.epoch == step.epoch + 1;
  // The configuration does not say how many steps an epoch has: it is known when the second begins.
  if (begins_epoch) epoch_steps = (row.step - 1) / step.epoch;
  step = row;
  skipped += row.skipped;
  finiteness.Add(row);
}

double WatchState::seconds_left() const {
  const std::int64_t all = steps_in_all();
  if (status != "running" || all == 0 || std::isnan(step_seconds)) return -1;
  return step_seconds * static_cast<double>(std::max<std::int64_t>(all - step.step, 0));
}

void WatchState::Add(const TimingRow& row) {
  // A row's seconds are those of the steps since the row before it.
  if (row.step > timing.step)
    step_seconds = row.seconds / static_cast<double>(row.step - timing.step);
  timing = row;
}

void WatchState::Add(const TensorRow& row) {
  logged_step = std::max(logged_step, row.step);
  totals.Add(row);
  const std::string line = LineOfGradient(row.layer, row.tensor);
  if (line.empty()) return;
  WatchedLayer& layer = Layer(line);
  layer.scale = row.scale;
  layer.underflow_pct = row.underflow_pct_nonzero;
  layer.broken = row.inf + row.nan + row.overflow > 0;
  layer.history.push_back(layer.broken ? INFINITY : row.underflow_pct_nonzero);
  if (layer.history.size() > WatchedLayer::kHistory) layer.history.pop_front();
}

// The sum of branches is a decision about a gradient that several layers share, and no layer's own.
void WatchState::Add(const ScaleRow& row) {
  logged_step = std::max(logged_step, row.step);
  if (row.branch()) return;
  WatchedLayer& layer = Layer(row.layer);
  layer.limit = row.limit;
  if (layer.history.empty()) layer.scale = row.scale_out;  // dx is not logged
}

void WatchedBlocks::Add(const BlockRow& row) {
  const auto width = [](const BlockRow& of) { return of.scale_log2_max - of.scale_log2_min; };
  const bool is_first = row.step != step;
  step = row.step;
  // The negated comparisons replace the stored row also if its value is NaN.
  if (is_first || !(row.sqnr_db >= worst.sqnr_db)) worst = row;
  if (is_first || !(width(row) <= width(widest))) widest = row;
}

void WatchedSums::Add(const AccumulatorRow& row) {
  if (row.step != step || !(row.sqnr_db >= worst.sqnr_db)) worst = row;
  step = row.step;
}

void WatchState::Add(const BlockRow& row) {
  if (!IsOperand(row.tensor)) return;
  blocks.Add(row);
  if (const std::optional<Operand> operand = OperandNamed(row.tensor))
    Layer(row.layer).sqnr[IndexOf(*operand)] = row.sqnr_db;
}

WatchFeed::WatchFeed(std::string folder)
    : folder_(std::move(folder)),
      steps_(folder_ + "/" + StepRow::kFile),
      scales_(folder_ + "/" + ScaleRow::kFile, kScalesWindow),
      underflow_(folder_ + "/" + TensorRow::kFile, kUnderflowWindow),
      blocks_(folder_ + "/" + BlockRow::kFile, kUnderflowWindow),
      sums_(folder_ + "/" + AccumulatorRow::kFile, kUnderflowWindow),
      timing_(folder_ + "/" + TimingRow::kFile),
      events_(folder_ + "/" + EventRow::kFile),
      evaluation_(folder_ + "/" + EvaluationRow::kFile),
      classes_(folder_ + "/" + ClassRow::kFile) {}

void WatchFeed::ReadConfig(WatchState& state) {
  if (configured_) return;
  try {
    const config::Config config = ReadRunConfig(folder_);
    state.name = config.name;
    state.epochs = config.train.epochs;
    state.max_steps = config.train.max_steps;
    state.language = config.task == Task::kLanguage;
    state.bytes = config::TokensAreBytes(config);
    state.uncounted = config::UncountedStatistics(config);
    configured_ = true;
  } catch (const Error&) {  // not there yet, or of another version: the table does without it
    // It is asked again at each look until it can be read.
  }
}

// The order of layers is that of a step's rows, so the first one is passed over where rows before
// them were.
template <class Row>
void PassOverTornStep(const telemetry::CsvFollower& file, std::deque<Row>& rows) {
  if (!file.jumped() || rows.empty()) return;
  const std::int64_t torn = rows.front().step;
  while (!rows.empty() && rows.front().step == torn) rows.pop_front();
}

// Rows wait in deques until steps.csv has their step.
void WatchFeed::ReadFiles() {
  // steps.csv first: it is written last, so the rows of its steps are whole in the others.
  EachNewRow<StepRow>(steps_, [&](const StepRow& row) { step_rows_.push_back(row); });
  EachNewRow<ScaleRow>(scales_, [&](const ScaleRow& row) { scale_rows_.push_back(row); });
  EachNewRow<TensorRow>(underflow_, [&](const TensorRow& row) { tensor_rows_.push_back(row); });
  EachNewRow<BlockRow>(blocks_, [&](const BlockRow& row) { block_rows_.push_back(row); });
  EachNewRow<AccumulatorRow>(sums_, [&](const AccumulatorRow& row) { sum_rows_.push_back(row); });
  PassOverTornStep(scales_, scale_rows_);
  PassOverTornStep(underflow_, tensor_rows_);
  PassOverTornStep(blocks_, block_rows_);
  PassOverTornStep(sums_, sum_rows_);
  EachNewRow<TimingRow>(timing_, [&](const TimingRow& row) { timing_rows_.push_back(row); });
  EachNewRow<EventRow>(events_, [&](const EventRow& row) { event_rows_.push_back(row); });
  EachNewRow<EvaluationRow>(evaluation_,
                            [&](const EvaluationRow& row) { evaluation_rows_.push_back(row); });
  EachNewRow<ClassRow>(classes_, [&](const ClassRow& row) { class_rows_.push_back(row); });
}

std::int64_t WatchFeed::NextLoggedStep() const {
  return std::min(FirstStep(scale_rows_), FirstStep(tensor_rows_));
}

bool WatchFeed::Apply(std::int64_t up_to, WatchState& state) {
  bool any = Take(step_rows_, up_to, state);
  any |= Take(tensor_rows_, up_to, state);  // before the scales: it has the loss, and every layer
  any |= Take(scale_rows_, up_to, state);
  any |= Take(block_rows_, up_to, state);
  any |= Take(sum_rows_, up_to, state);
  any |= Take(timing_rows_, up_to, state);
  any |= Take(event_rows_, up_to, state);
  any |= Take(evaluation_rows_, up_to, state);
  return Take(class_rows_, up_to, state) || any;
}

bool WatchFeed::Poll(WatchState& state, const std::function<void()>& logged) {
  // A resume cuts the files back to a checkpoint; one that is shorter than before has changed.
  const std::vector<telemetry::CsvFollower*> files = {&steps_,  &scales_,     &underflow_,
                                                      &blocks_, &sums_,       &timing_,
                                                      &events_, &evaluation_, &classes_};
  bool changed = false;
  if (std::any_of(files.begin(), files.end(),
                  [](telemetry::CsvFollower* file) { return file->Changed(); })) {
    const std::string folder = state.folder;
    state = WatchState();
    state.folder = folder;
    for (telemetry::CsvFollower* file : files) file->Restart();
    step_rows_.clear(), scale_rows_.clear(), tensor_rows_.clear();
    block_rows_.clear(), sum_rows_.clear();
    timing_rows_.clear(), event_rows_.clear(), evaluation_rows_.clear(), class_rows_.clear();
    configured_ = false;
    changed = true;
  }
  ReadConfig(state);
  ReadFiles();
  const std::int64_t last = step_rows_.empty() ? state.step.step : step_rows_.back().step;
  // Logged steps are applied one by one, so `logged` sees each of them as it was.
  for (std::int64_t next = NextLoggedStep(); next <= last; next = NextLoggedStep()) {
    changed |= Apply(next, state);
    if (logged) logged();
  }
  return Apply(last, state) || changed;
}

}  // namespace ada::study

// How the files of a run become the state that is drawn. steps.csv is the clock: a step's rows in
// the other files are complete once it is there.
#include <algorithm>

#include "config/load.h"
#include "error.h"
#include "study/run_files.h"
#include "study/watch/watch_view.h"
#include "telemetry/progress_text.h"

namespace ada::study {
namespace {

// What is read of long files at first: some hundred logged steps of a large network.
// A follower that starts in the middle of a long file shows a history that is shorter, and at once.
template <class Row>
constexpr std::int64_t kWindow = INT64_MAX;
template <>
constexpr std::int64_t kWindow<ScaleRow> = 8 << 20;
template <>
constexpr std::int64_t kWindow<TensorRow> = 24 << 20;
template <>
constexpr std::int64_t kWindow<BlockRow> = 24 << 20;
template <>
constexpr std::int64_t kWindow<AccumulatorRow> = 24 << 20;

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

// The order of layers is that of a step's rows, so the first one is passed over where rows before
// them were.
template <class Row>
void FollowedRows<Row>::Read() {
  file.Read([this](telemetry::CsvReader& reader) {
    telemetry::ReadRows<Row>(reader, telemetry::Expect::kNone,
                             [this](const Row& row) { rows.push_back(row); });
  });
  if (!file.jumped()) return;
  for (const std::int64_t torn = first_step(); !rows.empty() && rows.front().step == torn;)
    rows.pop_front();
}

WatchFeed::WatchFeed(std::string folder) : folder_(std::move(folder)) {
  EachFile([this]<class Row>(FollowedRows<Row>& of) {
    of.file = telemetry::CsvFollower(folder_ + "/" + Row::kFile, kWindow<Row>);
  });
}

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

std::int64_t WatchFeed::NextLoggedStep() const {
  return std::min(std::get<FollowedRows<ScaleRow>>(files_).first_step(),
                  std::get<FollowedRows<TensorRow>>(files_).first_step());
}

// Rows wait until steps.csv has their step. Returns whether there were any.
bool WatchFeed::Apply(std::int64_t up_to, WatchState& state) {
  bool any = false;
  EachFile([&](auto& of) {
    any = any || of.first_step() <= up_to;
    for (; of.first_step() <= up_to; of.rows.pop_front()) state.Add(of.rows.front());
  });
  return any;
}

bool WatchFeed::Poll(WatchState& state, const std::function<void()>& logged) {
  // A resume cuts the files back to a checkpoint; one that is shorter than before has changed.
  bool changed = false;
  EachFile([&](const auto& of) { changed = changed || of.file.Changed(); });
  if (changed) {
    const std::string folder = state.folder;
    state = WatchState();
    state.folder = folder;
    EachFile([](auto& of) {
      of.file.Restart();
      of.rows.clear();
    });
    configured_ = false;
  }
  ReadConfig(state);
  EachFile([](auto& of) { of.Read(); });
  const std::deque<StepRow>& steps = std::get<FollowedRows<StepRow>>(files_).rows;
  const std::int64_t last = steps.empty() ? state.step.step : steps.back().step;
  // Logged steps are applied one by one, so `logged` sees each of them as it was.
  for (std::int64_t next = NextLoggedStep(); next <= last; next = NextLoggedStep()) {
    changed |= Apply(next, state);
    if (logged) logged();
  }
  return Apply(last, state) || changed;
}

}  // namespace ada::study

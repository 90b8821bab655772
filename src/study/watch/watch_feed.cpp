#include "study/watch/watch_feed.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/error.h"

namespace ada::study {
namespace {

using Fields = std::vector<std::string>;

// What is read of long files at first: some hundred logged steps of a large network.
constexpr std::int64_t kUnderflowWindow = 24 << 20, kScalesWindow = 8 << 20;
constexpr std::int64_t kNoStep = std::numeric_limits<std::int64_t>::max();

// Fields by column; a column that is missing is empty.
class Row {
 public:
  Row(const CsvTail& tail, const Fields& fields) : tail_(tail), fields_(fields) {}
  std::string Text(const char* column) const {
    const int index = tail_.Column(column);
    return index < 0 ? "" : fields_[static_cast<std::size_t>(index)];
  }
  template <class T>
  T Number(const char* column, T otherwise) const {
    const std::string text = Text(column);
    T value = otherwise;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? value : otherwise;
  }
  std::int64_t Integer(const char* column) const { return Number<std::int64_t>(column, 0); }
  double Real(const char* column) const { return Number<double>(column, NAN); }

 private:
  const CsvTail& tail_;
  const Fields& fields_;
};

telemetry::StepRow StepOf(const Row& row) {
  return {.step = row.Integer("step"),
          .epoch = row.Integer("epoch"),
          .loss = row.Real("loss"),
          .accuracy = row.Real("accuracy"),
          .lr = row.Real("lr"),
          .scale = row.Real("scale"),
          .overflow = row.Integer("overflow") != 0,
          .skipped = row.Integer("skipped") != 0,
          .grad_norm = row.Real("grad_norm")};
}

ScaleRow ScaleOf(const Row& row) {
  ScaleRow read;
  read.step = row.Integer("step");
  read.layer = row.Text("layer");
  read.limit = row.Text("limit");
  read.scale_out = row.Real("scale_out");
  return read;
}

TensorRow TensorOf(const Row& row) {
  TensorRow read;
  read.step = row.Integer("step");
  read.layer = row.Text("layer");
  read.tensor = row.Text("tensor");
  read.scale = row.Real("scale");
  read.underflow_pct_nonzero = row.Real("underflow_pct_nonzero");
  return read;
}

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

}  // namespace

WatchFeed::WatchFeed(std::string folder)
    : folder_(std::move(folder)),
      steps_(folder_ + "/steps.csv"),
      scales_(folder_ + "/scales.csv", kScalesWindow),
      underflow_(folder_ + "/underflow.csv", kUnderflowWindow),
      events_(folder_ + "/events.csv"),
      evaluation_(folder_ + "/evaluation.csv") {}

void WatchFeed::ReadConfig(WatchState& state) {
  if (configured_) return;
  try {
    const config::Config config = ReadRunConfig(folder_);
    state.name = config.name;
    state.epochs = config.train.epochs;
    state.max_steps = config.train.max_steps;
    configured_ = true;
  } catch (const Error&) {  // not there yet, or of another version: the table does without it
  }
}

void WatchFeed::ReadFiles() {
  // steps.csv first: it is written last, so the rows of its steps are whole in the others.
  steps_.Read([&](const Fields& f) { step_rows_.push_back(StepOf(Row(steps_, f))); });
  scales_.Read([&](const Fields& f) { scale_rows_.push_back(ScaleOf(Row(scales_, f))); });
  underflow_.Read([&](const Fields& f) {
    const Row row(underflow_, f);
    if (row.Text("tensor") == "dx") tensor_rows_.push_back(TensorOf(row));
  });
  events_.Read([&](const Fields& f) {
    const Row row(events_, f);
    event_rows_.push_back({row.Integer("step"), row.Integer("epoch"), row.Text("event"),
                           row.Text("layer"), row.Text("tensor"), row.Text("value"),
                           row.Text("message")});
  });
  evaluation_.Read([&](const Fields& f) {
    const Row row(evaluation_, f);
    evaluation_rows_.push_back({row.Integer("step"), row.Integer("epoch"), row.Text("split"),
                                row.Integer("images"), row.Real("loss"), row.Real("top1"),
                                row.Real("top5")});
  });
}

std::int64_t WatchFeed::NextLoggedStep() const {
  return std::min(FirstStep(scale_rows_), FirstStep(tensor_rows_));
}

bool WatchFeed::Apply(std::int64_t up_to, WatchState& state) {
  bool any = Take(step_rows_, up_to, state);
  any |= Take(tensor_rows_, up_to, state);  // before the scales: it has the loss, and every layer
  any |= Take(scale_rows_, up_to, state);
  any |= Take(event_rows_, up_to, state);
  return Take(evaluation_rows_, up_to, state) || any;
}

bool WatchFeed::Look(WatchState& state, const std::function<void()>& logged) {
  const std::vector<CsvTail*> tails = {&steps_, &scales_, &underflow_, &events_, &evaluation_};
  bool changed = false;
  if (std::any_of(tails.begin(), tails.end(), [](CsvTail* tail) { return tail->Changed(); })) {
    const std::string folder = state.folder;
    state = WatchState();
    state.folder = folder;
    for (CsvTail* tail : tails) tail->Restart();
    step_rows_.clear(), scale_rows_.clear(), tensor_rows_.clear();
    event_rows_.clear(), evaluation_rows_.clear();
    configured_ = false;
    changed = true;
  }
  ReadConfig(state);
  ReadFiles();
  const std::int64_t last = step_rows_.empty() ? state.step.step : step_rows_.back().step;
  for (std::int64_t next = NextLoggedStep(); next <= last; next = NextLoggedStep()) {
    changed |= Apply(next, state);
    if (logged) logged();
  }
  return Apply(last, state) || changed;
}

}  // namespace ada::study

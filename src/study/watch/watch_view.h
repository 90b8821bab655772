// The parts of `watch`: what it shows of a run, how that follows the run's files, and how it is
// drawn.
// watch.cpp is the loop and the terminal: WatchFeed reads what is new, WatchState holds what is
// shown, DrawWatch makes lines of it.
#pragma once
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "io/tensor_names.h"
#include "study/run_files.h"
#include "telemetry/csv_reader.h"
#include "telemetry/totals.h"

namespace ada::study {

// A layer's dx as the last logged step has it.
// The history is as long as a wide terminal can show.
struct WatchedLayer {
  static constexpr std::size_t kHistory = 400;
  std::string name;
  double scale = NAN;          // of dx
  double underflow_pct = NAN;  // of its values other than zero; NaN: there are none, or not logged
  bool broken = false;         // values overflowed, or were not finite when they came
  std::string limit;           // which rule decided; empty: the layer computes no scale
  // SQNR in dB of its operands in block-scaled formats, by Operand; NaN: it is none.
  std::array<double, kOperands> sqnr = NoSqnr();
  // underflow_pct of the last logged steps, oldest first; infinite: the tensor was broken.
  std::deque<double> history;

  double mean_pct() const;  // of the history; 0 where there is none
  static std::array<double, kOperands> NoSqnr() {
    std::array<double, kOperands> none;
    none.fill(NAN);
    return none;
  }
};

// Operands in block-scaled formats in the last logged step that has some.
struct WatchedBlocks {
  std::int64_t step = 0;   // 0: none
  BlockRow worst, widest;  // the least SQNR; the widest range of scales
  void Add(const BlockRow& row);
};

// Sums that accumulators make, in the last logged step that has some.
struct WatchedSums {
  std::int64_t step = 0;  // 0: none
  AccumulatorRow worst;   // the least SQNR
  void Add(const AccumulatorRow& row);
};

// All that is drawn, and nothing else of the run is kept; rows are added in the order of steps.
struct WatchState {
  std::string name, folder;
  std::string status = "running";          // as RunState says
  std::int64_t epochs = 0, max_steps = 0;  // of the configuration; 0: not known, no limit
  bool language = false, bytes = false;    // of the task; tokens are bytes
  std::int64_t epoch_steps = 0;  // steps of an epoch; 0: not known until the second begins
  StepRow step;                  // the last; step 0: none yet
  TimingRow timing;              // the last; step 0: none yet
  double step_seconds = NAN;     // of it, for each step since the row before; NaN: not known
  std::int64_t skipped = 0;
  std::int64_t logged_step = 0;      // the last with statistics; 0: none yet
  EventRow event;                    // the last; step 0: none
  EvaluationRow evaluation;          // the last; step 0: none
  ClassRow classes;                  // of it, the row of all classes; step 0: none
  std::vector<WatchedLayer> layers;  // in the order of the logs
  WatchedBlocks blocks;
  WatchedSums sums;
  telemetry::LayerTotals totals;       // of all tensors
  std::vector<std::string> uncounted;  // config::UncountedStatistics
  telemetry::Finiteness finiteness;

  // How long the run will be, as its progress line says; 0: not known.
  std::int64_t steps_in_all() const;
  std::int64_t epochs_in_all() const;
  // As the last timing has it; below 0: not known, or the run has ended.
  double seconds_left() const;

  void Add(const StepRow& row);
  void Add(const TensorRow& row);
  void Add(const ScaleRow& row);
  void Add(const BlockRow& row);
  void Add(const AccumulatorRow& row) { sums.Add(row); }
  void Add(const TimingRow& row);
  void Add(const EventRow& row) {
    event = row;
    finiteness.Add(row);
  }
  void Add(const EvaluationRow& row) { evaluation = row; }
  void Add(const ClassRow& row) {
    if (row.all()) classes = row;
  }

 private:
  WatchedLayer& Layer(const std::string& layer);
  std::map<std::string, std::size_t> index_;
};

// A file of the run that is followed, and its rows that were read but are not yet shown.
template <class Row>
struct FollowedRows {
  telemetry::CsvFollower file{""};
  std::deque<Row> rows;

  void Read();
  std::int64_t first_step() const {
    return rows.empty() ? std::numeric_limits<std::int64_t>::max() : rows.front().step;
  }
};

// Follows the files of a run and passes new rows to a WatchState. Used by one thread. Each look
// reads only what was added since the last one.
class WatchFeed {
 public:
  explicit WatchFeed(std::string folder);

  // Takes what the run wrote since the last look into `state`, which begins anew where the run was
  // resumed from an earlier step. Calls `logged` (may be empty) after each logged step, with the
  // state of that step. Rows of a step that is still being written wait for the next look. Returns
  // whether anything changed.
  bool Poll(WatchState& state, const std::function<void()>& logged = {});

 private:
  void ReadConfig(WatchState& state);
  std::int64_t NextLoggedStep() const;
  bool Apply(std::int64_t up_to, WatchState& state);
  template <class Use>
  void EachFile(const Use& use) {
    std::apply([&](auto&... file) { (use(file), ...); }, files_);
  }

  std::string folder_;
  // In the order in which rows of a step are taken. steps.csv is read first as well: it is written
  // last, so the rows of its steps are whole in the others. underflow.csv comes before scales.csv:
  // it has the loss, and every layer.
  std::tuple<FollowedRows<StepRow>, FollowedRows<TensorRow>, FollowedRows<ScaleRow>,
             FollowedRows<BlockRow>, FollowedRows<AccumulatorRow>, FollowedRows<TimingRow>,
             FollowedRows<EventRow>, FollowedRows<EvaluationRow>, FollowedRows<ClassRow>>
      files_;
  bool configured_ = false;
};

struct DrawOptions {
  std::size_t width = 100;  // columns of a line at most
  std::size_t height = 0;   // lines at most; 0: as many as it takes
  bool utf8 = false;        // block characters instead of ASCII
  bool color = false;       // codes for colors, which no column counts
};

// Returns the last `width` values of `pct`, one character each, on a logarithmic scale that is the
// same for all layers; blank for NaN. Shorter than `width` where there are fewer values.
std::string Sparkline(const std::deque<double>& pct, std::size_t width, bool utf8);

// Returns header lines and the table of layers in the order of the logs; where not all have room,
// those that underflow most (mean of what the sparkline shows).
std::vector<std::string> DrawWatch(const WatchState& state, const DrawOptions& options);

// Says whether the environment's locale (LC_ALL, LC_CTYPE, LANG: the first that is set) has UTF-8.
bool LocaleIsUtf8();

}  // namespace ada::study

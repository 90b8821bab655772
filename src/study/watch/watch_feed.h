// Follows the files of a run and hands what is new to a WatchState.
#pragma once
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "study/csv_tail.h"
#include "study/watch/watch_state.h"

namespace ada::study {

class WatchFeed {
 public:
  explicit WatchFeed(std::string folder);

  // Takes what the run wrote since the last look into `state`, which begins anew where the run was
  // resumed from an earlier step. Calls `logged` (may be empty) after each logged step, with the
  // state of that step. Rows of a step that is still being written wait for the next look. Returns
  // whether anything changed.
  bool Look(WatchState& state, const std::function<void()>& logged = {});

 private:
  void ReadConfig(WatchState& state);
  void ReadFiles();
  std::int64_t NextLoggedStep() const;
  bool Apply(std::int64_t up_to, WatchState& state);

  std::string folder_;
  CsvTail steps_, scales_, underflow_, events_, evaluation_;
  // Read, but not yet shown.
  std::deque<telemetry::StepRow> step_rows_;
  std::deque<ScaleRow> scale_rows_;
  std::deque<TensorRow> tensor_rows_;  // of dx
  std::deque<telemetry::EventRow> event_rows_;
  std::deque<telemetry::EvaluationRow> evaluation_rows_;
  bool configured_ = false;
};

}  // namespace ada::study

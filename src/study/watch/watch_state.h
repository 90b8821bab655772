// What `watch` shows of a run, and how the rows of its files change it. No files, no terminal.
#pragma once
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "study/run_files.h"
#include "telemetry/run_logs.h"

namespace ada::study {

// A layer's dx as the last logged step has it.
struct WatchedLayer {
  static constexpr std::size_t kHistory = 400;
  std::string name;
  double scale = NAN;          // of dx
  double underflow_pct = NAN;  // of its values other than zero; NaN: there are none, or not logged
  std::string limit;           // which rule decided; empty: the layer computes no scale
  std::deque<double> history;  // underflow_pct of the last logged steps, oldest first

  double mean_pct() const;  // of the history; 0 where there is none
};

struct WatchState {
  std::string name, folder;
  std::string status = "running";          // as RunState says
  std::int64_t epochs = 0, max_steps = 0;  // of the configuration; 0: not known, no limit
  telemetry::StepRow step;                 // the last; step 0: none yet
  std::int64_t skipped = 0;
  std::int64_t logged_step = 0;         // the last with statistics; 0: none yet
  telemetry::EventRow event;            // the last; step 0: none
  telemetry::EvaluationRow evaluation;  // the last; step 0: none
  std::vector<WatchedLayer> layers;     // in the order of the logs

  void Add(const telemetry::StepRow& row);
  void Add(const TensorRow& row);  // tensors other than dx change nothing
  void Add(const ScaleRow& row);
  void Add(const telemetry::EventRow& row) { event = row; }
  void Add(const telemetry::EvaluationRow& row) { evaluation = row; }

 private:
  WatchedLayer& Layer(const std::string& layer);
  std::map<std::string, std::size_t> index_;
};

}  // namespace ada::study

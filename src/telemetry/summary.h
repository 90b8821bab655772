// The summary of a run: summary.json for scripts, and the text that is printed at its end.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "telemetry/recorder.h"

namespace ada::telemetry {

enum class RunStatus { kFinished, kStopped, kInterrupted };
// finished: all epochs or steps are done; stopped: ended early by a limit in time, a policy or an
// error; interrupted: by a signal.
const char* RunStatusName(RunStatus status);

// Facts that the recorder does not have.
struct SummaryFacts {
  std::string name, folder;  // of the configuration; of the run
  RunStatus status = RunStatus::kFinished;
  std::string model, dataset, format, policy, device;  // as words; empty: left out
  std::int64_t epochs = 0;                             // completed
  double seconds = 0;                                  // wall time of this process
  double images_per_second = 0;                        // of training
  std::int64_t tokens = 0;     // of a sequence, which counts as an image: task language; else 0
  bool bytes = false;          // tokens are bytes
  std::int64_t log_every = 0;  // shown with the layers
  std::vector<std::string> uncounted = {};         // as CoverageOf takes them
  std::vector<std::string> kept_in_the_mean = {};  // tensors of the update, config/derived.h
  std::string processor;                           // CpuModel()
  int threads = 0;
  std::vector<std::pair<std::string, std::string>> versions;  // ada-train, compiler, oneDNN ...
};

// Returns the processor's name as the system gives it; "unknown" where it does not.
std::string CpuModel();

// Returns summary.json's text. Numbers that are not finite are null. Apart from seconds,
// images_per_second, host, versions and folder it is the same for a run that was resumed and one
// that never stopped.
std::string SummaryJson(const SummaryFacts& facts, const RunTotals& run, const LayerTotals& layers);
// Writes <folder>/summary.json atomically; throws OutputError.
void WriteSummary(const SummaryFacts& facts, const RunTotals& run, const LayerTotals& layers);

// Returns the text printed at the end: results, the layers that lose most with the scale each
// one got and why, skipped steps, and the files (optional ones only if they exist). It has several
// lines, all visible (io/shown_text.h), without a line end at the end; `color`: for a terminal
// that has colors.
std::string SummaryText(const SummaryFacts& facts, const RunTotals& run, const LayerTotals& layers,
                        bool color = false);

// Explains why a tensor has its scale: the layer's last decision in words (empty limit: no decision
// was logged).
std::string ExplainLimit(const ScaleTotals& scale);

}  // namespace ada::telemetry

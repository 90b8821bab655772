// Reports before a run: what it would do, its first batch, its learning rates, whether its files
// are intact, and which keys of its configuration have no effect.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "data/dataset.h"
#include "data/file_fault.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "scaling/policies/policy.h"
#include "telemetry/log.h"

namespace ada::run {

// --dry-run: checks configuration and data, prints the layer table and the memory needed; trains
// nothing. measure: also three steps on made-up images, and what an epoch will take.
// json: as one object instead of the text.
void DryRun(const config::Config& config, bool measure, std::ostream& out, bool json = false);

// Writes a sheet of the first training batch, augmented, with its labels, as PNG to `path`, and a
// line about it to `out`.
void Preview(const config::Config& config, const std::string& path, std::ostream& out);

// The learning rates of a run that has not begun:
// step,epoch,lr of every `every`-th step from the first, and of the last, of a run without skipped
// steps, as CSV; numbers read back exactly. steps_per_epoch 0: what the data set gives.
void PrintRates(const config::Config& config, std::int64_t steps_per_epoch, std::int64_t every,
                std::ostream& out);

// What CheckFiles returns to `datasets --check` and to --dry-run, which print it.
struct CheckedFiles {
  data::FileFaults faults;  // by split: those of its listing, then those of its files
  struct Split {
    std::string name;
    std::int64_t images = 0;
  };
  std::vector<Split> splits;
  // Why the set cannot be opened at all; empty: it can.
  std::string refusal;
};

// Checks all files of a run's data set. decodes: all of each file; false: headers. progress: the
// progress line, on a terminal. `known`: the same data set, opened before, whose headers are not
// read again; null: there is none.
CheckedFiles CheckFiles(const config::Config& config, bool decodes, bool progress,
                        telemetry::Log& log, const data::Splits* known = nullptr);

// "split train: FILE: what is wrong".
std::string FaultText(const data::FileFault& fault);

// Keys of the configuration without any effect, or with one that is probably not meant: one line of
// warning, with the place where the key was written, for each glob on layers (precision.layers,
// scaling.layers, those of log.what_if, log.dump) and on parameters (optimizer.no_decay) that
// matches none, each switch of the precision after the last step, each entry that gives a tied
// layer's weight another format than its owner has, and attention that sees the tokens which a
// language model is to predict; and one line without a place where
// precision.operands.tensor_scaling is given and no operand has a plain format, and where a batch
// norm sees a single value a channel in some micro-batch of the training's `images`.
std::vector<std::string> NetworkWarnings(const config::Config& config, const graph::Graph& graph,
                                         std::int64_t images, std::int64_t total_steps);
// Those of the entries of precision.layers alone.
std::vector<std::string> PrecisionWarnings(const config::PrecisionConfig& precision,
                                           const graph::Graph& graph);

// --- The time of a step ---

inline constexpr int kMeasuredSteps = 3;

// --dry-run --measure: how long a step takes, on made-up images of the right shape. Returns the
// seconds of the fastest of three steps: passes over all micro-batches and the update, without
// loading, logs and evaluation. The network starts as model.init.scheme draws it (no file is read);
// its weights change.
double MeasureStep(const config::Config& config, graph::Graph& graph, optim::Optimizer& optimizer,
                   const scaling::Policy& policy, const Shape& image, backend::Backend& backend);

// The lines of --dry-run: "a step 1.25 s, 102 images/s" and an epoch of so many steps. image: the
// network's input.
std::string MeasuredText(double seconds, const config::Config& config, const Shape& image,
                         std::int64_t steps_per_epoch);

}  // namespace ada::run

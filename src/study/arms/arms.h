// The engine of commands that train a network several times and compare (choose, ablate): the
// trainings, and what they gave. Such a command makes its arms, then calls PlanTrainings,
// RunTrainings and Measure in this order, and says what it sees.
// Trainings are runs with folders of their own, made by this program as a child process each, so
// that every other command reads them too.
#pragma once
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/load.h"
#include "io/json_output.h"
#include "study/commands.h"
#include "telemetry/log.h"

namespace ada::study {

// What is compared: keys, then a precision, that replace those of the configuration.
struct Arm {
  std::string name;    // choose: as it was given; of a file without folder and ending
  std::string folder;  // the beginning of its runs' names
  config::Overrides keys;
  std::optional<config::PrecisionConfig> precision = {};  // unset: the configuration's
};
// What may stand in the name of a folder; all else becomes a dash.
std::string FolderWord(const std::string& text);

// One training: of an arm under a seed, or a twin of such a training, whose first weights are moved
// by less than 16 bits can tell.
struct Training {
  std::size_t arm = 0, seed = 0;   // indices
  std::uint64_t twin = 0;          // from 1; 0: no twin
  std::string name, folder, file;  // of its run; of its configuration
  config::Config config;
  int exit_code = -1;  // -1: not over
};
// Everything that RunTrainings and Measure need to know.
struct ArmPlan {
  std::string command;    // that asks
  std::vector<Arm> arms;  // the baseline first
  std::vector<std::uint64_t> seeds;
  std::vector<Training> trainings;  // in the order in which they are started
  std::vector<double> bits;         // by arm: of an operand of a matmul, the mean over all values
  std::int64_t steps = 0;           // of each training
  std::int64_t full_steps = 0;      // those that the configuration asks for
  std::string out;
  int jobs = 1;
};
struct ArmsQuestion {
  std::string command;  // "choose"
  std::string folder;   // of all runs where none is named: FOLDER/NAME
  std::vector<Arm> arms;
  const ArmsOptions& options;
  std::vector<std::size_t> twinned = {0};  // arms that have twins
};
// Reads and checks the configuration of each training before any begins, and writes those files.
// Throws ConfigError, with the arm's name, where one cannot be trained, and where the folder holds
// trainings of another question.
ArmPlan PlanTrainings(const ArmsQuestion& question, telemetry::Log& log);

// Trains what is not finished, `jobs` at a time. Returns the signal that ended it, after each
// training has written a checkpoint; 0: all are over.
int RunTrainings(ArmPlan& plan, telemetry::Log& log);

// What helps where a training was ended by an error.
inline constexpr char kGoesOn[] = "the same command, which goes on";

// What the trainings of an arm gave, compared with the baseline's of the same seed.
struct ArmResult {
  std::string name;
  double bits = 32;
  std::vector<double> minus;           // by seed: loss minus the baseline's; not finite: none
  double loss = NAN;                   // the mean over seeds
  double mean = NAN, deviation = NAN;  // of `minus`; a single seed has no deviation
  double held_out = NAN;               // the last evaluation's loss minus the baseline's, mean
  double skipped = 0;                  // steps, the mean over seeds
  std::string lost, lost_tensor;       // in a sentence (telemetry/coverage.h); which most
  double lost_pct = 0;
  std::string cause;                                  // of that: "underflows in fp16 at S = 1"
  std::vector<std::string> sums;                      // telemetry::AccumulatorLines
  std::vector<std::pair<std::string, double>> worst;  // LAYER.tensor and percent, the worst first
  std::vector<std::string> advice;                    // what `advise` says of its first run
  std::string trouble;                                // why it does not train; empty: it does
  bool ended_by_error = false;  // of trouble: nothing is known, since something else ended it
  // "does not train", or "is not known".
  const char* fate() const { return ended_by_error ? "is not known" : "does not train"; }
  std::vector<double> by_step;  // loss minus the baseline's, the mean over seeds
  std::vector<double> twins;    // of an arm that has them: loss of each minus its original's
  double noise = NAN;           // their root mean square
};
// A row of trainings.
struct TrainingResult {
  std::string arm, run, status;
  std::uint64_t seed = 0, twin = 0;
  std::int64_t steps = 0, skipped = 0;
  double loss = NAN, minus = NAN, held_out = NAN, held_out_minus = NAN, seconds = NAN;
  std::string lost_tensor;
  double lost_pct = NAN, bits = NAN;
};
struct Measured {
  std::vector<ArmResult> arms;  // the baseline first
  std::vector<TrainingResult> trainings;
  std::int64_t window = 0;  // last steps over which a loss is a mean
  // By how much chance alone moves a loss: of the baseline's twins.
  double noise() const { return arms.front().noise; }
  const std::vector<double>& twins() const { return arms.front().twins; }
};
// Reads the folders of the trainings. Throws DataError where one is not as it should be.
Measured Measure(const ArmPlan& plan);
double MeanOf(const std::vector<double>& values);
// The deviation of the values as a sample; NaN for fewer than two.
double DeviationOf(const std::vector<double>& values);
// The exit code of a command: arms that a policy ended are a result; others that ended by an error
// are not.
int ExitCodeOf(const ArmPlan& plan);

// How sure it is that something measured by seed is not zero. Its error is the deviation over the
// seeds or `noise`, that of twins, whichever is larger, by the root of the number of seeds; `t` is
// Student's.
struct Sureness {
  double t = 0, error = 0;
  std::size_t freedom = 1;
  bool fairly() const;  // 90 %, one-sided
  bool well() const;    // 99 %
};
Sureness SurenessOf(double mean, double deviation, std::size_t seeds, double noise,
                    std::size_t twins);
// The t of `well` for many degrees of freedom.
double WellSureT();
// Fewer seeds cannot make anything "well" sure: one seed says nothing of another.
inline constexpr std::size_t kSeedsForWell = 3;

// --- What is printed alike ---

// "250 steps of 3 seeds; loss: the mean of the last 25".
std::string StepsText(const Measured& measured, const ArmPlan& plan);
// By how much chance alone moves a loss.
std::string NoiseText(const Measured& measured);
// The object of the command, with what is known of its arms.
OrderedJson ArmsJson(const Measured& measured, const ArmPlan& plan);
// A row for each training.
std::string TrainingsCsv(const Measured& measured);

}  // namespace ada::study

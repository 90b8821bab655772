// The parts of `choose`: what is compared, the trainings that compare it, what they gave, and the
// verdict.
// choose.cpp calls them in this order: ReadArms, PlanTrainings, RunTrainings, Measure, FindVerdict,
// then one of the functions that print. Trainings are runs with folders of their own, made by this
// program as a child process each, so that every other command reads them too.
#pragma once
#include <cmath>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/load.h"
#include "study/commands.h"
#include "telemetry/log.h"

namespace ada::study {

// What is compared: keys that replace those of the configuration.
struct Arm {
  std::string name;    // as it was given; of a file without folder and ending
  std::string folder;  // the beginning of its runs' names
  config::Overrides keys;
};
// The baseline first. Throws ConfigError for a word that is no format, recipe, policy or file, and
// for an arm that is there twice.
std::vector<Arm> ReadArms(const ChooseOptions& options);

// One training: of an arm under a seed, or a twin of the baseline, whose first weights are moved by
// less than 16 bits can tell.
struct Training {
  std::size_t arm = 0, seed = 0;   // indices
  std::uint64_t twin = 0;          // from 1; 0: no twin
  std::string name, folder, file;  // of its run; of its configuration
  config::Config config;
  int exit_code = -1;  // -1: not over
};
// Everything that RunTrainings and Measure need to know.
struct ChoicePlan {
  std::vector<Arm> arms;
  std::vector<std::uint64_t> seeds;
  std::vector<Training> trainings;  // in the order in which they are started
  std::vector<double> bits;         // by arm: of an operand of a matmul, the mean over all values
  std::int64_t steps = 0;           // of each training
  std::int64_t full_steps = 0;      // those that the configuration asks for
  std::string out;
  int jobs = 1;
};
// Reads and checks the configuration of each training before any begins, and writes those files.
// Throws ConfigError, with the arm's name, where one cannot be trained, and where the folder holds
// trainings of another question.
ChoicePlan PlanTrainings(const ChooseOptions& options, telemetry::Log& log);

// Trains what is not finished, `jobs` at a time. Returns the signal that ended it, after each
// training has written a checkpoint; 0: all are over.
int RunTrainings(ChoicePlan& plan, telemetry::Log& log);

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
  std::vector<double> by_step;  // loss minus the baseline's, the mean over seeds
};
// A row of choose.csv.
struct TrainingResult {
  std::string arm, run, status;
  std::uint64_t seed = 0, twin = 0;
  std::int64_t steps = 0, skipped = 0;
  double loss = NAN, minus = NAN, held_out = NAN, held_out_minus = NAN, seconds = NAN;
  std::string lost_tensor;
  double lost_pct = NAN, bits = NAN;
};
struct ChoiceResults {
  std::vector<ArmResult> arms;  // the baseline first
  std::vector<TrainingResult> trainings;
  std::vector<double> twins;  // loss of each twin minus that of its original
  double noise = 0;           // their root mean square
  std::int64_t window = 0;    // last steps over which a loss is a mean
};
// Reads the folders of the trainings. Throws DataError where one is not as it should be.
ChoiceResults Measure(const ChoicePlan& plan);

struct Verdict {
  std::string arm, sentence;
  const char* sure = "little";  // well, fairly, little
  std::string surer;            // what would make it surer
  std::string text() const;     // all of it
};
// The cheapest arm whose loss stays within the budget of the baseline's; the baseline where none
// does. `budget`: a share of the baseline's loss.
Verdict FindVerdict(const ChoiceResults& measured, const ChoicePlan& plan, double budget);

void PrintChoice(const ChoiceResults& measured, const ChoicePlan& plan, const Verdict& verdict,
                 std::ostream& out);
void PrintChoiceJson(const ChoiceResults& measured, const ChoicePlan& plan, const Verdict& verdict,
                     double budget, std::ostream& out);
// choose.csv, as a text.
std::string ChoiceCsv(const ChoiceResults& measured);
// A page that needs no other file: the verdict, loss minus baseline by step, the worst layers.
std::string ChoicePage(const ChoiceResults& measured, const ChoicePlan& plan,
                       const Verdict& verdict);

}  // namespace ada::study

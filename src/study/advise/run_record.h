// The parts of `advise`: what of a run's record asks for a change, and how that is said.
// advise.cpp reads a run's files into a RunRecord; rules.cpp asks the other files one after the
// other, which read the record only. No rule trains or measures anything.
#pragma once
#include <cstdint>
#include <deque>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "io/json_output.h"
#include "study/advise/recommendation.h"
#include "telemetry/coverage.h"
#include "telemetry/rows.h"
#include "telemetry/totals.h"

namespace ada::study {

// The counts of one tensor.
// The first logged step comes before the effects of a run that breaks, so what was lost in it is a
// cause.
struct TensorCourse {
  double first_largest = 0, largest = 0;  // finite |x|, unscaled: of the first logged step, of all
  double first_pct = 0;                   // of its non-zero values that the first logged step lost
  double first_mean = 0, first_std = 0;
};

// How a run went before it broke: its loss and gradients step by step, and the first logged counts
// of each tensor. What grows before it breaks has steps that are too large. advise.cpp adds the
// rows of steps.csv and underflow.csv in their order; questions may be asked at any time. It keeps
// the last few steps and the first, not the whole run.
class Course {
 public:
  // Rows of steps that overflowed or whose loss is not finite are passed over.
  void Add(const telemetry::StepRow& row);
  void Add(const telemetry::TensorRow& row);

  // Steps whose loss and gradients were finite.
  std::int64_t good_steps() const { return good_steps_; }
  // Whether the loss, or the norm of the gradients, rose far above its first value in the last of
  // these steps.
  bool Rose() const;
  // Whether the loss of all of the last ones is above twice the first one: it is not a single
  // batch.
  bool Diverged() const;
  // "the loss rose from 1.4 to 2.3e+04"; empty where nothing rose.
  std::string Text() const;
  // Null: no row was logged.
  const TensorCourse* Find(const std::string& layer, const std::string& tensor) const;

 private:
  struct Moment {
    double loss, norm;
  };
  Moment Largest() const;

  std::int64_t good_steps_ = 0;
  Moment first_{};
  std::deque<Moment> last_;  // of good steps, the newest at the end
  std::map<std::string, TensorCourse> tensors_;
};

// One change: keys of one section with their values as YAML, why, and how sure that is.
// FindAdvice drops one whose keys or tensors another has already, so rules need not know each
// other.
struct Advice {
  std::string section;  // scaling, precision, optimizer, data
  Keys keys;            // below it
  std::string reason;
  const char* sure = "fairly";  // well, fairly, little
  // The tensors whose losses it mends ("f1.dx"): no other advice is to be about them.
  std::vector<std::string> mends = {};
};

// The data of a run that are examined, filled in once by advise.cpp and then only read. Members
// whose file does not exist stay empty.
struct RunRecord {
  config::Config config;
  telemetry::RunTotals run;
  telemetry::LayerTotals layers;
  Course course;
  struct Skips {
    std::int64_t steps = 0;
    std::string value;  // the largest magnitude, in the first of them
  };
  // Skipped steps by the layer and tensor that were not finite first.
  std::map<std::pair<std::string, std::string>, Skips> skips;
  std::int64_t logged_steps = 0;  // with rows in underflow.csv
  // The steps of an epoch, 0 where none is over; whether the run has ended as its configuration
  // says.
  std::int64_t epoch_steps = 0;
  bool finished = false;
  int channels = 0;             // of the network's input; 0: not known
  bool has_histograms = false;  // of gradients
  RunNeeds needs;               // empty without them
  // The block-scaled formats of log.what_if, and the run's own, on all operands that were seen with
  // them; the narrowest first. Attention's operands have keys of their own
  // (precision.operands.attention), and are judged apart.
  std::vector<judge::JudgedFormat> operands, attention_operands;
  FormatHistory history;
  TensorFormats formats;  // the last ones

  // Whether the run is of no use as it is: not finite, or its loss rose. What gradients lose then
  // may be an effect.
  bool is_broken() const { return run.finiteness().since() > 0 || course.Diverged(); }
  // A gradient of which half or more was lost before anything else went wrong.
  std::optional<telemetry::LostFromTheStart> LostBefore() const;
};
// Reads each file of the run once. Throws DataError as the readers do.
RunRecord ReadRecord(const RecommendOptions& options);
// Throws DataError where nothing of a run is known yet, not even its first step.
void RequireSteps(const std::string& folder, const RunRecord& record);
// What was counted and what that lost, as every command says it (telemetry/coverage.h).
telemetry::Coverage CoverageOf(const RunRecord& record);
std::string LostTextOf(const RunRecord& record);
// The same as JSON.
OrderedJson LostJson(const RunRecord& record);

// Finds scales and formats that suit every gradient of a record with histograms.
Recommendation MakeRecommendation(const RecommendOptions& options, const RunRecord& record);
// How far the record carries: well, fairly or little.
const char* GradeOf(const RunRecord& record);

// --- In words, as `recommend` says it ---

// A probed tensor and the share of its values (percent) that the run lost, here or before it.
struct ProbedLoss {
  std::string tensor;
  double lost_pct = 0;
};
// Prints what each gradient asks for, next to what the run gave it.
void PrintNeeds(const RecommendOptions& options, const RunRecord& record, std::ostream& out);
// Prints one scale for all, or why there is none; other formats. `chosen`: its scaling is what is
// to be changed; then also what it would have lost.
void PrintRecommendation(const RecommendOptions& options, const RunRecord& record,
                         const Recommendation& advice, bool chosen, std::ostream& out);
// Prints how many steps there were, of which data, and what cannot be known from them.
void PrintConfidence(const RecommendOptions& options, const RunRecord& record,
                     const Recommendation& advice, const ProbedLoss& probed, std::ostream& out);

// --- What advice is made of ---

constexpr double kManyLost = 10;  // percent of changes, or of stored values, that underflow

// What a tensor lost, as LostText says it: "5.146 % on the mean, 14.062 % at most"; "100 %" where
// each logged step lost as much.
std::string LostWords(const telemetry::TensorTotals& tensor);
// The step that lost most first, since histograms are judged by it: "14.1 % at most, 5.15 % on the
// mean,".
std::string LostWords(const RunRecord& record, const TensorNeeds& tensor);
// Three digits, or what is shorter: for reasons.
std::string ShortNumber(double value);
// The format next to one in range: fp32 of bf16, else bf16. Nothing for fp32.
std::optional<NumberFormat> Wider(const NumberFormat& format);

// A learning rate that suits most trainings with the run's optimizer. A momentum m takes each
// gradient 1 / (1 - m) times, which networks without norms do not bear at this rate.
double UsualRate(const config::Config& config);
// The keys of `scaling` that give each layer a scale by its histogram, from this scale of the logit
// gradient on. Unset: that of the run, where its policy is adaptive already, else 1.
Keys ExactRange(const config::Config& config, std::optional<double> init_scale = {});
// The change that gives `tensor` of `layer` another format: the role's key of `precision`; where an
// entry of precision.layers, of its schedule or a preset has set it, an entry that comes after it.
Advice FormatAdvice(const config::Config& config, const std::string& layer,
                    const std::string& tensor, const NumberFormat& format);
// The change that leaves the operands of `layers` as they are stored.
Advice PlainOperands(const config::Config& config, const std::vector<std::string>& layers);

// Whether some layer's weights lose half of their values or more where they are rounded.
bool WeightsVanish(const RunRecord& record);
// The network's input: of numbers that its format does not have. Nothing where all is well.
std::optional<Advice> InputAdvice(const RunRecord& record);
// A run that is not finite or whose loss rose; nothing where it is neither.
std::optional<Advice> BrokenAdvice(const RunRecord& record);
// A run that goes on but skips many steps, by the forward pass or an update.
std::optional<Advice> SkipsAdvice(const RunRecord& record);
// What the optimizer's averages lose; nothing where that is little. The worst step of a broken run
// counts, for Adam divides by the second one.
std::optional<Advice> StateAdvice(const RunRecord& record);
// Advice on scales and formats from the histograms or, if there are none, from the counts in
// underflow.csv.
std::vector<Advice> HistogramAdvice(const RecommendOptions& options, const RunRecord& record);
std::vector<Advice> CountAdvice(const RecommendOptions& options, const RunRecord& record);

// Whether the histograms show what a tensor lost by its counts, no product misses it, and the
// policy finds S by itself.
bool IsHarmless(const RunRecord& record, const telemetry::TensorTotals& tensor);

// Operands: those whose scales cut off values get another rule, those without a scale one of their
// own; others that lose much are left as they are stored; a format of log.what_if that serves all
// of them and is narrower is offered.
std::vector<Advice> OperandAdvice(const RecommendOptions& options, const RunRecord& record);
// Sums by accumulators that overflow or are noisier than operands; nothing where all are fine.
std::optional<Advice> SumsAdvice(const RunRecord& record);

// Returns the changes, at most five, the most urgent first; each section's keys are those of one
// sentence, so that no advice contradicts another.
std::vector<Advice> FindAdvice(const RecommendOptions& options, const RunRecord& record);
// One line of YAML that can be put into a configuration as it is.
std::string FlowOf(const Advice& advice);
// All advice as one document for train --with, in which each section occurs once.
std::string DocumentOf(const std::vector<Advice>& all);
// A list of objects: section, keys, reason, sure, mends.
OrderedJson AdviceJson(const std::vector<Advice>& all);
// The text if there is no advice: which data this is based on.
std::string NothingText(const RunRecord& record);

}  // namespace ada::study

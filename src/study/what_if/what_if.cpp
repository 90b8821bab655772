// what-if: the histograms of a run through a scenario of judge/, which log.what_if uses during a
// run. A summary is said to two readers: beside the CSV in lines that are as long as they need, and
// on a terminal, where lines are wrapped anew.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/load.h"
#include "error.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "judge/scenario.h"
#include "judge/stored_formats.h"
#include "number/number_format.h"
#include "study/commands.h"
#include "study/output.h"
#include "study/run_files.h"
#include "study/run_histograms.h"
#include "study/text_table.h"
#include "telemetry/rows.h"

namespace ada::study {
namespace {

constexpr std::size_t kWorstTensors = 3, kMostRows = 15;

std::string ShortScale(double value) { return Formatted("%.4g", value); }

// Add for each row of a scenario in the order of steps, then Text or PrintTable once.
class WhatIfSummary {
 public:
  explicit WhatIfSummary(std::string scenario) : scenario_(std::move(scenario)) {}
  // What is known of the tensor of a row in the run itself.
  struct Recorded {
    double pct = NAN;  // that would be lost if nothing changed, for the table
    bool not_finite = false;
  };
  void Add(const telemetry::WhatIfRow& row, const Recorded& recorded) {
    if (steps_ == 0 || row.step != last_step_) ++steps_;
    if (steps_ == 1) first_step_ = row.step;
    last_step_ = row.step;
    judged_.insert(row.step);
    const std::string name = Visible(row.layer + "." + row.tensor);
    const auto [place, is_new] = index_.try_emplace(name, tensors_.size());
    if (is_new) tensors_.emplace_back().name = name;
    Tensor& tensor = tensors_[place->second];
    if (!std::isnan(row.underflow_pct_nonzero)) {
      tensor.pct_sum += row.underflow_pct_nonzero;
      tensor.pct_max = std::max(tensor.pct_max, row.underflow_pct_nonzero);
      tensor.unchanged_sum += recorded.pct;
      ++tensor.pct_rows;
    }
    tensor.not_finite_rows += recorded.not_finite;
    // Predicted counts are no whole numbers; less than half a value is none.
    if (row.overflow >= 0.5) {
      tensor.overflow += row.overflow;
      ++tensor.overflow_steps;
    }
    tensor.is_dx = row.tensor == "dx";
    tensor.scale_low = std::min(tensor.scale_low, row.scale);
    tensor.scale_high = std::max(tensor.scale_high, row.scale);
    // With such scales a threshold in the histogram is the edge of a bin, and only values on it are
    // unsure.
    powers_of_two_ = powers_of_two_ && IsPowerOfTwo(row.scale);
    overflow_unsure_ += row.overflow_unsure;
    if (row.underflow_unsure_pct > unsure_pct_) {
      unsure_pct_ = row.underflow_unsure_pct;
      unsure_at_ = name + " in step " + std::to_string(row.step);
    }
  }
  // Takes what the run itself lost in a step that was judged, for the table; others are passed
  // over.
  void AddLogged(const telemetry::TensorRow& row) {
    const auto place = index_.find(Visible(row.layer + "." + row.tensor));
    const bool known = place != index_.end() && judged_.contains(row.step);
    if (!known || std::isnan(row.underflow_pct_nonzero)) return;
    Tensor& tensor = tensors_[place->second];
    tensor.logged_sum += row.underflow_pct_nonzero;
    ++tensor.logged_rows;
  }
  // Notes that the policy would have ended the run in `step`, or after the judged step before it.
  void End(std::int64_t step, const std::string& reason) {
    end_ = "  the policy would have ended the run by step " + std::to_string(step) + ": " +
           Visible(reason) + "\n";
  }

  // Says how many steps and tensors there were, the tensors that lose most, how far off the shares
  // may be. Lines of at most 100 columns (names apart), each with its end.
  std::string Text() const {
    const std::string text = FirstLine() + "\n";
    return steps_ == 0 ? text + end_
                       : text + Worst() + Overflows() + NotFinite(true) + Uncertainty() + end_;
  }
  // Prints the same for a terminal of 80 columns: a table of the tensors that lose anything, the
  // worst first and not more than a screen has, `note` (lines), and what all come to.
  void PrintTable(const std::string& note, std::ostream& out) const {
    PrintWrapped(FirstLine(), 2, out);
    std::string text = end_ + note;
    if (steps_ > 0) {
      PrintRows(out);
      text = Overflows() + NotFinite(false) + Uncertainty() + text + DxLine();
    }
    constexpr std::string_view kGoesOn = "\n    ";  // a line that was broken at another width
    for (std::size_t at = text.find(kGoesOn); at != std::string::npos; at = text.find(kGoesOn, at))
      text.replace(at, kGoesOn.size(), " ");
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) PrintWrapped(line, 4, out);
  }

 private:
  // Sums over the rows of one tensor; rows without finite values other than zero have no share and
  // are not counted.
  struct Tensor {
    std::string name;
    bool is_dx = false;
    double pct_sum = 0, pct_max = 0, overflow = 0, unchanged_sum = 0, logged_sum = 0;
    double scale_low = INFINITY, scale_high = 0;
    std::int64_t pct_rows = 0, logged_rows = 0, overflow_steps = 0, not_finite_rows = 0;
    double pct_mean() const { return pct_rows > 0 ? pct_sum / static_cast<double>(pct_rows) : 0; }
    double logged_mean() const {
      return logged_rows > 0 ? logged_sum / static_cast<double>(logged_rows) : 0;
    }
  };
  // Those that lose anything. What overflows is worse than what underflows: its step is skipped.
  std::vector<const Tensor*> WorstFirst() const {
    std::vector<const Tensor*> worst;
    for (const Tensor& tensor : tensors_)
      if (tensor.pct_sum > 0 || tensor.overflow_steps > 0) worst.push_back(&tensor);
    std::stable_sort(worst.begin(), worst.end(), [](const Tensor* a, const Tensor* b) {
      return std::pair(a->overflow, a->pct_mean()) > std::pair(b->overflow, b->pct_mean());
    });
    return worst;
  }
  // The rows end where a screen does. Tensors that lose nothing, or held only zeros, are counted
  // below.
  void PrintRows(std::ostream& out) const {
    const std::vector<const Tensor*> worst = WorstFirst();
    TextTable table({"tensor", "lost %", "at most", "in the run", "overflow", "S"});
    for (std::size_t i = 0; i < std::min(worst.size(), kMostRows); ++i) {
      const Tensor& t = *worst[i];
      const std::string low = ShortScale(t.scale_low), high = ShortScale(t.scale_high);
      table.Row({t.name, PctText(t.pct_mean()), PctText(t.pct_max), PctText(t.logged_mean()),
                 std::to_string(std::llround(t.overflow)), low == high ? low : low + " - " + high});
    }
    if (!worst.empty()) table.Print(out, kTerminalWidth);
    if (worst.size() > kMostRows)
      out << "  and " << worst.size() - kMostRows << " that lose less (--csv has all)\n";
    std::int64_t whole = 0, zero = 0, broken = 0;
    for (const Tensor& t : tensors_) {
      if (t.pct_sum > 0 || t.overflow_steps > 0) continue;  // they are in the table
      ++(t.pct_rows > 0 ? whole : t.not_finite_rows > 0 ? broken : zero);
    }
    const auto unknown = [&out](std::int64_t count, const char* held) {
      if (count > 0)
        out << "  " << Counted(count, "tensor") << " held " << held << ": nothing is known of "
            << (count == 1 ? "it\n" : "them\n");
    };
    if (whole > 0) out << "  " << Counted(whole, "tensor") << " would lose nothing\n";
    unknown(zero, "zeros alone");
    unknown(broken, "inf, NaN and zeros alone");
  }
  std::string FirstLine() const {
    const std::string text = "what if " + scenario_ + ": ";
    if (steps_ == 0) return text + "no step was judged";
    return text + Counted(steps_, "step") + " (" + std::to_string(first_step_) + " to " +
           std::to_string(last_step_) + "), " + Counted(std::ssize(tensors_), "tensor");
  }
  // The mean over the gradients between layers: one number to tell scenarios apart.
  std::string DxLine() const {
    double sum = 0, was = 0;
    std::int64_t tensors = 0, more = 0, less = 0;
    for (const Tensor& tensor : tensors_) {
      if (!tensor.is_dx || (tensor.pct_rows == 0 && tensor.not_finite_rows > 0)) continue;
      ++tensors;
      sum += tensor.pct_mean();
      was += tensor.logged_mean();
      // Two predictions are compared, since a log has counts of rounding as it was.
      more += tensor.pct_sum > tensor.unchanged_sum;
      less += tensor.pct_sum < tensor.unchanged_sum;
    }
    if (tensors == 0) return "";
    const auto count = static_cast<double>(tensors);
    return "  of " + std::to_string(tensors) + " dx, " + std::to_string(more) +
           " would lose more, " + std::to_string(less) + " less than in the run; mean " +
           PercentText(sum / count) + ", was " + PercentText(was / count) + "\n";
  }
  // By the mean over the steps; the worst step is told with it.
  std::string Worst() const {
    std::vector<const Tensor*> worst;
    for (const Tensor& tensor : tensors_)
      if (tensor.pct_sum > 0) worst.push_back(&tensor);
    if (worst.empty()) return "  nothing underflows\n";
    std::stable_sort(worst.begin(), worst.end(), [](const Tensor* a, const Tensor* b) {
      return a->pct_mean() > b->pct_mean();
    });
    std::string text = "  most of its non-zero values would lose:\n";
    for (std::size_t i = 0; i < std::min(worst.size(), kWorstTensors); ++i)
      text += "    " + worst[i]->name + " " + PercentText(worst[i]->pct_mean()) + " (at most " +
              PercentText(worst[i]->pct_max) + " in a step)\n";
    return text;
  }
  // Tensors that overflow, and the one with the most values.
  std::string Overflows() const {
    std::int64_t tensors = 0;
    const Tensor* most = nullptr;
    for (const Tensor& tensor : tensors_) {
      if (tensor.overflow_steps == 0) continue;
      ++tensors;
      if (most == nullptr || tensor.overflow > most->overflow) most = &tensor;
    }
    if (most == nullptr) return "  nothing overflows\n";
    return "  " + Counted(tensors, "tensor") + " would overflow, most of all " + most->name +
           ": about " + std::to_string(std::llround(most->overflow)) + " values in " +
           Counted(most->overflow_steps, "step") + "\n";
  }
  // all: those that had no number at all, too, of which the table has a line.
  std::string NotFinite(bool all) const {
    const auto count = std::count_if(tensors_.begin(), tensors_.end(), [&](const Tensor& tensor) {
      return tensor.not_finite_rows > 0 && (all || tensor.pct_rows > 0);
    });
    if (count == 0) return "";
    return "  " + Counted(count, "tensor") +
           " held inf or NaN in some of these steps: nothing is known of those values\n";
  }
  // A bin of a histogram is a power of two wide: values in that of a threshold may lie on either
  // side.
  std::string Uncertainty() const {
    if (unsure_pct_ == 0 && overflow_unsure_ == 0)
      return "  exact: no value shares an exponent with a threshold\n";
    std::string text;
    if (unsure_pct_ > 0)
      text += "  uncertainty: up to " + PercentText(unsure_pct_) +
              " of a tensor's values share the threshold's exponent\n    (" + unsure_at_ + ")";
    if (unsure_pct_ > 0 && powers_of_two_)
      text +=
          "; of these only those equal to a power of two may\n    underflow: all scales are powers "
          "of two";
    if (unsure_pct_ > 0) text += "\n";
    if (overflow_unsure_ > 0)
      text += "  uncertainty: " + Counted(overflow_unsure_, "value") +
              " in all share the exponent above which values overflow\n";
    return text;
  }

  std::string scenario_, end_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::size_t> index_;
  std::set<std::int64_t> judged_;
  std::int64_t first_step_ = 0, last_step_ = 0, steps_ = 0;
  double unsure_pct_ = 0;  // the largest
  std::string unsure_at_;
  std::int64_t overflow_unsure_ = 0;  // values
  bool powers_of_two_ = true;
};

// The policy that --policy names, as its overrides and --scale shape it.
// Read as a text of YAML, so that --policy and --set have the checks and hints of a configuration.
std::optional<scaling::Settings> AskedPolicy(const WhatIfOptions& options, std::ostream& notes) {
  if (options.policy.empty()) return std::nullopt;
  config::Overrides overrides = options.overrides;
  if (options.scale && options.policy != "fixed")
    throw ConfigError("--scale " + ShortestText(*options.scale) + ": policy " + options.policy +
                      " chooses its scales itself; leave out --scale or --policy");
  if (options.scale) overrides.emplace_back("scaling.scale", ShortestText(*options.scale));
  const config::LoadedScaling loaded =
      config::LoadScalingText("policy: " + config::YamlText(options.policy), "--policy", overrides);
  for (const std::string& note : loaded.notes) notes << note << '\n';
  return loaded.scaling;
}

// The scale belongs to policy fixed where that is named, else to the scenario itself.
config::WhatIfConfig ScenarioOf(const WhatIfOptions& options, std::ostream& notes) {
  config::WhatIfConfig scenario;
  scenario.format = options.format;
  scenario.scaling = AskedPolicy(options, notes);
  if (!scenario.scaling) scenario.scale = options.scale;
  return scenario;
}

// How a policy was judged.
std::string PolicyNote(const config::WhatIfConfig& choice) {
  if (!choice.scaling) return "";
  scaling::Settings settings = *choice.scaling;
  scaling::FillDefaults(settings);
  const std::unique_ptr<scaling::Policy> policy = scaling::MakePolicy(settings);
  if (!policy->ConstantScale()) return "  each step stands for all attempts since the one before\n";
  if (!policy->OwnsLayerScales()) return "";
  return "  adaptive is judged with foresight: each layer's scale comes from the gradient that it "
         "is\n    about to round, by the rule of exact_range; methods that see mean and deviation "
         "alone differ\n";
}

void ExpectGradients(const HistogramStep& step, const std::string& folder) {
  for (const judge::HistogramOfTensor& t : step.tensors)
    if (t.carries_s()) return;
  throw DataError(folder +
                  "/histograms.csv: has no dx and no dy, whose scales a policy decides; run again "
                  "with them in log.statistics");
}

}  // namespace

void WhatIf(const WhatIfOptions& options, std::ostream& out, std::ostream& notes) {
  const config::WhatIfConfig choice = ScenarioOf(options, notes);
  const config::Config config = ReadRunConfig(options.folder);
  const bool csv = options.view == View::kCsv, json = options.view == View::kJson;
  // The second one changes nothing.
  judge::Scenario scenario(choice, config.model), unchanged({}, config.model);
  WhatIfSummary summary(scenario.name());
  OrderedJson page = CommandJson("what-if");
  page["run"] = options.folder;
  page["scenario"] = scenario.name();
  page["rows"] = OrderedJson::array();
  const FormatHistory formats = ReadFormatHistory(options.folder, config);
  using Rows = std::vector<telemetry::WhatIfRow>;
  bool first = true;
  EachHistogramStep(options.folder, formats, [&](const HistogramStep& step) {
    if (choice.scaling) ExpectGradients(step, options.folder);
    if (first && csv) PrintCsvHeader<telemetry::WhatIfRow>(out);
    first = false;
    // After the step in which the policy ends the run the rest of the file is only passed over.
    if (!scenario.ended().empty()) return;
    const Rows rows = scenario.Judge(step.step, step.epoch, step.tensors);
    const Rows were = csv || json ? Rows() : unchanged.Judge(step.step, step.epoch, step.tensors);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (csv) PrintCsvRow(rows[i], out);
      if (json) page["rows"].push_back(RowJson(rows[i]));
      const ExponentBins& bins = *step.tensors[i].bins;
      summary.Add(rows[i],
                  {were.empty() ? NAN : were[i].underflow_pct_nonzero, bins.inf + bins.nan > 0});
    }
    if (!scenario.ended().empty()) summary.End(step.step, scenario.ended());
  });
  if (json) {
    page["ended"] = scenario.ended();
    PrintJson(page, out);
  }
  if (!csv && !json)
    EachRow<TensorRow>(options.folder, [&](const TensorRow& row) { summary.AddLogged(row); });
  std::ostream& text = csv || json ? notes : out;
  if (formats.stochastic)
    text << "the run rounds stochastically; the shares are those of rounding to nearest\n";
  if (judge::RoundsBySign(config.precision))
    text << "the run rounds by sign, which histograms do not know: of what lies below the smallest "
            "number half counts as lost\n";
  if (csv || json) {
    text << summary.Text() << PolicyNote(choice);
  } else {
    summary.PrintTable(PolicyNote(choice), text);
  }
}

}  // namespace ada::study

// SummaryText, and the words that explain a scale.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "io/shown_text.h"
#include "io/tensor_names.h"
#include "io/text.h"
#include "scaling/policies/policy.h"
#include "telemetry/accumulator_totals.h"
#include "telemetry/coverage.h"
#include "telemetry/progress.h"
#include "telemetry/progress_text.h"
#include "telemetry/summary.h"
#include "telemetry/totals.h"

namespace ada::telemetry {
namespace {

constexpr std::size_t kTopLayers = 5;
constexpr std::size_t kIndent = 2, kGap = 2;  // of rows; between columns
constexpr std::size_t kLeastWords = 24;       // columns of the last one of a table

std::string Print(const char* format, double value) { return Formatted(format, Printable(value)); }

std::string Percent(double share) { return Print("%.2f %%", 100 * share); }

// "run NAME finished: 10 epochs, 3900 steps (2 skipped) in 12:03, 541 images/s"; where the last
// epoch is not whole "run NAME finished in epoch 10: 3600 steps ..."
std::string FirstLine(const SummaryFacts& facts, const RunTotals& run, const LayerTotals& layers,
                      bool color) {
  const bool untrained = run.steps() > 0 && run.skipped() == run.steps();
  const bool finite = run.finiteness().since() == 0;
  const bool finished = facts.status == RunStatus::kFinished && finite && !untrained;
  const bool within = run.last().epoch > facts.epochs;
  std::string line =
      "run " + Visible(facts.name) + " " +
      Colored(color, finished ? Color::kGreen : Color::kYellow, RunStatusName(facts.status)) +
      (untrained ? " without training anything"
       : finite  ? ""
                 : " with numbers that are not finite") +
      (within ? " in epoch " + std::to_string(run.last().epoch) + ": "
              : ": " + Counted(facts.epochs, "epoch") + ", ") +
      Counted(run.steps(), "step") + " (" + std::to_string(run.skipped()) + " skipped) in " +
      FormatDuration(facts.seconds);
  if (facts.images_per_second > 0 && facts.tokens > 0)
    line += Print(", %.0f tokens/s", facts.images_per_second * static_cast<double>(facts.tokens));
  else if (facts.images_per_second > 0)
    line += Print(", %.0f images/s", facts.images_per_second);
  if (!finite)
    line += "\n  " + Colored(color, Color::kRed,
                             Visible(run.finiteness().Text(FindLostFromTheStart(layers))));
  return line;
}

// "test mIoU 45.10 %, mean class accuracy 60.02 %, pixel accuracy 83.30 %, loss 0.52 (best ...)".
std::string ClassResults(const SplitTotals& split, bool color) {
  std::string text = "\n  " + Visible(split.last.split) + " ";
  const std::vector<Metric> metrics = MetricsOf(*split.last_all);
  for (std::size_t i = 0; i < metrics.size(); ++i)
    text += std::string(i == 0 ? "" : ", ") + metrics[i].name + " " +
            (i == 0 ? Colored(color, Color::kBold, Percent(metrics[i].value))
                    : Percent(metrics[i].value));
  text += ", loss " + Print("%.4g", split.last.loss);
  const ClassRow& best = *split.best_all;
  if (best.step == split.last.step) return text;
  return text + " (best " + Percent(MetricsOf(best).front().value) + " in epoch " +
         std::to_string(best.epoch) + ")";
}

// "loss 1.752, 2.528 bits per byte, perplexity 5.77, accuracy 47.20 %".
std::string TextResult(double loss, double accuracy, const SummaryFacts& facts, bool bold) {
  std::string text = "loss " + Colored(bold, Color::kBold, Print("%.4g", loss));
  if (facts.bytes) text += ", " + Print("%.4g", Bits(loss)) + " bits per byte";
  return text + ", perplexity " + Print("%.4g", Perplexity(loss)) + ", accuracy " +
         Percent(accuracy);
}

// The same of a split, and of which evaluation was the best.
std::string TextResults(const SplitTotals& split, const SummaryFacts& facts, bool color) {
  const std::string text = "\n  " + Visible(split.last.split) + " " +
                           TextResult(split.last.loss, split.last.top1, facts, color);
  if (split.best.step == split.last.step) return text;
  return text + " (best loss " + Print("%.4g", split.best.loss) + " in epoch " +
         std::to_string(split.best.epoch) + ")";
}

std::string Results(const SummaryFacts& facts, const RunTotals& run, bool color) {
  std::string text;
  for (const SplitTotals& split : run.evaluations()) {
    if (split.decided_by_classes()) {
      text += ClassResults(split, color);
      continue;
    }
    if (facts.tokens > 0) {
      text += TextResults(split, facts, color);
      continue;
    }
    text += "\n  " + Visible(split.last.split) + " accuracy " +
            Colored(color, Color::kBold, Percent(split.last.top1)) + ", loss " +
            Print("%.4g", split.last.loss);
    if (split.best.step != split.last.step) {
      text += " (best " + Percent(split.best.top1) + " in epoch " +
              std::to_string(split.best.epoch) + ")";
    }
  }
  if (!std::isnan(run.epoch_loss())) {
    const double loss = run.epoch_loss(), accuracy = run.epoch_accuracy();
    text += "\n  training " +
            (facts.tokens > 0 ? TextResult(loss, accuracy, facts, false)
                              : "accuracy " + Percent(accuracy) + ", loss " + Print("%.4g", loss)) +
            " (mean of epoch " + std::to_string(run.last().epoch) + ")";
  }
  return text;
}

// Updates that change nothing are no values lost on the way through the network: they have a table
// of their own.
bool IsUpdate(const TensorTotals& tensor) { return IsOfUpdate(tensor.tensor); }

// Whether its rounding is stochastic, so that the mean keeps what a step loses.
bool IsKept(const TensorTotals& tensor, const std::vector<std::string>& kept) {
  return Contains(kept, std::string(WholeTensor(tensor.tensor)));
}

// For each layer the tensor that loses most, worst layers first; layers without loss are left out.
// updates: only tensors of the update, otherwise all others; `kept` come last. Sorted by the mean
// over the logged steps; at most kTopLayers.
std::vector<const TensorTotals*> WorstTensors(const LayerTotals& layers, bool updates,
                                              const std::vector<std::string>& kept = {}) {
  std::vector<const TensorTotals*> worst;
  for (const TensorTotals& tensor : layers.tensors())
    if (tensor.lost_sum > 0 && IsUpdate(tensor) == updates) worst.push_back(&tensor);
  std::stable_sort(worst.begin(), worst.end(), [&](const TensorTotals* a, const TensorTotals* b) {
    const bool kept_a = IsKept(*a, kept), kept_b = IsKept(*b, kept);
    return kept_a != kept_b ? kept_b : a->lost_mean() > b->lost_mean();
  });
  std::vector<const TensorTotals*> result;
  for (const TensorTotals* tensor : worst) {
    const bool seen = std::any_of(result.begin(), result.end(), [&](const TensorTotals* other) {
      return other->layer == tensor->layer;
    });
    if (!seen && result.size() < kTopLayers) result.push_back(tensor);
  }
  return result;
}

// The decision about a tensor's scale; a gradient within attention has its own. Gradients from
// after the layer (dy, and operands made from it) have that of the branches that are summed there.
const ScaleTotals* DecisionOf(const TensorTotals& tensor, const LayerTotals& layers) {
  if (IsOfAttention(tensor.tensor))
    return layers.FindScale(tensor.layer + "." + tensor.tensor, false);
  return layers.FindScale(tensor.layer, !IsDx(tensor.tensor));
}

// Why the tensor carries its scale.
std::string Reason(const TensorTotals& tensor, const LayerTotals& layers) {
  if (tensor.tensor == "dw") return "already unscaled";
  if (tensor.tensor == "sent")
    return "the scale of sums between processes (parallel.gradients, reduction)";
  if (!CarriesS(tensor.tensor)) return "carries no scale";
  if (tensor.layer == "loss") return "the scale that backpropagation starts with";
  const ScaleTotals* scale = DecisionOf(tensor, layers);
  return scale != nullptr ? ExplainLimit(*scale) : "passes on the scale it is given";
}

// "-" for a tensor that no decision multiplied.
std::string Alpha(const TensorTotals& tensor, const LayerTotals& layers) {
  const bool chooses = tensor.tensor == "dx" || IsOfAttention(tensor.tensor);
  const ScaleTotals* scale = chooses ? DecisionOf(tensor, layers) : nullptr;
  return scale == nullptr || std::isnan(scale->last_alpha) ? "-" : NineDigits(scale->last_alpha);
}

struct Cell {
  std::string text;
  Color color = Color::kPlain;
};
using Row = std::vector<Cell>;

// A line of its own, and what belongs to it below.
std::string Heading(const std::string& text) {
  return "\n" + Wrapped(text, kIndent, kTerminalWidth, kIndent);
}

// Rows in columns, two blanks apart, the last column wrapped over as many lines as it needs. If
// names are so long that it would be too narrow, each is put on a line of its own above its row.
// The first row is the head; all have the same number of cells.
std::string Table(const std::vector<Row>& rows, bool color) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].text.size());
    }
  }
  std::size_t before = kIndent;  // columns in front of the last one
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) before += widths[i] + kGap;
  const bool apart = before + kLeastWords > kTerminalWidth;
  // Without the first column, and indented once more.
  if (apart) before += kIndent - widths[0] - kGap;
  const std::size_t width = std::max(kTerminalWidth, before + kLeastWords);
  std::string text;
  for (const Row& row : rows) {
    text += "\n  ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (apart && i == 0) {
        text += row[i].text + "\n" + std::string(2 * kIndent, ' ');
        continue;
      }
      const bool last = i + 1 == row.size();
      text += Colored(color, row[i].color,
                      last ? Wrapped(row[i].text, before, width, before) : row[i].text);
      if (!last) text += std::string(widths[i] - row[i].text.size() + kGap, ' ');
    }
  }
  return text;
}

// A share of values that were lost, in percent: half of them is what an alert tells.
Cell Lost(double pct) {
  const Color color = pct >= 50 ? Color::kRed : pct >= 10 ? Color::kYellow : Color::kPlain;
  return {Print("%.3f %%", pct), color};
}

// A line for each accumulator.
std::string Sums(const LayerTotals& layers) {
  std::string lines;
  for (const std::string& line : AccumulatorLines(layers.sums())) lines += "\n" + line;
  return lines;
}

// What was lost, the worst layers first, and of what that is said.
// Three cases: nothing was counted, nothing was lost, or a table.
std::string Losses(const LayerTotals& layers, const Coverage& coverage, bool color) {
  const std::vector<const TensorTotals*> worst = WorstTensors(layers, /*updates=*/false);
  // Operands are quantized copies, made to saturate: they have a line of their own.
  const auto not_finite_line = [&](bool operands, const char* noun, const char* what) {
    const auto count = static_cast<std::int64_t>(std::count_if(
        layers.tensors().begin(), layers.tensors().end(), [&](const TensorTotals& tensor) {
          return tensor.broken_rows > 0 && IsOperand(tensor.tensor) == operands;
        }));
    if (count == 0) return std::string();
    return "\n" + Colored(color, Color::kYellow, Counted(count, noun) + what) +
           " in logged steps (see underflow.csv)";
  };
  std::string not_finite = not_finite_line(false, "tensor", " overflowed or held inf or NaN") +
                           not_finite_line(true, "operand", " saturated or held inf or NaN");
  if (layers.broken_blocks() > 0)
    not_finite += "\n" +
                  Colored(color, Color::kYellow,
                          "blocks of operands became inf or NaN, or were, in " +
                              Counted(layers.broken_blocks(), "row")) +
                  " of blocks.csv (broken_blocks)";
  if (worst.empty()) return not_finite + "\n" + LostText(layers, coverage);
  std::vector<Row> rows = {
      {{"layer"}, {"tensor"}, {"lost"}, {"at most"}, {"scale"}, {"alpha"}, {"why"}}};
  std::int64_t most = 0;
  for (const TensorTotals* tensor : worst) {
    rows.push_back({{Visible(tensor->layer)},
                    {tensor->tensor},
                    Lost(tensor->lost_mean()),
                    Lost(tensor->lost_max),
                    {NineDigits(tensor->last_scale)},
                    {Alpha(*tensor, layers)},
                    {Reason(*tensor, layers)}});
    most = std::max(most, tensor->rows);
  }
  return not_finite +
         Heading("layers that lose most (share of their values other than zero, mean of " +
                 Counted(most, "logged step") + "; last scale)") +
         Table(rows, color) + "\n" +
         (LostMost(layers) == worst.front() ? "counted: " + coverage.Text()
                                            : LostText(layers, coverage));
}

// Weights and sums that do not change because each change is less than half their spacing, and
// values that became zero where masters and the optimizer's state are stored.
std::string StillWeights(const LayerTotals& layers, const std::vector<std::string>& kept,
                         bool color) {
  const std::vector<const TensorTotals*> worst = WorstTensors(layers, /*updates=*/true, kept);
  if (worst.empty()) return "";
  const bool sums = std::any_of(worst.begin(), worst.end(), [](const TensorTotals* tensor) {
    return tensor->tensor == "accumulated";
  });
  const bool any_kept = std::any_of(worst.begin(), worst.end(), [&](const TensorTotals* tensor) {
    return IsKept(*tensor, kept);
  });
  std::vector<Row> rows = {{{"layer"}, {"tensor"}, {"lost"}, {"at most"}, {"format"}}};
  for (const TensorTotals* tensor : worst)
    rows.push_back({{Visible(tensor->layer)},
                    {tensor->tensor},
                    Lost(tensor->lost_mean()),
                    Lost(tensor->lost_max),
                    {tensor->last_format + (IsKept(*tensor, kept) ? ", stochastic" : "")}});
  return Heading(
             "what updates lose most (update: changes that leave their weight where it was; "
             "master, state: values that become zero where they are kept" +
             std::string(sums ? "; accumulated: parts that leave the sum where it was" : "") +
             (any_kept ? "; stochastic: kept in the mean)" : ")")) +
         Table(rows, color);
}

// Layers without any gradient come first: shares of lost values do not show them.
std::string Layers(const LayerTotals& layers, const Coverage& coverage,
                   const std::vector<std::string>& kept, bool color) {
  if (layers.tensors().empty()) return "\n" + LostText(layers, coverage);
  const std::vector<LayerWithoutGradient> dead = LayersWithoutGradient(layers);
  std::string none;
  if (!dead.empty()) {
    none = "\n" + Colored(color, Color::kRed, Visible(NoGradientText(dead, dead.size())));
  }
  return none + Losses(layers, coverage, color) + Sums(layers) + StillWeights(layers, kept, color);
}

// Steps that trained nothing, and whether any later one could.
std::string Skips(const RunTotals& run, bool color) {
  if (run.skipped() == 0) return "";
  const bool all = run.skipped() == run.steps();
  std::string text = "\n" +
                     Colored(color, all ? Color::kRed : Color::kYellow,
                             (all ? "all " : "") + Counted(run.skipped(), "step") + " skipped") +
                     " because gradients were not finite" +
                     (all ? ", so nothing was trained" : "") +
                     ":\n  events.csv names layer and tensor";
  if (run.last().scale == 0)
    text += "\n" + Colored(color, Color::kRed, "the scale is 0 for good") + ": " +
            scaling::WhyForGood(run.last().scale) +
            ", and no later step can train (scaling.min_scale)";
  return text;
}

std::string Broken(const RunTotals& run, bool color) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> names;
  for (const auto& [name, times] : run.broken_images()) names.push_back(Visible(name));
  if (names.empty()) return "";
  const auto count = static_cast<std::int64_t>(names.size());
  return "\n" + Colored(color, Color::kYellow, Counted(count, "image") + " left out") +
         " because " + (count == 1 ? "it" : "they") +
         " cannot be read (events.csv): " + FirstNames(names, kNamed);
}

// What every run has, and of what only some have the names that are there.
std::string Files(const std::string& folder) {
  std::string some;
  for (const std::string name :
       {"classes.csv", "confusion.csv", "losses.csv", "histograms.csv", "what_if.csv",
        "what_if_blocks.csv", "probes.csv", "blocks.csv", "accumulators.csv",
        "what_if_accumulators.csv", "dump/", "tensorboard/"}) {
    std::error_code error;  // what cannot be looked at is not named
    const bool empty = std::filesystem::is_empty(folder + "/" + name, error);
    if (!error && !empty) some += (some.empty() ? "\n  " : " ") + name;
  }
  return "\nfiles: " + Visible(folder) +
         "\n  underflow.csv scales.csv steps.csv evaluation.csv events.csv summary.json\n" +
         "  log.txt config.yaml checkpoints/" + some;
}

// Every line in the columns of a terminal; what goes on stands deeper.
std::string Fitted(const std::string& text) {
  std::istringstream lines(text);
  std::string fitted;
  for (std::string line; std::getline(lines, line);)
    fitted += (fitted.empty() ? "" : "\n") +
              Wrapped(line, std::min(line.find_first_not_of(' '), line.size()) + kIndent);
  return fitted;
}

}  // namespace

// The words of scales.csv (LimitName), since totals may come from a file.
std::string ExplainLimit(const ScaleTotals& scale) {
  const std::string& limit = scale.last_limit;
  const std::string bound = std::isnan(scale.last_bound) ? "" : " " + NineDigits(scale.last_bound);
  const std::string s_in = NineDigits(scale.last_scale_in);
  if (limit == "target") return "target: the value computed for underflow_target";
  if (limit == "one") return "one: computed to need no factor";
  if (limit == "cap") return "cap: a larger factor could overflow";
  if (limit == "SB") return "SB: held at scale_upper_bound" + bound;
  if (limit == "AB") return "AB: held at accum_upper_bound / scale_in" + bound;
  if (limit == "stale") return "stale: the value of an earlier step (update_interval)";
  if (limit == "fixed") return "fixed: the constant of the layer";
  if (limit == "state") return "state: the layer's own scale (layerwise_dynamic, total_scale)";
  if (limit == "nonfinite") return "nonfinite: the gradient was not finite, the step was skipped";
  if (limit == "branch") return "branch: gradients of several layers brought to one scale";
  return "none: passes on the scale " + s_in;
}

std::string SummaryText(const SummaryFacts& facts, const RunTotals& run, const LayerTotals& layers,
                        bool color) {
  const Coverage coverage = CoverageOf(layers, run.steps(), facts.uncounted);
  return Fitted(FirstLine(facts, run, layers, color) + Results(facts, run, color) +
                Layers(layers, coverage, facts.kept_in_the_mean, color) + Skips(run, color) +
                Broken(run, color) + Files(facts.folder));
}

}  // namespace ada::telemetry

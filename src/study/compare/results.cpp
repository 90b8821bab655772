// The table of results, and the last line of the page. Which rows there are depends on what the
// runs were judged by: top-1, metrics by class (segmentation, detection), or bits and perplexity
// (language).
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <vector>

#include "config/load.h"
#include "error.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/compare/comparison.h"
#include "study/run_files.h"
#include "study/text_table.h"
#include "telemetry/progress_text.h"

namespace ada::study {
namespace {

constexpr std::size_t kMostSplits = 100;  // a table row each, and more

// Up to `digits` after the point, without zeros at the end.
std::string Rounded(double value, int digits) {
  if (!std::isfinite(value)) return ShortestText(value);
  const double unit = std::pow(10.0, digits);
  const double rounded = std::round(value * unit) / unit;
  return NineDigits(rounded == 0 ? 0 : rounded);
}

// A row of the table: a number of a run, or nothing where the run has none.
struct Figure {
  std::string what;
  std::optional<double> value;
  int digits = 0;
};

// A split on which either run was evaluated. metrics: by class, those of the first run that has
// some; a run of another task has none of them.
struct ComparedSplit {
  std::string name;
  std::vector<telemetry::Metric> metrics;
};

// Null where the run was not evaluated on it.
const telemetry::SplitTotals* Split(const RunResults& run, const std::string& name) {
  for (const telemetry::SplitTotals& split : run.totals.evaluations())
    if (split.last.split == name) return &split;
  return nullptr;
}

std::vector<ComparedSplit> SplitsOf(const RunResults& a, const RunResults& b) {
  std::map<std::string, std::vector<telemetry::Metric>> splits;
  for (const RunResults* run : {&a, &b})
    for (const telemetry::SplitTotals& split : run->totals.evaluations()) {
      std::vector<telemetry::Metric>& metrics = splits[split.last.split];
      if (split.decided_by_classes() && metrics.empty())
        metrics = telemetry::MetricsOf(*split.last_all);
    }
  std::vector<ComparedSplit> all;
  for (const auto& [name, metrics] : splits) all.push_back({name, metrics});
  return all;
}

std::optional<double> IfKnown(double value) {
  return value > 0 ? std::optional(value) : std::nullopt;
}

// In percent.
std::optional<double> MetricOf(const std::optional<telemetry::ClassRow>& row,
                               const std::string& key) {
  if (!row) return std::nullopt;
  for (const telemetry::Metric& metric : telemetry::MetricsOf(*row))
    if (metric.key == key) return 100 * metric.value;
  return std::nullopt;
}

// Where classes decide, top-1 and top-5 have no meaning; bits and perplexity mean nothing for
// images, and top-1 of tokens has another name.
void AddSplit(const RunResults& run, const ComparedSplit& split, std::vector<Figure>& to) {
  const telemetry::SplitTotals* found = Split(run, split.name);
  const telemetry::SplitTotals of = found != nullptr ? *found : telemetry::SplitTotals();
  const auto add = [&](const std::string& what, bool asked, double value, int digits) {
    to.push_back({split.name + what,
                  found != nullptr && asked ? std::optional(value) : std::nullopt, digits});
  };
  add(" loss", true, of.last.loss, 6);
  for (const telemetry::Metric& metric : split.metrics) {
    const std::string what = split.name + " " + metric.name + " %";
    to.push_back({what, MetricOf(of.last_all, metric.key), 3});
    if (&metric == split.metrics.data())
      to.push_back({what + ", best", MetricOf(of.best_all, metric.key), 3});
  }
  if (!split.metrics.empty()) return;
  const bool text = run.language;
  add(" loss, best", text, of.best.loss, 6);
  add(" bits per byte", run.bytes, telemetry::Bits(of.last.loss), 6);
  add(" perplexity", text, telemetry::Perplexity(of.last.loss), 4);
  add(" accuracy %", text, 100 * of.last.top1, 3);
  add(" top-1 %", !text, 100 * of.last.top1, 3);
  add(" top-1 %, best", !text, 100 * of.best.top1, 3);
  add(" top-5 %", !text && telemetry::TopFiveTells(run.classes), 100 * of.last.top5, 3);
}

// The same rows of each run.
std::vector<Figure> FiguresOf(const RunResults& run, const std::vector<ComparedSplit>& splits) {
  const telemetry::RunTotals& totals = run.totals;
  const double loss = totals.epoch_loss();
  std::vector<Figure> all = {
      {"steps", static_cast<double>(totals.steps()), 0},
      {"epoch", static_cast<double>(totals.last().epoch), 0},
      {"skipped steps", static_cast<double>(totals.skipped()), 0},
      {"last S (of the logit gradient)", totals.last().scale, 6},
      {"training loss, mean of the last epoch", loss, 6},
      {"training perplexity, the same",
       run.language ? std::optional(telemetry::Perplexity(loss)) : std::nullopt, 4},
      {"training accuracy %, the same", 100 * totals.epoch_accuracy(), 3}};
  for (const ComparedSplit& split : splits) AddSplit(run, split, all);
  all.push_back({"images/s", run.language ? std::nullopt : IfKnown(run.images_per_second), 0});
  all.push_back({"tokens/s", IfKnown(run.tokens_per_second), 0});
  all.push_back({"seconds", IfKnown(run.seconds), 1});
  return all;
}

double NumberOf(const nlohmann::json& summary, const char* key) {
  const auto found = summary.find(key);
  return found != summary.end() && found->is_number() ? found->get<double>() : 0;
}

// The split that both were evaluated on: the test images where they were.
std::optional<std::string> CommonSplit(const RunResults& a, const RunResults& b) {
  std::optional<std::string> common;
  for (const auto& of_a : a.totals.evaluations())
    for (const auto& of_b : b.totals.evaluations())
      if (of_a.last.split == of_b.last.split && (!common || of_a.last.split == "test"))
        common = of_a.last.split;
  return common;
}

// The metric by which a run is judged on a split: its name and its value.
struct Judged {
  std::string name, text;
};
Judged JudgedBy(const RunResults& run, const std::string& split) {
  const telemetry::SplitTotals& of = *Split(run, split);
  const double loss = of.last.loss;
  if (run.language)
    return {"loss", Formatted("%.4g nats, perplexity %.4g", loss, telemetry::Perplexity(loss))};
  const telemetry::Metric metric = DecidingMetric(of);
  return {metric.name, Formatted("%.2f %%", 100 * metric.value)};
}

// "1.500 % (A)": the mean over the layers with values other than zero, and how many have none;
// empty if no layer was logged.
std::string LostText(const ComparedRun& run) {
  double sum = 0;
  std::int64_t count = 0, silent = 0;
  for (const LayerRecord& layer : run.layers) {
    if (std::isnan(layer.mean_pct)) {
      ++silent;
      continue;
    }
    sum += layer.mean_pct;
    ++count;
  }
  if (count + silent == 0) return "";
  std::string text = count == 0 ? "-" : PctText(sum / static_cast<double>(count)) + " %";
  text += " (" + run.letter;
  if (silent > 0) text += "; no gradient in " + Counted(silent, "layer");
  return text + ")";
}

}  // namespace

telemetry::Metric DecidingMetric(const telemetry::SplitTotals& split) {
  if (split.decided_by_classes()) return telemetry::MetricsOf(*split.last_all).front();
  return {.key = "", .name = "top-1", .value = split.last.top1};
}

// The totals are those of a summary, made from the CSV files by the same class
// (telemetry/totals.h).
RunResults ReadResults(const std::string& folder, const config::Config& config) {
  RunResults run;
  run.state = RunState(folder);
  run.language = config.task == Task::kLanguage;
  run.bytes = config::TokensAreBytes(config);
  run.classes = config.model.classes;
  run.totals.DecideByLoss(config::DecidesByLoss(config));
  EachRow<StepRow>(folder, [&](const StepRow& row) { run.totals.Add(row); });
  EachRow<EvaluationRow>(folder, [&](const EvaluationRow& row) {
    run.totals.Add(row);
    // A damaged file with ever other names would fill the table without an end.
    if (run.totals.evaluations().size() > kMostSplits)
      throw DataError(folder + "/evaluation.csv: step " + std::to_string(row.step) +
                      ": more than 100 names of splits; expected train, test or validation");
  });
  EachRowIfThere<ClassRow>(folder, [&](const ClassRow& row) { run.totals.Add(row); });
  if (const nlohmann::json summary = ReadSummary(folder); summary.is_object()) {
    run.seconds = NumberOf(summary, "seconds");
    run.images_per_second = NumberOf(summary, "images_per_second");
    run.tokens_per_second = NumberOf(summary, "tokens_per_second");
  }
  return run;
}

void PrintResults(const RunResults& a, const RunResults& b, std::ostream& out) {
  out << "\nresults\n";
  TextTable table({"", "A", "B", "B - A"});
  table.Row({"status", a.state, b.state, ""});
  const std::vector<ComparedSplit> splits = SplitsOf(a, b);
  const std::vector<Figure> of_a = FiguresOf(a, splits), of_b = FiguresOf(b, splits);
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    const std::optional<double> x = of_a[i].value, y = of_b[i].value;
    if (!x && !y) continue;
    const auto text = [&](std::optional<double> value) {
      return value ? Rounded(*value, of_a[i].digits) : "-";
    };
    const std::optional<double> difference = x && y ? std::optional(*y - *x) : std::nullopt;
    table.Row({of_a[i].what, text(x), text(y), (difference > 0.0 ? "+" : "") + text(difference)});
  }
  table.Print(out, kTerminalWidth);
}

std::string InShort(const ComparedRun& of_a, const ComparedRun& of_b, const std::string& parting) {
  const RunResults &a = of_a.results, &b = of_b.results;
  std::string text = "in short: ";
  // Runs that were judged by different metrics (of different tasks) each name theirs.
  if (const auto split = CommonSplit(a, b)) {
    const Judged x = JudgedBy(a, *split), y = JudgedBy(b, *split);
    text += Visible(*split) + " " + x.name + " " + x.text + " (A), " +
            (y.name == x.name ? "" : y.name + " ") + y.text + " (B); ";
  } else if (a.totals.steps() > 0 && b.totals.steps() > 0) {
    text += "training loss " + Formatted("%.4g", a.totals.epoch_loss()) + " (A), " +
            Formatted("%.4g", b.totals.epoch_loss()) + " (B); ";
  }
  const std::string lost_a = LostText(of_a), lost_b = LostText(of_b);
  if (!lost_a.empty() && !lost_b.empty())
    text += "lost of dx, mean of the layers, " + lost_a + ", " + lost_b + "; ";
  return text + parting;
}

}  // namespace ada::study

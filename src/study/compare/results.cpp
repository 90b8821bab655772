// The table of results, and the last line of the page. Which rows there are depends on what the
// runs were judged by: top-1, metrics by class (segmentation, detection), or bits and perplexity
// (language).
#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <set>
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

// The part of the table that compares numbers.
// Adds rows to a table: each is a function of a run's results, asked of both.
class Numbers {
 public:
  Numbers(const RunResults& a, const RunResults& b, TextTable& table)
      : a_(a), b_(b), table_(table) {}

  using Value = std::function<std::optional<double>(const RunResults&)>;
  // The same, asked of language models alone, or of all other runs.
  // Loss and accuracy exist for every run, but bits and perplexity mean nothing for images, and
  // top-1 of tokens has another name.
  static Value OfText(const Value& value, bool language = true) {
    return [value, language](const RunResults& run) {
      return run.language == language ? value(run) : std::nullopt;
    };
  }
  // No row where neither run has such a number.
  void Row(const std::string& what, const Value& value, int digits) {
    const std::optional<double> a = value(a_), b = value(b_);
    if (!a && !b) return;
    const auto text = [&](std::optional<double> v) { return v ? Rounded(*v, digits) : "-"; };
    std::optional<double> difference;
    if (a && b) difference = *b - *a;
    table_.Row({what, text(a), text(b), (difference > 0.0 ? "+" : "") + text(difference)});
  }

 private:
  const RunResults &a_, &b_;
  TextTable& table_;
};

// Null where the run was not evaluated on it.
const telemetry::SplitTotals* Split(const RunResults& run, const std::string& name) {
  for (const telemetry::SplitTotals& split : run.totals.evaluations()) {
    if (split.last.split == name) return &split;
  }
  return nullptr;
}

// Rows of metrics by class; returns whether there are any.
// Which metrics there are is taken from the first run that has some; a run of another task shows
// "-".
bool AddMetrics(const RunResults& a, const RunResults& b, const std::string& name,
                Numbers& numbers) {
  std::vector<telemetry::Metric> metrics;
  for (const RunResults* run : {&a, &b}) {
    const telemetry::SplitTotals* split = Split(*run, name);
    if (split != nullptr && split->decided_by_classes() && metrics.empty())
      metrics = telemetry::MetricsOf(*split->last_all);
  }
  using All = std::optional<telemetry::ClassRow> telemetry::SplitTotals::*;
  const auto of = [&name](const std::string& key, All when) {
    return [&name, key, when](const RunResults& run) -> std::optional<double> {
      const telemetry::SplitTotals* split = Split(run, name);
      if (split == nullptr || !(split->*when)) return std::nullopt;
      for (const telemetry::Metric& metric : telemetry::MetricsOf(*(split->*when)))
        if (metric.key == key) return 100 * metric.value;
      return std::nullopt;
    };
  };
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const telemetry::Metric& m = metrics[i];
    numbers.Row(name + " " + m.name + " %", of(m.key, &telemetry::SplitTotals::last_all), 3);
    if (i > 0) continue;
    numbers.Row(name + " " + m.name + " %, best", of(m.key, &telemetry::SplitTotals::best_all), 3);
  }
  return !metrics.empty();
}

// Rows of what language models are judged by on a split; `of`: from a function of the split's
// totals to one of a run.
template <class Of>
void AddText(const std::string& name, const Of& of, Numbers& numbers) {
  const auto row = [&](const char* what, double (*value)(const telemetry::SplitTotals&),
                       int digits) {
    numbers.Row(name + what, Numbers::OfText(of(value)), digits);
  };
  row(
      " loss, best", [](const auto& s) { return s.best.loss; }, 6);
  const Numbers::Value bits = of([](const auto& s) { return telemetry::Bits(s.last.loss); });
  numbers.Row(
      name + " bits per byte",
      [&](const RunResults& run) { return run.bytes ? bits(run) : std::nullopt; }, 6);
  row(
      " perplexity", [](const auto& s) { return telemetry::Perplexity(s.last.loss); }, 4);
  row(
      " accuracy %", [](const auto& s) { return 100 * s.last.top1; }, 3);
}

void AddSplits(const RunResults& a, const RunResults& b, Numbers& numbers) {
  std::set<std::string> splits;
  for (const RunResults* run : {&a, &b}) {
    for (const auto& split : run->totals.evaluations()) splits.insert(split.last.split);
  }
  for (const std::string& name : splits) {
    const auto of = [&name](double (*value)(const telemetry::SplitTotals&)) {
      return [&name, value](const RunResults& run) -> std::optional<double> {
        const telemetry::SplitTotals* split = Split(run, name);
        return split == nullptr ? std::nullopt : std::optional(value(*split));
      };
    };
    numbers.Row(name + " loss", of([](const auto& s) { return s.last.loss; }), 6);
    // Where classes decide, top-1 and top-5 have no meaning.
    if (AddMetrics(a, b, name, numbers)) continue;
    AddText(name, of, numbers);
    const auto row = [&](const char* what, double (*value)(const telemetry::SplitTotals&)) {
      numbers.Row(name + what, Numbers::OfText(of(value), false), 3);
    };
    row(" top-1 %", [](const auto& s) { return 100 * s.last.top1; });
    row(" top-1 %, best", [](const auto& s) { return 100 * s.best.top1; });
    const Numbers::Value top5 = of([](const auto& s) { return 100 * s.last.top5; });
    const auto if_it_tells = [&](const RunResults& run) {
      return telemetry::TopFiveTells(run.classes) ? top5(run) : std::nullopt;
    };
    numbers.Row(name + " top-5 %", Numbers::OfText(if_it_tells, false), 3);
  }
}

std::optional<double> IfKnown(double value) {
  return value > 0 ? std::optional(value) : std::nullopt;
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
  for (const auto& evaluation : run.totals.evaluations()) {
    if (evaluation.last.split != split) continue;
    const double loss = evaluation.last.loss;
    if (run.language)
      return {"loss", Formatted("%.4g nats, perplexity %.4g", loss, telemetry::Perplexity(loss))};
    const telemetry::Metric metric =
        evaluation.decided_by_classes()
            ? telemetry::MetricsOf(*evaluation.last_all).front()
            : telemetry::Metric{.key = "", .name = "top-1", .value = evaluation.last.top1};
    return {metric.name, Formatted("%.2f %%", 100 * metric.value)};
  }
  return {};
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
  Numbers numbers(a, b, table);
  numbers.Row(
      "steps", [](const RunResults& r) { return double(r.totals.steps()); }, 0);
  numbers.Row(
      "epoch", [](const RunResults& r) { return double(r.totals.last().epoch); }, 0);
  numbers.Row(
      "skipped steps", [](const RunResults& r) { return double(r.totals.skipped()); }, 0);
  numbers.Row(
      "last S (of the logit gradient)", [](const RunResults& r) { return r.totals.last().scale; },
      6);
  numbers.Row(
      "training loss, mean of the last epoch",
      [](const RunResults& r) { return r.totals.epoch_loss(); }, 6);
  numbers.Row("training perplexity, the same", Numbers::OfText([](const RunResults& r) {
                return telemetry::Perplexity(r.totals.epoch_loss());
              }),
              4);
  numbers.Row(
      "training accuracy %, the same",
      [](const RunResults& r) { return 100 * r.totals.epoch_accuracy(); }, 3);
  AddSplits(a, b, numbers);
  numbers.Row(
      "images/s",
      Numbers::OfText([](const RunResults& r) { return IfKnown(r.images_per_second); }, false), 0);
  numbers.Row(
      "tokens/s", [](const RunResults& r) { return IfKnown(r.tokens_per_second); }, 0);
  numbers.Row(
      "seconds", [](const RunResults& r) { return IfKnown(r.seconds); }, 1);
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

// More than two runs, a line each, and the same as JSON. Runs are told from the first one.
#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

#include "config/load.h"
#include "io/json_output.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/compare/comparison.h"
#include "study/output.h"
#include "study/run_files.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

// The letters of the first kMostCompared runs.
std::string LetterOf(std::size_t run) { return std::string(1, static_cast<char>('A' + run)); }

// A key that is not the same in all runs, with the value of each.
struct VariedKey {
  std::string key;
  std::vector<std::string> values;
};
std::vector<VariedKey> VariedKeys(const std::vector<ComparedRun>& runs) {
  std::vector<VariedKey> keys;
  std::map<std::string, std::size_t> places;
  for (std::size_t run = 1; run < runs.size(); ++run)
    for (const KeyDifference& d : ConfigDifferences(runs.front().config, runs[run].config)) {
      const auto [found, is_new] = places.emplace(d.key, keys.size());
      if (is_new) keys.push_back({d.key, std::vector<std::string>(runs.size(), d.a)});
      keys[found->second].values[run] = d.b;
    }
  return keys;
}

// The split that runs are judged by: test, else the first one.
const telemetry::SplitTotals* JudgedSplit(const ComparedRun& run) {
  const auto& all = run.results.totals.evaluations();
  for (const telemetry::SplitTotals& split : all)
    if (split.last.split == "test") return &split;
  return all.empty() ? nullptr : &all.front();
}

// The number that it is judged by, or nothing.
std::string JudgedText(const ComparedRun& run) {
  const telemetry::SplitTotals* split = JudgedSplit(run);
  if (split == nullptr) return "-";
  if (run.results.language) return Formatted("%.4f", split->last.loss);
  return Formatted("%.2f %%", 100 * DecidingMetric(*split).value);
}

// "bf16 (A, C), fp16 (B)": each value with the runs that have it.
std::string ValuesText(const VariedKey& key) {
  std::vector<std::pair<std::string, std::string>> values;  // and letters
  for (std::size_t run = 0; run < key.values.size(); ++run) {
    const std::string value = key.values[run].empty() ? "not there" : key.values[run];
    const auto same = std::find_if(values.begin(), values.end(),
                                   [&](const auto& other) { return other.first == value; });
    if (same == values.end())
      values.emplace_back(value, LetterOf(run));
    else
      same->second += " " + LetterOf(run);
  }
  std::string text;
  for (const auto& [value, letters] : values)
    text += (text.empty() ? "" : ", ") + Visible(value) + " (" + letters + ")";
  return text;
}

// Keys for people: those that all runs have, then those of some, the ones with fewer parts first,
// since a recipe's name says what its many keys do.
void SortForReading(std::vector<VariedKey>& keys) {
  const auto rank = [](const VariedKey& key) {
    const bool everywhere = !Contains(key.values, "");
    return everywhere ? 0 : std::count(key.key.begin(), key.key.end(), '.');
  };
  std::stable_sort(keys.begin(), keys.end(),
                   [&](const VariedKey& a, const VariedKey& b) { return rank(a) < rank(b); });
}

void PrintVariedKeys(std::vector<VariedKey> keys, std::ostream& out) {
  constexpr std::size_t kMostKeys = 16;
  out << "\nconfiguration: "
      << (keys.empty()
              ? "the same"
              : Counted(std::ssize(keys), "key") + (keys.size() == 1 ? " differs" : " differ"))
      << '\n';
  SortForReading(keys);
  for (std::size_t i = 0; i < std::min(keys.size(), kMostKeys); ++i)
    PrintWrapped("  " + Visible(keys[i].key) + ": " + ValuesText(keys[i]), 4, out);
  if (keys.size() > kMostKeys)
    out << "  and " << keys.size() - kMostKeys << " more (--json has all)\n";
}

std::string LossNumber(double loss) { return std::isfinite(loss) ? Formatted("%.4f", loss) : "-"; }

void PrintTableOfRuns(const std::vector<ComparedRun>& runs, std::ostream& out) {
  TextTable table({"run", "status", "steps", "skipped", "loss", "judged", "lost most"}, 2);
  table.LastToTheLeft();
  for (const ComparedRun& run : runs) {
    const telemetry::TensorTotals* most = telemetry::LostMost(run.totals);
    table.Row({run.letter, run.results.state, std::to_string(run.results.totals.steps()),
               std::to_string(run.results.totals.skipped()),
               LossNumber(run.results.totals.epoch_loss()), JudgedText(run),
               most == nullptr
                   ? "-"
                   : CutText(most->name(), 22) + Formatted(" %.3g %%", most->lost_mean())});
  }
  table.Print(out, kTerminalWidth);
}

OrderedJson SplitJson(const telemetry::SplitTotals& split) {
  OrderedJson json = {{"loss", split.last.loss},      {"top1", split.last.top1},
                      {"top5", split.last.top5},      {"best_step", split.best.step},
                      {"best_loss", split.best.loss}, {"best_top1", split.best.top1}};
  if (split.decided_by_classes())
    for (const telemetry::Metric& metric : telemetry::MetricsOf(*split.last_all))
      json[metric.key] = metric.value;
  return json;
}

OrderedJson RunJson(const ComparedRun& run) {
  OrderedJson json;
  json["folder"] = run.folder;
  json["name"] = run.config.name;
  json["format"] = FormatName(run.config.precision.format);
  json["policy"] = run.config.scaling.policy;
  json["status"] = run.results.state;
  json["steps"] = run.results.totals.steps();
  json["epoch"] = run.results.totals.last().epoch;
  json["skipped_steps"] = run.results.totals.skipped();
  json["scale"] = run.results.totals.last().scale;
  json["train_loss"] = run.results.totals.epoch_loss();
  json["train_accuracy"] = run.results.totals.epoch_accuracy();
  json["evaluation"] = OrderedJson::object();
  for (const telemetry::SplitTotals& split : run.results.totals.evaluations())
    json["evaluation"][split.last.split] = SplitJson(split);
  json["seconds"] = run.results.seconds > 0 ? OrderedJson(run.results.seconds) : OrderedJson();
  json["lost"] = LostJson(run.totals, run.coverage);
  return json;
}

// By layer of any run, in the order of their first rows: what its dx carried and lost in each run,
// null where a run has no such layer.
OrderedJson LayersJson(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> names;
  for (const ComparedRun& run : runs)
    for (const LayerRecord& layer : run.layers)
      if (!Contains(names, layer.name)) names.push_back(layer.name);
  OrderedJson all = OrderedJson::array();
  for (const std::string& name : names) {
    OrderedJson json = {{"layer", name}, {"runs", OrderedJson::array()}};
    for (const ComparedRun& run : runs) {
      const auto layer = std::find_if(run.layers.begin(), run.layers.end(),
                                      [&](const LayerRecord& l) { return l.name == name; });
      json["runs"].push_back(layer == run.layers.end()
                                 ? OrderedJson()
                                 : OrderedJson{{"mean_scale", layer->mean_scale},
                                               {"last_scale", layer->last_scale},
                                               {"mean_underflow_pct", layer->mean_pct},
                                               {"last_underflow_pct", layer->last_pct}});
    }
    all.push_back(json);
  }
  return all;
}

// Where the steps of a run part from those of the first; 0: they do not.
std::int64_t PartingStep(const std::string& first, const std::string& other) {
  const FileComparison steps = CompareRows(first, other, StepRow::kFile);
  return steps.difference ? steps.difference->step : 0;
}

// How far a run that parts nowhere goes with A.
std::string CommonSteps(std::int64_t of_a, std::int64_t own) {
  const std::int64_t common = std::min(of_a, own);
  if (common == 0) return " has no step in common with A";
  return " has the steps of A" + (of_a == own ? "" : " up to step " + std::to_string(common));
}

}  // namespace

std::vector<ComparedRun> ReadCompared(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) RequireRun(folder);
  std::vector<ComparedRun> runs;
  for (const std::string& folder : folders) {
    ComparedRun& run = runs.emplace_back();
    run.folder = folder;
    run.letter = LetterOf(runs.size() - 1);
    run.config = ReadRunConfig(folder);
    run.results = ReadResults(folder, run.config);
    run.layers = ReadLayers(folder);
    EachRow<TensorRow>(folder, [&](const TensorRow& row) { run.totals.Add(row); });
    run.coverage = telemetry::CoverageOf(run.totals, run.results.totals.steps(),
                                         config::UncountedStatistics(run.config));
  }
  return runs;
}

void PrintRun(const ComparedRun& run, const std::string& name, std::ostream& out) {
  out << CutText(run.letter + "  " + run.folder + "  (" + name +
                     FormatName(run.config.precision.format) + ", " + run.config.scaling.policy +
                     ")",
                 kTerminalWidth)
      << '\n';
}

void PrintLost(const std::vector<ComparedRun>& runs, std::ostream& out) {
  out << "\nwhat was lost\n";
  for (const ComparedRun& run : runs)
    PrintWrapped("  " + run.letter + ": " + Visible(telemetry::LostText(run.totals, run.coverage)),
                 4, out, kTerminalWidth);
}

void CompareMany(const std::vector<std::string>& folders, std::ostream& out) {
  const std::vector<ComparedRun> runs = ReadCompared(folders);
  for (const ComparedRun& run : runs) PrintRun(run, "", out);
  PrintVariedKeys(VariedKeys(runs), out);
  out << "\nresults (loss: training, mean of the last epoch; judged: accuracy, or a language\n"
         "model's loss, of the test split or the first one)\n";
  PrintTableOfRuns(runs, out);
  PrintLost(runs, out);
  out << "\nrows\n";
  for (std::size_t run = 1; run < runs.size(); ++run) {
    const std::int64_t step = PartingStep(folders.front(), folders[run]);
    out << "  " << runs[run].letter
        << (step > 0 ? " parts from A at step " + std::to_string(step)
                     : CommonSteps(runs.front().results.totals.steps(),
                                   runs[run].results.totals.steps()))
        << '\n';
  }
}

void CompareJson(const std::vector<std::string>& folders, std::ostream& out) {
  const std::vector<ComparedRun> runs = ReadCompared(folders);
  OrderedJson json = CommandJson("compare");
  json["runs"] = OrderedJson::array();
  for (const ComparedRun& run : runs) json["runs"].push_back(RunJson(run));
  // Null: the run's steps are those of the first one, as far as both go.
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const std::int64_t step = run == 0 ? 0 : PartingStep(folders.front(), folders[run]);
    json["runs"][run]["parts_from_first_at_step"] = step > 0 ? OrderedJson(step) : OrderedJson();
  }
  json["configuration"] = OrderedJson::array();
  for (const VariedKey& key : VariedKeys(runs)) {
    OrderedJson values = OrderedJson::array();
    for (const std::string& value : key.values)
      values.push_back(value.empty() ? OrderedJson() : OrderedJson(value));
    json["configuration"].push_back({{"key", key.key}, {"values", values}});
  }
  json["layers"] = LayersJson(runs);
  PrintJson(json, out);
}

}  // namespace ada::study

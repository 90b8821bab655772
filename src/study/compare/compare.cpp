// compare: two runs on one page, from what was asked for to where their rows part. The parts that
// read and print are in the other files of this folder; this one puts them in order.
#include <algorithm>
#include <limits>
#include <ostream>
#include <vector>

#include "io/shown_text.h"
#include "io/text.h"
#include "study/commands.h"
#include "study/compare/comparison.h"
#include "study/run_files.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

// A row of a configuration has a key and two values within the columns of a terminal.
constexpr std::size_t kMostKey = 32;
constexpr std::size_t kMostValue = (kTerminalWidth - kMostKey - 2 - 2 * 2) / 2;

// A cut there would leave half of a character of UTF-8.
bool WithinCharacter(const std::string& text, std::size_t at) {
  return at < text.size() && !BeginsCodePoint(text[at]);
}

// Two values that differ, in at most `width` columns each: of what both begin with, as much goes as
// it takes.
void ShortenBoth(std::string& a, std::string& b, std::size_t width) {
  const std::size_t longest = std::max(a.size(), b.size());
  const auto common = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  constexpr std::size_t kKept = 4;  // of it
  if (longest > width && static_cast<std::size_t>(common) > kKept + 2) {
    std::size_t gone = std::min(static_cast<std::size_t>(common) - kKept, longest + 2 - width);
    while (gone > 0 && (WithinCharacter(a, gone) || WithinCharacter(b, gone))) --gone;
    a = ".." + a.substr(gone);
    b = ".." + b.substr(gone);
  }
  a = CutText(a, width);
  b = CutText(b, width);
}

// The keys that only one run has, as those of another policy, with their values.
void PrintOwnKeys(const char* run, const std::vector<KeyDifference>& differences,
                  std::string KeyDifference::*own, std::string KeyDifference::*other,
                  std::ostream& out) {
  std::string text;
  for (const KeyDifference& d : differences)
    if ((d.*other).empty())
      text += (text.empty() ? " " : ", ") + d.key + " " + CutText(d.*own, kMostValue);
  if (!text.empty())
    PrintWrapped("  only " + std::string(run) + " has" + text, 4, out, kTerminalWidth);
}

void PrintConfigs(const config::Config& a, const config::Config& b, std::ostream& out) {
  const std::vector<KeyDifference> differences = ConfigDifferences(a, b);
  out << "\nconfiguration: ";
  if (differences.empty()) {
    out << "the same\n";
    return;
  }
  out << differences.size() << (differences.size() == 1 ? " key differs\n" : " keys differ\n");
  TextTable table({"key", "A", "B"}, 3);
  bool shared = false;
  for (const KeyDifference& d : differences) {
    if (d.a.empty() || d.b.empty()) continue;
    std::string va = d.a, vb = d.b;
    ShortenBoth(va, vb, kMostValue);
    table.Row({d.key, va, vb});
    shared = true;
  }
  if (shared) table.Print(out, kTerminalWidth);
  PrintOwnKeys("A", differences, &KeyDifference::a, &KeyDifference::b, out);
  PrintOwnKeys("B", differences, &KeyDifference::b, &KeyDifference::a, out);
}

// Layers may be strangers only because one run logged few of them; then the models are the same.
bool ModelsDiffer(const config::Config& a, const config::Config& b) {
  for (const KeyDifference& d : ConfigDifferences(a, b))
    if (d.key.starts_with("model.")) return true;
  return false;
}

// "column: A 1, B 2", and the other columns by name.
void PrintColumns(const std::vector<ColumnDifference>& columns, std::ostream& out) {
  const ColumnDifference& first = columns.front();
  const auto shown = [](const std::string& field) { return field.empty() ? "(empty)" : field; };
  out << CutText("    " + first.column + ": A " + shown(first.a) + ", B " + shown(first.b),
                 kTerminalWidth)
      << '\n';
  if (columns.size() == 1) return;
  std::vector<std::string> others;
  for (std::size_t i = 1; i < columns.size(); ++i) others.push_back(columns[i].column);
  others.front() = "also " + others.front();
  PrintList(others, 4, out, kTerminalWidth);
}

bool Includes(const std::vector<ColumnDifference>& columns, const std::string& name) {
  return std::any_of(columns.begin(), columns.end(),
                     [&](const ColumnDifference& column) { return column.column == name; });
}

// What of a file differs, or that only one run has some of its rows.
void PrintFile(const std::string& file, const FileComparison& found, std::ostream& out) {
  if (found.difference) {
    const RowDifference& d = *found.difference;
    std::string where = "step " + std::to_string(d.step);
    if (!d.layer.empty()) where += ", layer " + d.layer;
    if (!d.tensor.empty()) where += ", tensor " + d.tensor;
    out << CutText("  " + file + " parts at " + where, kTerminalWidth) << '\n';
    PrintColumns(d.columns, out);
  } else if (!found.equal()) {
    out << "  " << file << ": " << Counted(found.same, "row") << " equal; only A has "
        << found.only_a << ", only B " << found.only_b << '\n';
  }
}

// Where the loss parts, of runs that part in something else before (their scales).
void PrintLoss(const std::string& a, const std::string& b, std::ostream& out) {
  const FileComparison loss = CompareRows(a, b, "steps.csv", "loss");
  if (!loss.difference) {
    const bool whole = loss.only_a == 0 && loss.only_b == 0;
    out << "    the loss is the same in "
        << (whole ? "every row" : "the " + Counted(loss.same, "row") + " that both have") << '\n';
    return;
  }
  const ColumnDifference& values = loss.difference->columns.front();
  out << "    the loss parts at step " << loss.difference->step << ": A " << Visible(values.a)
      << ", B " << Visible(values.b) << '\n';
}

// steps.csv, and what scales.csv and underflow.csv tell of the first difference. Returns where they
// part, in words.
// The files are asked in the order in which a difference shows itself first: a step's loss and
// scale, then what its layers did. After a difference later rows differ as a matter of course, so
// scales.csv and underflow.csv are read up to that step only.
std::string PrintParting(const std::string& a, const std::string& b, std::ostream& out) {
  out << "\nrows\n";
  const FileComparison steps = CompareRows(a, b, "steps.csv");
  bool equal = steps.equal(), differ = false;
  PrintFile("steps.csv", steps, out);
  if (steps.difference && !Includes(steps.difference->columns, "loss")) PrintLoss(a, b, out);
  const std::int64_t until =
      steps.difference ? steps.difference->step : std::numeric_limits<std::int64_t>::max();
  std::int64_t first = until;
  std::vector<const char*> of_layers = {"scales.csv", "underflow.csv"};
  const char* sums = telemetry::AccumulatorRow::kFile;
  if (HasFile(a, sums) && HasFile(b, sums)) of_layers.push_back(sums);
  for (const char* file : of_layers) {
    const FileComparison rows = CompareLayerRows(a, b, file, until);
    equal = equal && rows.equal();
    differ = differ || rows.difference;
    if (rows.difference) first = std::min(first, rows.difference->step);
    if (rows.difference || !steps.difference)
      PrintFile(file, rows, out);
    else
      out << "  " << file << ": " << Counted(rows.same, "row") << " equal up to that step"
          << (rows.equal() ? ""
                           : "; only A has " + std::to_string(rows.only_a) + ", only B " +
                                 std::to_string(rows.only_b))
          << '\n';
  }
  if (steps.difference) return "they part at step " + std::to_string(first);
  for (const char* file : {"evaluation.csv", "events.csv"}) {
    if (!HasFile(a, file) || !HasFile(b, file)) continue;
    const FileComparison rows = CompareRows(a, b, file);
    equal = equal && rows.equal();
    differ = differ || rows.difference;
    PrintFile(file, rows, out);
  }
  if (steps.last_a == 0 || steps.last_b == 0) {
    const std::string none = steps.last_a != 0   ? "B has no step yet"
                             : steps.last_b != 0 ? "A has no step yet"
                                                 : "neither has a step yet";
    out << "  steps.csv: " << none << ".\n";
    return none;
  }
  if (equal) {
    PrintWrapped("  The runs are equal in every row of steps.csv (" + std::to_string(steps.same) +
                     "), scales.csv, underflow.csv, evaluation.csv and events.csv.",
                 2, out, kTerminalWidth);
    return "they are equal";
  }
  if (steps.last_a != steps.last_b) {
    out << "  Up to step " << std::min(steps.last_a, steps.last_b) << " the steps are equal; then "
        << (steps.last_a < steps.last_b ? "B" : "A") << " goes on to step "
        << std::max(steps.last_a, steps.last_b) << ".\n";
    return "they are equal up to step " + std::to_string(std::min(steps.last_a, steps.last_b));
  }
  return differ ? "their steps are equal, their layers or results not"
                : "their steps are equal, and so are the rows that both have";
}

}  // namespace

void Compare(const std::string& a, const std::string& b, std::ostream& out, bool all) {
  const std::vector<ComparedRun> runs = ReadCompared({a, b});
  const ComparedRun &of_a = runs.front(), &of_b = runs.back();
  for (const ComparedRun& run : runs) PrintRun(run, run.config.name + ": ", out);
  PrintConfigs(of_a.config, of_b.config, out);
  PrintResults(of_a.results, of_b.results, out);
  PrintLost(runs, out);
  std::string parting;
  if (AreStrangers(of_a.layers, of_b.layers) && ModelsDiffer(of_a.config, of_b.config)) {
    PrintWorstLayers(of_a.layers, of_b.layers, all, out);
    parting = "their networks differ";
  } else {
    PrintLayers(of_a.layers, of_b.layers, all, out);
    parting = PrintParting(a, b, out);
  }
  out << '\n';
  PrintWrapped(InShort(of_a, of_b, parting), 2, out, kTerminalWidth);
}

}  // namespace ada::study

// `datasets --check`: what is wrong with a data set's files, as a table or CSV.
// run/plan/check_files.cpp reads all files as a run would; this file only counts and prints.
#include <algorithm>
#include <map>
#include <ostream>
#include <utility>

#include "error.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "run/assemble/assemble.h"
#include "run/plan/plan_reports.h"
#include "study/commands.h"
#include "study/text_table.h"
#include "telemetry/csv.h"

namespace ada::study {
namespace {

constexpr std::size_t kNamedWarnings = 5;  // of a kind

// Every kind has a row in the table of words, so the search always finds one.
std::string WordOf(data::FaultKind kind) {
  const auto* const found =
      std::find_if(data::kFaultWords.begin(), data::kFaultWords.end(),
                   [kind](const data::FaultWord& word) { return word.kind == kind; });
  return std::string(found->word);
}

// Names are shown as in messages: those of a stranger's files may hold what a terminal obeys.
void PrintFaultsAsCsv(const data::FileFaults& faults, std::ostream& out) {
  out << "split,kind,ends_run,file,message\n";
  for (const data::FileFault& fault : faults)
    out << telemetry::CsvRow()
               .Text(fault.split)
               .Text(WordOf(fault.kind))
               .Integer(fault.ends_run ? 1 : 0)
               .Text(Visible(fault.file))
               .Text(Visible(fault.text))
               .text()
        << '\n';
}

// A row for each kind of fault: how many there are in each split, and what they do to a run.
// `samples`: what the splits are made of.
// Kinds without a fault have no row.
void PrintKinds(const run::CheckedFiles& checked, const std::string& samples, std::ostream& out) {
  std::vector<std::string> titles = {"fault"};
  for (const auto& split : checked.splits) titles.push_back(split.name);
  titles.emplace_back("the run");
  TextTable table(titles);
  std::vector<std::string> counts = {"(" + samples + ")"};
  for (const auto& split : checked.splits) counts.push_back(std::to_string(split.images));
  counts.emplace_back("");
  table.Row(counts);
  for (const data::FaultWord& word : data::kFaultWords) {
    std::vector<std::string> row = {std::string(word.word)};
    bool ends = false, any = false;
    for (const auto& split : checked.splits) {
      std::int64_t count = 0;
      for (const data::FileFault& fault : checked.faults) {
        if (fault.kind != word.kind || fault.split != split.name) continue;
        ++count;
        ends = ends || fault.ends_run;
      }
      any = any || count > 0;
      row.push_back(std::to_string(count));
    }
    row.emplace_back(ends ? "ends" : "goes on");
    if (any) table.Row(row);
  }
  table.Print(out, kTerminalWidth);
}

// All faults that end a run, of the others the first of each kind.
void PrintFaults(const data::FileFaults& faults, std::ostream& out) {
  std::map<data::FaultKind, std::size_t> counts;
  std::size_t more = 0;
  for (const data::FaultWord& word : data::kFaultWords) {
    for (const data::FileFault& fault : faults) {
      if (fault.kind != word.kind) continue;
      if (!fault.ends_run && ++counts[fault.kind] > kNamedWarnings) {
        ++more;
        continue;
      }
      PrintWrapped(std::string(word.word) + ": " + run::FaultText(fault), 2, out);
    }
  }
  if (more > 0) out << "and " << more << " more that do not end a run; --csv names all\n";
}

}  // namespace

int CheckData(const config::Config& config, const CheckDataOptions& options, std::ostream& out,
              telemetry::Log& log) {
  const run::CheckedFiles checked =
      run::CheckFiles(config, /*decodes=*/true, options.progress, log);
  const auto ends = std::count_if(checked.faults.begin(), checked.faults.end(),
                                  [](const data::FileFault& fault) { return fault.ends_run; });
  if (options.csv) {
    PrintFaultsAsCsv(checked.faults, out);
  } else if (checked.refusal.empty()) {
    PrintKinds(checked, run::SamplesWord(config), out);
    PrintFaults(checked.faults, out);
  } else {
    // A set that could not be opened has no counts by split, only what was found until then.
    PrintFaults(checked.faults, out);
  }
  if (!checked.refusal.empty()) throw DataError(checked.refusal);
  if (!options.csv)
    out << (checked.faults.empty() ? "nothing is wrong"
            : ends == 0            ? "no file ends a run"
                                   : Counted(ends, "fault") + " would end a run")
        << '\n';
  // The exit code of a DataError, without one being thrown: the report itself went well.
  constexpr int kDataCode = 3;
  return ends > 0 ? kDataCode : 0;
}

}  // namespace ada::study

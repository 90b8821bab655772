// Files of data sets. `datasets --check`: what is wrong with them, as a table or CSV;
// run/plan/check_files.cpp reads all files as a run would, this file only counts and prints.
// `picture`: what resizing, decoding and orientation make of one of them; the same bytes go into a
// batch.
#include <algorithm>
#include <map>
#include <ostream>

#include "data/images/picture.h"
#include "data/images/resize.h"
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

// A row for each kind of fault that there is: how many in each split, and what they do to a run.
// `samples`: what the splits are made of.
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

// --- picture ---

// Throws ConfigError if the picture would have too many pixels.
void CheckMade(const char* option, std::int64_t height, std::int64_t width) {
  if (height <= data::kMaxPixels / width) return;
  throw ConfigError(std::string(option) + ": makes " + std::to_string(width) + " x " +
                    std::to_string(height) + " pixels; expected at most " +
                    std::to_string(data::kMaxPixels) + " in all");
}

// The part of a picture of `size` that the options name.
data::Box BoxIn(data::PictureSize size, const PictureOptions& options) {
  if (!options.box) return {0, 0, size.height, size.width};
  const PictureOptions::Corners& c = *options.box;
  if (c.x0 < 0 || c.y0 < 0 || c.x1 <= c.x0 || c.y1 <= c.y0 || c.x1 > size.width ||
      c.y1 > size.height) {
    throw ConfigError("--box " + std::to_string(c.x0) + "," + std::to_string(c.y0) + "," +
                      std::to_string(c.x1) + "," + std::to_string(c.y1) +
                      " is empty or reaches beyond the picture; " + options.input + " has " +
                      SizeText(size) + ": expected 0 <= X0 < X1 <= " + std::to_string(size.width) +
                      " and 0 <= Y0 < Y1 <= " + std::to_string(size.height));
  }
  return {c.y0, c.x0, c.y1 - c.y0, c.x1 - c.x0};
}

// The order is that of the loader. With both a shorter side and a crop one function does the two,
// as the loader does.
data::Picture Changed(data::Picture picture, const PictureOptions& options) {
  const data::Box whole{0, 0, picture.height, picture.width};
  const data::PictureSize crop{options.center_crop, options.center_crop};
  if (options.height > 0) {
    picture = data::ResizeBox(picture, whole, {options.height, options.width});
    if (options.center_crop > 0)
      picture = data::CutBox(picture, data::CenterBox(picture.size(), crop));
  } else if (options.center_crop > 0) {
    picture = data::ResizeAndCrop(picture, options.shorter_side, crop, options.input);
  } else if (options.shorter_side > 0) {
    picture = data::ResizeBox(
        picture, whole, data::ShorterSide(picture.size(), options.shorter_side, options.input));
  }
  if (options.flip) data::FlipColumns(&picture);
  return picture;
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

void ShowPicture(const PictureOptions& options, std::ostream& out, std::ostream& notes) {
  if (options.height > 0) CheckMade("--resize", options.height, options.width);
  if (options.center_crop > 0) CheckMade("--center-crop", options.center_crop, options.center_crop);
  const std::vector<std::uint8_t> file = data::ReadPictureFile(options.input);
  // The header is enough to check the box; only the part that is asked for is decoded.
  const data::PictureSize size = data::SizeOfPicture(file, options.input, options.rules);
  const data::Box box = BoxIn(size, options);
  const data::Picture picture =
      Changed(data::DecodePicture(file, options.input, box, options.rules), options);
  for (const std::string& line : data::SurprisesOf(options.input, options.rules))
    notes << options.input << ": " << line << '\n';
  if (!options.output.empty()) {
    data::WritePng(options.output, picture);
    return;
  }
  out << options.input << ": " << SizeText(size) << ", "
      << data::KindOfPicture(file, options.input);
  if (!(picture.size() == size)) out << "; " << SizeText(picture.size()) << " with these options";
  out << '\n';
}

}  // namespace ada::study

// A run ends at the first fault; a check goes through all files and collects all
// faults.
#include <algorithm>
#include <optional>
#include <utility>

#include "data/image_writer.h"
#include "data/readers.h"
#include "data/reports/reports.h"
#include "error.h"
#include "io/shown_text.h"
#include "run/assemble/assemble.h"
#include "run/plan/plan_reports.h"
#include "telemetry/progress.h"

namespace ada::run {
namespace {

// The size of the first picture that can be read; nothing where none can, or images have one size.
std::optional<data::PictureSize> FirstSize(const data::Dataset& dataset) {
  try {
    return data::SizeOfFirst(dataset, /*skip_broken=*/true);
  } catch (const DataError&) {
    return std::nullopt;
  }
}

// If files determine the size of the network's input, the first picture of split train sets the
// size that all others must have.
void ExpectOneSize(const config::Config& config, const data::Dataset& train, bool trains,
                   data::FileCheckSpec* spec) {
  const data::LoaderSpec of_train = TrainLoader(config, {});
  const data::LoaderSpec loader = trains ? of_train : EvaluationLoader(config, {}, {});
  const auto after = [](const data::LoaderSpec& by, data::PictureSize size) {
    try {
      return data::SizeAfter(by, size, "");
    } catch (const DataError&) {  // of a size that no key fits: it differs from all others
      return data::PictureSize{};
    }
  };
  if (data::FixesSize(loader) || train.images() == 0) return;
  const std::optional<data::PictureSize> first = FirstSize(train);
  if (!first) return;
  spec->wanted = after(of_train, *first);
  spec->after = [loader, after](data::PictureSize size) { return after(loader, size); };
}

// With FileChoices::faults set, what the listing finds is collected instead of thrown.
data::Splits OpenToCheck(const config::Config& config, data::FileFaults* faults) {
  const config::DataConfig& d = config.data;
  if (!data::FactsOf(d.dataset).has_path()) return data::MakeSynthetic(d.synthetic, config.seed);
  data::FileChoices choices = ChoicesOf(config);
  choices.faults = faults;
  return data::Read(d.dataset, d.path, choices);
}

}  // namespace

std::string FaultText(const data::FileFault& fault) {
  const bool names_file = fault.file.empty() || fault.text.find(fault.file) != std::string::npos;
  return Visible("split " + fault.split + ": " + (names_file ? "" : fault.file + ": ") +
                 fault.text);
}

// Faults of the listing come first in the result; a stable sort then brings them into the order of
// the splits.
CheckedFiles CheckFiles(const config::Config& config, bool decodes, bool progress,
                        telemetry::Log& log, const data::Splits* known) {
  CheckedFiles checked;
  data::Splits splits;
  try {
    splits = OpenToCheck(config, &checked.faults);
  } catch (const DataError& error) {
    checked.refusal = error.what();
    return checked;
  }
  for (const SplitWithoutTargets& split : FindSplitsWithoutTargets(config, splits))
    checked.faults.push_back({data::FaultKind::kNoTarget, true, split.name, "", split.text});
  const bool in_files = data::FactsOf(config.data.dataset).decodes();
  RunData names;
  names.class_names = splits.class_names;
  data::FileChecker checker(&checked.faults);
  using Split = data::Dataset data::Splits::*;
  for (const auto& [name, split] : {std::pair<const char*, Split>("train", &data::Splits::train),
                                    {"validation", &data::Splits::validation},
                                    {"test", &data::Splits::test}}) {
    const data::Dataset* dataset = &(splits.*split);
    if (dataset->images() == 0) continue;
    data::FileCheckSpec spec;
    spec.known = known == nullptr ? nullptr : &(known->*split);
    spec.decodes = decodes;
    spec.skip_broken = config.data.on_broken == config::BrokenImages::kSkip;
    if (in_files) ExpectOneSize(config, splits.train, dataset == &splits.train, &spec);
    spec.class_names = NamesOfClasses(config, names);
    telemetry::EvaluationProgress line(log, progress, std::string("checking ") + name,
                                       dataset->images());
    spec.progress = [&](std::int64_t done) { line.Update(done); };
    checker.Check(*dataset, name, spec);
    checked.splits.push_back({name, dataset->images()});
  }
  const auto order = [](const std::string& split) {
    return split == "train" ? 0 : split == "validation" ? 1 : 2;
  };
  std::stable_sort(checked.faults.begin(), checked.faults.end(),
                   [&](const data::FileFault& a, const data::FileFault& b) {
                     return order(a.split) < order(b.split);
                   });
  return checked;
}

}  // namespace ada::run

// Warnings about the files of a data set, for runs and for commands without a run.
#include <algorithm>
#include <utility>

#include "data/picture_files.h"
#include "data/segmentation/label_files.h"
#include "error.h"
#include "io/text.h"
#include "run/assemble/assemble.h"

namespace ada::run {
namespace {

// At most this many images of a split are named; the others are only counted.
constexpr std::size_t kNamedLeftOut = 10;

// Warns of classes without a training pixel, which the loss cannot teach.
void WarnOfUnseenClasses(const config::Config& config, const data::Dataset& train,
                         const std::vector<std::string>& names, std::vector<std::string>* lines) {
  using Weights = config::ClassWeightsConfig;
  // Where class weights are computed, their own report names such classes
  // (assemble/assemble.h).
  const bool told = config.train.class_weights.kind == Weights::Kind::kMedianFrequency;
  if (told || !train.label_images || train.images() == 0) return;
  const data::UnseenClasses unseen = data::FindUnseenClasses(train);
  if (unseen.classes.empty()) return;
  if (unseen.ignored_share == 1 && unseen.looked == train.images())
    throw DataError(train.label_images->NameOf(train.NumberInFiles(0)) +
                    ": every pixel of split train's " + Counted(unseen.looked, "label image") +
                    " has the label that is passed over: there is nothing to learn "
                    "(data.ignored_label)");
  constexpr std::size_t kNamed = 5;
  std::vector<std::string> classes;
  for (const int label : unseen.classes) classes.push_back(ClassName(names, label));
  std::string line = "split train: no labelled pixel of " + Counted(unseen.looked, "label image") +
                     " is of class " + FirstNames(classes, kNamed);
  const int ignored = train.label_images->ignored();
  if (unseen.ignored_share > 0) {
    line += Formatted("; %.3g %% of the pixels have", 100 * unseen.ignored_share);
    line += " the label that is passed over";
    if (!config.data.label_values.any() && ignored >= 0)
      line += ": if " + std::to_string(ignored) +
              " is a class, say so: data.label_values: {0: " + ClassName(names, 0) + ", " +
              std::to_string(ignored) + ": " + classes.front() + "}";
  }
  lines->push_back(line);
}

}  // namespace

std::vector<std::string> WarningsOfFiles(const config::Config& config, const data::Dataset& train,
                                         const data::Dataset& validation, const data::Dataset& test,
                                         const std::vector<std::string>& class_names) {
  std::vector<std::string> lines;
  for (const auto& [split, dataset] : {std::pair<std::string, const data::Dataset&>("train", train),
                                       {"validation", validation},
                                       {"test", test}})
    for (std::string& line : data::WarningsOfPictures(dataset, split))
      lines.push_back(std::move(line));
  WarnOfUnseenClasses(config, train, class_names, &lines);
  if (config.data.limit.test > 0 && test.images() == 0)
    lines.push_back("data.limit.test has no effect: the data have no test split");
  const config::AugmentConfig& augment = config.data.augment;
  if (augment.pad > 0 && !augment.random_crop)
    lines.push_back(
        "data.augment.pad has no effect without data.augment.random_crop, which cuts an image from "
        "the padded one");
  return lines;
}

std::vector<std::string> LinesOfLeftOut(const data::Dataset& train, const data::Dataset& validation,
                                        const data::Dataset& test) {
  std::vector<std::string> lines;
  for (const auto& [split, dataset] : {std::pair<std::string, const data::Dataset&>("train", train),
                                       {"validation", validation},
                                       {"test", test}}) {
    const std::size_t count = dataset.left_out.size();
    for (std::size_t i = 0; i < std::min(count, kNamedLeftOut); ++i)
      lines.push_back(data::LeftOutText(split, dataset.left_out[i]));
    if (count > kNamedLeftOut)
      lines.push_back("split " + split + ": " + std::to_string(count - kNamedLeftOut) +
                      " more images are left out (data.on_broken)");
  }
  return lines;
}

void LogFileWarnings(const RunData& data, telemetry::Log& log) {
  if (!data.note.empty()) log.Info(data.note);
  for (const std::string& line : data.warnings) log.Warning(line);
  for (const std::string& line : LinesOfLeftOut(data.train, data.validation, data.test))
    log.Warning(line);
}

}  // namespace ada::run

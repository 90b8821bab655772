// score: metrics of detections and label images of any program.
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "cli/output.h"
#include "error.h"
#include "study/score/score.h"

namespace ada::cli {
namespace {

constexpr char kVocGroup[] = "voc (average precision of boxes)";
constexpr char kSegmentationGroup[] = "segmentation (IoU and accuracy of label images)";

// Both kinds of scores share one command, so their options are declared together.
struct ScoreArguments {
  std::string what;
  study::VocScoreOptions voc;
  study::SegmentationScoreOptions segmentation;
  ViewFlags view;
};

// Throws ConfigError unless `what` has all of these options and none of the others.
// CLI11 cannot make options depend on the word of an operand.
void CheckOptions(const CLI::App& app, const std::string& what,
                  const std::vector<const char*>& needed, const std::vector<const char*>& foreign) {
  for (const char* name : needed) {
    if (app.get_option(name)->count() == 0)
      throw ConfigError(std::string(name) + " is missing; `ada-train score --help` shows what " +
                        what + " takes");
  }
  for (const char* name : foreign) {
    if (app.get_option(name)->count() > 0)
      throw ConfigError(std::string(name) + " is no option of score " + what +
                        "; `ada-train score --help` shows what it takes");
  }
}

// Files are read only after the options were found to fit the word.
int Score(const CLI::App& app, ScoreArguments& a) {
  a.voc.view = a.segmentation.view = a.view.View();
  if (a.what == "voc") {
    CheckOptions(app, a.what, {"--data", "--detections"},
                 {"--labels", "--predictions", "--ignore"});
    Checked(a.voc.overlap, 0, 1, "--iou", "an IoU, 0 to 1");
    study::ScoreVoc(a.voc, std::cout, std::cerr);
  } else if (a.what == "segmentation") {
    CheckOptions(app, a.what, {"--labels", "--predictions"},
                 {"--data", "--split", "--detections", "--iou"});
    if (a.segmentation.ignored)
      Checked(*a.segmentation.ignored, 0, 255, "--ignore", "a label, 0 to 255");
    study::ScoreSegmentation(a.segmentation, std::cout, std::cerr);
  } else {
    throw ConfigError("score " + a.what + ": expected voc or segmentation");
  }
  return 0;
}

}  // namespace

// Two groups of options in the help show which word takes which.
Commands AddScoreCommands(CLI::App& app) {
  auto a = std::make_shared<ScoreArguments>();
  CLI::App* score =
      Add(app, "score", "average precision of boxes, IoU of label images, of any program",
          "  ada-train score voc --data VOC2007 --split test --detections detections.csv\n"
          "  ada-train score segmentation --labels camvid/testannot --predictions predicted "
          "--ignore 11");
  score->add_option("WHAT", a->what, "voc or segmentation")->type_name("")->required();
  const auto add = [&](const char* name, auto& value, const char* type, const char* what,
                       const char* group) {
    score->add_option(name, value, what)->type_name(type)->group(group);
  };
  add("--data", a->voc.folders, "FOLDER",
      "with Annotations and ImageSets/Main, or with such years; repeatable", kVocGroup);
  // Repeatable, with one value each time: what follows the value is not a second folder.
  score->get_option("--data")->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add("--split", a->voc.split, "NAME", "the list in ImageSets/Main (default: test)", kVocGroup);
  add("--detections", a->voc.detections, "FILE.csv",
      "columns image (a name of that list), label (a class by name), score,\n"
      "xmin, ymin, xmax, ymax (pixels from 0, as they stand)",
      kVocGroup);
  add("--iou", a->voc.overlap, "IOU", "from which a box is right (default: 0.5)", kVocGroup);
  add("--labels", a->segmentation.labels, "FOLDER",
      "label images, PNG: grey values or palette indices are classes", kSegmentationGroup);
  add("--predictions", a->segmentation.predictions, "FOLDER",
      "what was predicted, files of the same names", kSegmentationGroup);
  add("--ignore", a->segmentation.ignored, "LABEL", "pixels of this label are not judged",
      kSegmentationGroup);
  AddView(*score, a->view);
  return {{score, [a, score] { return Score(*score, *a); }}};
}

}  // namespace ada::cli

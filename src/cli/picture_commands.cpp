// picture: one picture as the loader makes it; score: metrics of detections and label images of any
// program.
#include <charconv>
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "cli/output.h"
#include "error.h"
#include "study/commands.h"

namespace ada::cli {
namespace {

// As large as a side of a picture may be made here.
constexpr int kMostSide = 32768;

// Corners and sizes are texts here; ReadBox and ReadSizes turn them into numbers.
struct PictureArguments {
  std::string box, resize;
  std::optional<int> center_crop;
  study::PictureOptions options;
};

// The whole numbers that `text` holds, with `between` between them; empty where it holds anything
// else.
// A number that an int cannot hold makes the list empty, too.
std::vector<int> NumbersOf(const std::string& text, char between) {
  std::vector<int> numbers;
  const char *at = text.data(), *end = at + text.size();
  while (true) {
    int number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return {};
    numbers.push_back(number);
    if (next == end) return numbers;
    if (*next != between) return {};
    at = next + 1;
  }
}

// Whether a word is the first of the two that an option takes.
bool IsFirst(const char* option, const std::string& word, const std::string& first,
             const std::string& second) {
  if (word != first && word != second)
    throw ConfigError(std::string(option) + " " + word + ": expected " + first + " or " + second);
  return word == first;
}

// Whether the box lies in the picture is checked once the picture's size is known.
void ReadBox(PictureArguments& a) {
  if (a.box.empty()) return;
  const std::vector<int> n = NumbersOf(a.box, ',');
  if (n.size() != 4)
    throw ConfigError("--box " + a.box +
                      ": expected X0,Y0,X1,Y1, whole numbers of pixels from the upper left corner");
  a.options.box = {n[0], n[1], n[2], n[3]};
}

// Sides are bounded before memory is asked for.
void ReadSizes(PictureArguments& a) {
  constexpr char kSide[] = "a number of pixels from 1 to 32768";
  if (a.center_crop)
    a.options.center_crop = Checked(*a.center_crop, 1, kMostSide, "--center-crop", kSide);
  if (a.resize.empty()) return;
  const std::vector<int> n = NumbersOf(a.resize, 'x');
  if (n.empty() || n.size() > 2)
    throw ConfigError("--resize " + a.resize +
                      ": expected N (the shorter side) or HxW (height and width), for example 256 "
                      "or 224x224");
  for (const int side : n) Checked(side, 1, kMostSide, "--resize", kSide);
  // One number keeps the picture's shape, two give both sides.
  if (n.size() == 1) a.options.shorter_side = n[0];
  if (n.size() == 2) {
    a.options.height = n[0];
    a.options.width = n[1];
  }
}

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

// IN is read by the loader's own functions, so the picture is what a network would get.
Command AddPicture(CLI::App& app) {
  auto a = std::make_shared<PictureArguments>();
  CLI::App* picture =
      Add(app, "picture", "a picture as a network would see it, or its size and kind",
          "  ada-train picture photo.jpg -o seen.png --resize 256 --center-crop 224\n"
          "  ada-train picture photo.jpg -o seen.png --box 40,0,300,260 --resize 224x224 --flip");
  AddValue(*picture, "IN", a->options.input, "", "a JPEG, PNG or WebP file")->required();
  AddValue(*picture, "-o,--output", a->options.output, "OUT.png",
           "the PNG to write (default: none; size and kind are printed)");
  // The group's title is in the help; the order of the options is that in which they act.
  const auto add = [&](const char* name, auto& value, const char* type, const char* what) {
    AddValue(*picture, name, value, type, what)
        ->group("Changes, in this order, by the code that loads data sets");
  };
  add("--box", a->box, "X0,Y0,X1,Y1", "columns X0 to X1 - 1 and rows Y0 to Y1 - 1, from 0");
  add("--resize", a->resize, "N|HxW",
      "the shorter side becomes N, or height and width H and W (bilinear, antialias)");
  add("--center-crop", a->center_crop, "N",
      "N x N from the middle, black where the picture is smaller");
  picture
      ->add_option_function<std::string>(
          "--exif",
          [a](const std::string& word) {
            a->options.rules.applies_exif = IsFirst("--exif", word, "apply", "ignore");
          },
          "apply: turned as its EXIF orientation says; ignore (the default)")
      ->type_name("WHAT")
      ->trigger_on_parse();
  picture
      ->add_option_function<std::string>(
          "--sixteen-bit",
          [a](const std::string& word) {
            a->options.rules.sixteen_bit = IsFirst("--sixteen-bit", word, "scale", "clip")
                                               ? data::SixteenBit::kScale
                                               : data::SixteenBit::kClip;
          },
          "of 16-bit PNG: scale: v / 257; clip (the default): as PIL, grey above\n255 is white")
      ->type_name("WHAT")
      ->trigger_on_parse();
  picture->add_flag("--flip", a->options.flip, "mirror the columns")
      ->group("Changes, in this order, by the code that loads data sets");
  return {picture, [a] {
            ReadBox(*a);
            ReadSizes(*a);
            OutputPaths paths;
            paths.Read("IN", a->options.input);
            paths.Write("--output", a->options.output);
            paths.Check();
            const TerminalText out(std::cout), notes(std::cerr);
            study::ShowPicture(a->options, std::cout, std::cerr);
            return 0;
          }};
}

// Two groups of options in the help show which word takes which.
Command AddScore(CLI::App& app) {
  auto a = std::make_shared<ScoreArguments>();
  CLI::App* score =
      Add(app, "score", "average precision of boxes, IoU of label images, of any program",
          "  ada-train score voc --data VOC2007 --split test --detections detections.csv\n"
          "  ada-train score segmentation --labels camvid/testannot --predictions predicted "
          "--ignore 11");
  AddValue(*score, "WHAT", a->what, "", "voc or segmentation")->required();
  const auto add = [&](const char* name, auto& value, const char* type, const char* what,
                       const char* group) {
    AddValue(*score, name, value, type, what)->group(group);
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
  return {score, [a, score] { return Score(*score, *a); }};
}

}  // namespace

Commands AddPictureCommands(CLI::App& app) { return {AddPicture(app), AddScore(app)}; }

}  // namespace ada::cli

// Pairs pictures with label images by their names and says what the labels mean; nothing is
// decoded.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "data/folder/listing.h"
#include "data/names.h"
#include "data/picture_files.h"
#include "data/readers.h"
#include "data/segmentation/label_files.h"
#include "error.h"
#include "io/data_files.h"
#include "io/text.h"

namespace ada::data {
namespace {

constexpr std::size_t kNamedFiles = 3;  // in a message
constexpr int kCamvidVoid = 11;
const std::array<const char*, 11> kCamvidClasses = {"sky",      "building",   "pole",     "road",
                                                    "pavement", "tree",       "sign",     "fence",
                                                    "car",      "pedestrian", "bicyclist"};
constexpr const char* kCamvidLayout =
    "expected PATH/SPLIT/NAME.png (or .jpg, .jpeg, .webp) and PATH/SPLITannot/NAME.png";

// Names come from data.class_names, else from data.label_values in their order, else they are
// CamVid's.
PixelClasses ChooseClasses(const FileChoices& choices) {
  const bool own = choices.class_names.empty() && !choices.label_values.any();
  PixelClasses classes;
  classes.names = choices.class_names;
  classes.values = choices.label_values;
  if (own) classes.names.assign(kCamvidClasses.begin(), kCamvidClasses.end());
  if (choices.class_names.empty())
    for (const auto& [value, name] : classes.values.classes)
      if (name != kIgnoredName && !Contains(classes.names, name)) classes.names.push_back(name);
  classes.ignored = choices.ignored_label.value_or(own ? kCamvidVoid : int{kIgnoredPixel});
  if (classes.values.by_color) classes.ignored = -1;
  const std::size_t count = classes.names.size();
  if (count > static_cast<std::size_t>(kMostPixelClasses))
    throw ConfigError("data.class_names: " + std::to_string(count) + " classes; expected at most " +
                      std::to_string(kMostPixelClasses) +
                      ", a label is a byte and 255 stands for none");
  return classes;
}

// The pictures of `folder` by their names without endings.
std::map<std::string, std::string> PicturesByTitle(const std::string& folder) {
  std::map<std::string, std::string> pictures;
  for (const std::string& name : ListDataFolder(folder)) {
    if (!IsPictureName(name)) continue;
    const auto [at, is_new] = pictures.emplace(TitleOfFile(name), name);
    if (!is_new)
      throw DataError(folder + ": " + std::min(at->second, name) + " and " +
                      std::max(at->second, name) +
                      " have the same name but for the ending, and one label image; expected one "
                      "of them");
  }
  return pictures;
}

// "2 folders in it are not read: aachen, bochum"; "": none in it holds a picture.
std::string FoldersNotRead(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string& name : FoldersIn(folder))
    if (!name.starts_with('.') && HoldsPictures(folder + "/" + name)) names.push_back(name);
  if (names.empty()) return "";
  return Counted(static_cast<std::int64_t>(names.size()), "folder") + " in it " +
         (names.size() == 1 ? "is" : "are") + " not read: " + FirstNames(names, kNamedFiles) +
         " (pictures lie in the split's own folder)";
}

void RequireFolder(const std::string& folder) {
  if (!IsDataFolder(folder)) throw DataError(folder + ": no such folder; " + kCamvidLayout);
}

// Both lists have the same order: label image i is that of picture i.
struct SplitFilesFound {
  NameList pictures, labels;
  std::vector<BrokenImage> left_out = {};  // without a label image
};

SplitFilesFound FindPairs(const std::string& folder, const std::string& split,
                          const FileChoices& choices, Splits* splits) {
  const std::string annotations = folder + "annot";
  RequireFolder(folder);
  RequireFolder(annotations);
  const auto pictures = PicturesByTitle(folder), labels = PicturesByTitle(annotations);
  const std::string not_read = FoldersNotRead(folder);
  if (pictures.empty())
    throw DataError(folder + ": holds no pictures" + (not_read.empty() ? "" : ", and " + not_read) +
                    "; " + kCamvidLayout);
  if (!not_read.empty()) {
    splits->warnings.push_back(folder + ": " + not_read);
    if (choices.faults != nullptr)
      choices.faults->push_back({FaultKind::kNotRead, false, split, folder, not_read});
  }
  SplitFilesFound found;
  std::vector<std::string> without, unused;
  for (const auto& [title, picture] : pictures) {
    const auto label = labels.find(title);
    if (label == labels.end()) {
      without.push_back(picture);
      const std::string missing = annotations + "/" + title + ".png";
      found.left_out.push_back(
          {0, 0, missing,
           missing + ": no such file; expected the label image of " + folder + "/" + picture});
      if (choices.faults != nullptr)
        choices.faults->push_back({FaultKind::kUnreadable, !choices.skip_broken, split, missing,
                                   found.left_out.back().message});
      continue;
    }
    found.pictures.Add(folder, picture);
    found.labels.Add(annotations, label->second);
  }
  for (const auto& [title, label] : labels) {
    if (pictures.contains(title)) continue;
    unused.push_back(label);
    if (choices.faults != nullptr)
      choices.faults->push_back({FaultKind::kUnpaired, false, split, annotations + "/" + label,
                                 "a label image without a picture; it is not used"});
  }
  if (!without.empty() && (!choices.goes_on() || found.pictures.size() == 0))
    throw DataError(folder + ": " + Counted(static_cast<std::int64_t>(without.size()), "picture") +
                    " without a label image in " + annotations + ": " +
                    FirstNames(without, kNamedFiles) + "; " + kCamvidLayout +
                    "; or leave them out with data.on_broken: skip");
  if (!unused.empty())
    AddNote(&splits->note, annotations + ": " +
                               Counted(static_cast<std::int64_t>(unused.size()), "label image") +
                               " without a picture in " + folder + ": " +
                               FirstNames(unused, kNamedFiles) + "; they are not used");
  return found;
}

Dataset MakeCamvidDataset(SplitFilesFound files, const PixelClasses& classes,
                          const PictureRules& rules) {
  Dataset dataset;
  dataset.name = "camvid";
  dataset.channels = 3;
  dataset.classes = static_cast<int>(classes.names.size());
  dataset.labels.resize(static_cast<std::size_t>(files.pictures.size()));
  dataset.left_out = std::move(files.left_out);
  dataset.store = std::make_shared<PictureFiles>("", std::move(files.pictures), rules);
  dataset.label_images =
      std::make_shared<LabelFiles>(std::move(files.labels), classes, dataset.store);
  return dataset;
}

// The folders of the splits below `base`. Those of CamVid are its own: it has val beside test, and
// trains without it.
SplitsOfSet ChooseSplits(const std::string& base, const FileChoices& choices) {
  const bool own = choices.class_names.empty() && !choices.label_values.any();
  return SplitsByNames(choices, "train", "test", own, [&](const std::string& name) {
    return IsDataFolder(base + "/" + name) && IsDataFolder(base + "/" + name + "annot");
  });
}

}  // namespace

Splits OpenCamvid(const std::string& path, const FileChoices& choices) {
  const std::string base = WithoutLastSlash(path);
  RequireFolder(base);
  const PixelClasses classes = ChooseClasses(choices);
  const SplitsOfSet names = ChooseSplits(base, choices);
  Splits splits;
  const auto open = [&](const std::string& split, const std::string& folder) {
    return MakeCamvidDataset(FindPairs(base + "/" + folder, split, choices, &splits), classes,
                             choices.pictures);
  };
  splits.train = open("train", names.train);
  if (!names.validation.empty()) splits.validation = open("validation", names.validation);
  splits.test = open("test", names.test);
  splits.class_names = classes.names;
  return splits;
}

}  // namespace ada::data

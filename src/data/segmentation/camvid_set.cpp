#include "data/segmentation/camvid_set.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "core/data_files.h"
#include "core/error.h"
#include "core/text.h"
#include "data/folder/listing.h"
#include "data/picture_files.h"
#include "data/segmentation/label_files.h"

namespace ada::data {
namespace {

constexpr std::size_t kNamedFiles = 3;  // in a message
constexpr int kCamvidVoid = 11;
const std::array<const char*, 11> kCamvidClasses = {"sky",      "building",   "pole",     "road",
                                                    "pavement", "tree",       "sign",     "fence",
                                                    "car",      "pedestrian", "bicyclist"};
constexpr const char* kCamvidLayout =
    "expected PATH/SPLIT/NAME.png (or .jpg, .jpeg) and PATH/SPLITannot/NAME.png";

// The classes, and the label that is none of them; -1: there is none.
struct PixelClasses {
  std::vector<std::string> names;
  int ignored = -1;
};
PixelClasses ChooseClasses(const FileChoices& choices) {
  const bool own = choices.class_names.empty();
  PixelClasses classes;
  classes.names = choices.class_names;
  if (own) classes.names.assign(kCamvidClasses.begin(), kCamvidClasses.end());
  classes.ignored = choices.ignored_label.value_or(own ? kCamvidVoid : int{kIgnoredPixel});
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

void RequireFolder(const std::string& folder) {
  if (!IsDataFolder(folder)) throw DataError(folder + ": no such folder; " + kCamvidLayout);
}

struct SplitFilesFound {
  NameList pictures, labels;
  std::vector<BrokenImage> left_out = {};  // without a label image
};

SplitFilesFound FindPairs(const std::string& folder, const FileChoices& choices,
                          std::string* note) {
  const std::string annotations = folder + "annot";
  RequireFolder(folder);
  RequireFolder(annotations);
  const auto pictures = PicturesByTitle(folder), labels = PicturesByTitle(annotations);
  if (pictures.empty()) throw DataError(folder + ": holds no pictures; " + kCamvidLayout);
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
      continue;
    }
    found.pictures.Add(folder, picture);
    found.labels.Add(annotations, label->second);
  }
  for (const auto& [title, label] : labels)
    if (!pictures.contains(title)) unused.push_back(label);
  if (!without.empty() && (!choices.skip_broken || found.pictures.size() == 0))
    throw DataError(folder + ": " + Counted(static_cast<std::int64_t>(without.size()), "picture") +
                    " without a label image in " + annotations + ": " +
                    FirstNames(without, kNamedFiles) + "; " + kCamvidLayout +
                    "; or leave them out with data.on_broken: skip");
  if (!unused.empty())
    AddNote(note, annotations + ": " +
                      Counted(static_cast<std::int64_t>(unused.size()), "label image") +
                      " without a picture in " + folder + ": " + FirstNames(unused, kNamedFiles) +
                      "; they are not used");
  return found;
}

Dataset MakeCamvidDataset(SplitFilesFound files, const PixelClasses& classes) {
  Dataset dataset;
  dataset.name = "camvid";
  dataset.channels = 3;
  dataset.classes = static_cast<int>(classes.names.size());
  dataset.labels.resize(static_cast<std::size_t>(files.pictures.size()));
  dataset.left_out = std::move(files.left_out);
  dataset.store = std::make_shared<PictureFiles>("", std::move(files.pictures));
  dataset.label_images =
      std::make_shared<LabelFiles>(std::move(files.labels), dataset.classes, classes.ignored);
  return dataset;
}

}  // namespace

Splits OpenCamvid(const std::string& path, const FileChoices& choices) {
  const std::string base = WithoutLastSlash(path);
  RequireFolder(base);
  const PixelClasses classes = ChooseClasses(choices);
  Splits splits;
  const std::string train = choices.train.empty() ? "train" : choices.train;
  const std::string test = choices.test.empty() ? "test" : choices.test;
  splits.train = MakeCamvidDataset(FindPairs(base + "/" + train, choices, &splits.note), classes);
  splits.test = MakeCamvidDataset(FindPairs(base + "/" + test, choices, &splits.note), classes);
  splits.class_names = classes.names;
  return splits;
}

}  // namespace ada::data

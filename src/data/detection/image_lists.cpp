// Paths are put together as text and compared with what the file system has; nothing but the lists
// is read here.
#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <unordered_map>

#include "data/dataset.h"
#include "data/detection/voc_files.h"
#include "data/names.h"
#include "error.h"
#include "io/data_files.h"
#include "io/shown_text.h"

namespace ada::data {
namespace {

constexpr std::uint64_t kMostListBytes = std::uint64_t{64} << 20;
constexpr std::array<const char*, 8> kPictureEndings = {".jpg", ".jpeg", ".png", ".webp",
                                                        ".JPG", ".JPEG", ".PNG", ".WEBP"};
constexpr const char* kVocLayout =
    "expected PATH/ImageSets/Main/SPLIT.txt, PATH/JPEGImages/NAME.jpg and "
    "PATH/Annotations/NAME.xml, or folders of that kind in PATH (VOC2007, VOC2012)";

// The file in `folder` that is called `name` but for its ending; "": there is none.
std::string PictureNamed(const std::string& folder, const std::string& name) {
  for (const char* ending : kPictureEndings)
    if (IsThere(folder + "/" + name + ending)) return name + ending;
  return "";
}

// Adds the images of one year's list. A picture that is missing keeps the name that it would have
// in VOC, for messages.
void AddList(const std::string& year, const std::string& list, std::vector<ListedImage>* images) {
  const std::size_t before = images->size();
  for (const NameInFile& line : ReadNamesFile(list, kMostListBytes, NamePart::kFirstWord)) {
    ListedImage image;
    image.name = line.name;
    image.place = list + ": line " + std::to_string(line.line);
    image.folder = year + "/JPEGImages";
    image.file = PictureNamed(image.folder, image.name);
    image.picture = image.folder + "/" + (image.file.empty() ? image.name + ".jpg" : image.file);
    image.annotation = year + "/Annotations/" + image.name + ".xml";
    images->push_back(std::move(image));
  }
  if (images->size() == before)
    throw DataError(list + ": names no image; expected the name of one in each line");
}

// Detections name images without their years. ReadNamesFile looks at each list by itself.
void RequireDistinct(const std::vector<ListedImage>& images) {
  std::unordered_map<std::string_view, const ListedImage*> by_name;
  for (const ListedImage& image : images) {
    const auto [first, is_new] = by_name.emplace(image.name, &image);
    if (!is_new)
      throw DataError(image.place + ": " + Shown(image.name) + " is there twice, first in " +
                      first->second->place +
                      "; expected each name once, since detections name no "
                      "year");
  }
}

}  // namespace

std::vector<std::string> YearFolders(const std::string& path) {
  const std::string base = WithoutLastSlash(path);
  if (!IsThere(base)) throw DataError(path + ": no such folder; " + kVocLayout);
  // A folder with ImageSets is itself a year; else its folders may be years.
  for (const std::string& root : {base, base + "/VOCdevkit"}) {
    if (IsDataFolder(root + "/ImageSets")) return {root};
    if (!IsDataFolder(root)) continue;
    std::vector<std::string> years;
    for (const std::string& name : ListDataFolder(root))
      if (IsDataFolder(root + "/" + name + "/ImageSets")) years.push_back(root + "/" + name);
    std::sort(years.begin(), years.end());
    if (!years.empty()) return years;
  }
  throw DataError(path + ": holds no folder ImageSets; " + kVocLayout);
}

std::vector<std::string> YearFolders(const std::vector<std::string>& paths) {
  std::vector<std::string> years;
  std::error_code ignored;
  for (const std::string& path : paths) {
    for (std::string& year : YearFolders(path)) {
      // Paths that are written differently may lead to one folder, by links or "..": so files are
      // compared.
      const auto same = std::find_if(years.begin(), years.end(), [&](const std::string& other) {
        return std::filesystem::equivalent(year, other, ignored);
      });
      if (same != years.end())
        throw DataError(year + ": is given twice" + (*same == year ? "" : " (as " + *same + ")") +
                        "; expected each year once");
      years.push_back(std::move(year));
    }
  }
  return years;
}

bool HasList(const std::vector<std::string>& years, const std::string& split) {
  return std::any_of(years.begin(), years.end(), [&](const std::string& year) {
    return IsThere(year + "/ImageSets/Main/" + split + ".txt");
  });
}

std::vector<ListedImage> ListImages(const std::vector<std::string>& years, const std::string& split,
                                    std::string* note) {
  std::vector<ListedImage> images;
  std::vector<std::string> without;
  for (const std::string& year : years) {
    const std::string list = year + "/ImageSets/Main/" + split + ".txt";
    if (IsThere(list))
      AddList(year, list, &images);
    else
      without.push_back(year);
  }
  if (images.empty())
    throw DataError(years.front() + "/ImageSets/Main/" + split +
                    ".txt: no such file; expected a list of the images of this split (data.splits "
                    "names the splits)");
  RequireDistinct(images);
  for (const std::string& year : without) AddNote(note, year + ": has no list of split " + split);
  return images;
}

void RequireFiles(const ListedImage& image) {
  constexpr const char* kAdvice =
      "; put it there, take the name out of the list, or leave it out with data.on_broken: skip";
  if (image.file.empty())
    throw DataError(image.place + ": " + Shown(image.name) + " has no picture: no file " +
                    image.folder + "/" + image.name + ".jpg (nor .jpeg, .png, .webp)" + kAdvice);
  if (!IsThere(image.annotation))
    throw BrokenLabels(image.annotation, image.place + ": " + Shown(image.name) +
                                             " has no annotation: no file " + image.annotation +
                                             kAdvice);
}

}  // namespace ada::data

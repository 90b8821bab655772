#include "data/detection/image_lists.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "core/data_files.h"
#include "core/error.h"
#include "core/utf8.h"
#include "data/dataset.h"

namespace ada::data {
namespace {

constexpr std::uint64_t kMostListBytes = std::uint64_t{1} << 30;
constexpr std::array<const char*, 6> kPictureEndings = {".jpg", ".jpeg", ".png",
                                                        ".JPG", ".JPEG", ".PNG"};
constexpr const char* kVocLayout =
    "expected PATH/ImageSets/Main/SPLIT.txt, PATH/JPEGImages/NAME.jpg and "
    "PATH/Annotations/NAME.xml, or folders of that kind in PATH (VOC2007, VOC2012)";

// The file in `folder` that is called `name` but for its ending; "": there is none.
std::string PictureNamed(const std::string& folder, const std::string& name) {
  for (const char* ending : kPictureEndings)
    if (IsThere(folder + "/" + name + ending)) return name + ending;
  return "";
}

void AddList(const std::string& year, const std::string& list, std::vector<ListedImage>* images) {
  std::istringstream text(ReadDataFile(list, kMostListBytes));
  const std::size_t before = images->size();
  int line_number = 0;
  for (std::string line; std::getline(text, line);) {
    ++line_number;
    ListedImage image;
    std::istringstream(line) >> image.name;
    if (image.name.empty()) continue;
    image.place = list + ": line " + std::to_string(line_number);
    image.folder = year + "/JPEGImages";
    image.file = PictureNamed(image.folder, image.name);
    image.picture = image.folder + "/" + (image.file.empty() ? image.name + ".jpg" : image.file);
    image.annotation = year + "/Annotations/" + image.name + ".xml";
    images->push_back(std::move(image));
  }
  if (images->size() == before)
    throw DataError(list + ": names no image; expected the name of one in each line");
}

}  // namespace

std::vector<std::string> YearFolders(const std::string& path) {
  const std::string base = WithoutLastSlash(path);
  if (!IsThere(base)) throw DataError(path + ": no such folder; " + kVocLayout);
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
  for (const std::string& year : without) AddNote(note, year + ": has no list of split " + split);
  return images;
}

void RequireFiles(const ListedImage& image) {
  constexpr const char* kAdvice =
      "; put it there, take the name out of the list, or leave it out with data.on_broken: skip";
  if (image.file.empty())
    throw DataError(image.place + ": " + Shown(image.name) + " has no picture: no file " +
                    image.folder + "/" + image.name + ".jpg (nor .jpeg, .png)" + kAdvice);
  if (!IsThere(image.annotation))
    throw BrokenTruth(image.annotation, image.place + ": " + Shown(image.name) +
                                            " has no annotation: no file " + image.annotation +
                                            kAdvice);
}

}  // namespace ada::data

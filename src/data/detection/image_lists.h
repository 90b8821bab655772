// Which files belong to a split of a set in PASCAL VOC's layout.
#pragma once
#include <string>
#include <vector>

namespace ada::data {

// A line of a list and the files that it means. ListImages fills it in without opening any of them.
struct ListedImage {
  std::string name;   // as the list has it
  std::string place;  // "LIST: line 3"
  // "YEAR/JPEGImages", "NAME.jpg", and both; file "": it is missing, of whatever ending.
  std::string folder, file, picture;
  std::string annotation;  // "YEAR/Annotations/NAME.xml"
};

// The folders with ImageSets that `path` means: itself, or those below it (or below its VOCdevkit),
// in byte order. DataError where there is none.
std::vector<std::string> YearFolders(const std::string& path);
// Those of several paths, one after the other; DataError as well where one is there twice.
std::vector<std::string> YearFolders(const std::vector<std::string>& paths);

// Whether any of the years has a list of this split.
bool HasList(const std::vector<std::string>& years, const std::string& split);

// The images of a split, year by year, in the order of the lists; a line's first word counts. Years
// without the list are told in `note`. DataError: no year has it, a list cannot be read or is
// empty, ReadNamesFile refuses it, or two years have an image of the same name.
std::vector<ListedImage> ListImages(const std::vector<std::string>& years, const std::string& split,
                                    std::string* note);

// DataError naming the list's line where the picture is missing, BrokenLabels where the annotation
// is. It is a call of its own, so that a run that skips broken images can go on after it.
void RequireFiles(const ListedImage& image);

}  // namespace ada::data

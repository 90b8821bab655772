// The files of a set in PASCAL VOC's layout: the lists that say which belong to a split, and the
// annotation of an image.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/images/picture.h"
#include "vision/box.h"

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
// Those of several paths, one after another; DataError also if one occurs twice.
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

// An object in the XML file of an image. Its class is still a name: which label it has is known
// when all annotations are read.
struct AnnotatedObject {
  std::string name;
  // In pixels from 0 (the file counts from 1). Unchecked: it may extend beyond the image, have no
  // area, or be inverted.
  vision::Box box;
  bool difficult = false;
  int line = 0;  // of the file, where it begins
};
// The content of an XML file, not checked against the picture.
struct Annotation {
  PictureSize size;  // 0x0: the file does not say it, or says 0
  std::vector<AnnotatedObject> objects;
};

// Reads the text of a file that is called `path` in messages. Coordinates may be fractions. Throws
// DataError naming file, line and what was expected: no XML, no <annotation> or text beside it, an
// <object> without name or box or with two, a box with a side that is missing or no number, a size
// that is no whole number, an entity that XML itself does not know.
Annotation ParseAnnotation(std::string_view xml, const std::string& path);
// ReadAnnotation reads the file and throws DeviceError as well, where the machine does not give it.
Annotation ReadAnnotation(const std::string& path);

}  // namespace ada::data

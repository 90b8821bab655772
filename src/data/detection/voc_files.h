// The files of a set in PASCAL VOC's layout: the lists that say which belong to a split, the
// annotation of an image, and the text of its XML file as UTF-8 without a byte order mark.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "data/images/picture.h"
#include "vision/box.h"

namespace ada::data {

// AnnotationReader makes it before anything is parsed, so that the parser sees valid text in one
// encoding and messages can name lines. It copies the text.
class XmlText {
 public:
  // `bytes`: of a file in UTF-8, UTF-16, UTF-32 or another encoding that it declares; `path` is for
  // messages. DataError naming the line: bytes that are none of it, an encoding that is not known
  // here (of text that is not ASCII), control characters.
  XmlText(std::string_view bytes, const std::string& path);

  std::string_view text() const { return text_; }
  // The line, from 1, of a place in text(); in logarithmic time.
  int LineAt(std::ptrdiff_t offset) const;

 private:
  void FindLines();
  void Check(const std::string& path) const;

  std::string text_;
  std::vector<std::size_t> ends_;  // of the lines
};

// Text of an element as it stands in a file, with each entity (&amp;, &#233;, &#xE9;) as the
// character that it means. "" and `problem` in words: an entity that XML itself does not know.
std::string WithoutEntities(std::string_view raw, std::string* problem);

// A text in the encoding that its file declares, as UTF-8, by iconv. Three outcomes are told apart:
// an encoding that the system does not know, bytes that are not valid in it, and a text.
struct Utf8Text {
  bool known = true;        // the encoding is
  std::string text;         // up to `bad`
  std::ptrdiff_t bad = -1;  // the first byte that is none of the encoding's; -1: there is none
};

// `encoding`: as XML names it, in any case.
Utf8Text ToUtf8(std::string_view bytes, const std::string& encoding);

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

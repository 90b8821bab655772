// The XML file of an image in PASCAL VOC's layout.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/images/picture.h"
#include "vision/box.h"

namespace ada::data {

// The class is still a name: which label it has is known when all annotations are read.
struct AnnotatedObject {
  std::string name;
  // In pixels from 0: the file counts from 1. As it stands there: it may reach beyond the image, or
  // have no area, or be inverted.
  vision::Box box;
  bool difficult = false;
  int line = 0;  // of the file, where it begins
};
// Holds what an XML file says of its picture, unchecked against the picture.
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

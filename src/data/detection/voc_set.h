// The data set `voc`: PATH/ImageSets/Main/SPLIT.txt lists names, PATH/JPEGImages/NAME.jpg are the
// pictures and PATH/Annotations/NAME.xml their boxes, as in PASCAL VOC.
#pragma once
#include <string>

#include "data/dataset.h"

namespace ada::data {

// Reads the lists and all XML files; several years one after the other. PATH may hold the years as
// folders (VOC2007, VOC2012; VOCdevkit). Splits are trainval and test unless they are named; a year
// without the list of the split `test` has none of it, which the note says. The classes are those
// of `class_names`, else those of the annotations of both splits in byte order (VOC's own order,
// which is the same, where they are VOC's twenty). Throws DataError naming the file: a folder or
// list is missing, a name without picture or XML, what ReadAnnotation throws, a size other than the
// picture's, a class that is not among the names; with `skip_broken` such images are left out
// (Dataset::left_out), unless a split has no others. The note says of each split which boxes are
// left out of training (TrainingBoxes), and names the first of each kind.
Splits OpenVoc(const std::string& path, const FileChoices& choices);

}  // namespace ada::data

// The data set `camvid`: pictures in PATH/SPLIT, and for each a label image of the same name (but
// the ending) in PATH/SPLITannot, as the authors of SegNet laid out CamVid.
#pragma once
#include <string>

#include "data/dataset.h"

namespace ada::data {

// Without names of classes the set has CamVid's eleven, and label 11 is ignored; with them 255 is,
// unless `ignored_label` says otherwise. It only lists files; splits are train and test unless they
// are named. Pictures and label images come in byte order of their names. The note says which label
// images are not used. Throws DataError: a folder is missing or empty, a picture has no label image
// (unless `skip_broken`), is there twice (with two endings); ConfigError: too many classes.
Splits OpenCamvid(const std::string& path, const FileChoices& choices);

}  // namespace ada::data

// What reading makes of a picture without being asked, and its owner may not expect.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "data/images/picture.h"

namespace ada::data {

struct Surprise {
  bool (*holds)(const PictureTraits& traits, const PictureRules& rules);
  const char *one, *many, *what;
};
// 16-bit grey that is cut at 255, an EXIF orientation that is not applied, alpha that is dropped.
std::span<const Surprise> Surprises();

// Those of one picture's file, each as a line without its name. DataError where it cannot be read.
std::vector<std::string> SurprisesOf(const std::string& path, const PictureRules& rules);

}  // namespace ada::data

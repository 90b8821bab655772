// Checks of a picture's file that need no pixels: whether its end is missing, and what its owner
// may not expect when it is read.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/images/picture.h"

namespace ada::data {

// Whether a picture's file lacks the end that its format wants, told without decoding it. True: a
// JPEG without its end marker, a PNG that ends within its pixel chunks, a WebP shorter than its
// header says: decoding each of these is an error. False: none of these, or not such a picture.
// Errors are those of ReadPictureFile.
bool IsCutOff(const std::string& path);

// 16-bit gray whose values above 255 become white.
inline bool IsClipped(const PictureTraits& traits, const PictureRules& rules) {
  return traits.clipped && rules.sixteen_bit == SixteenBit::kClip;
}
// Other 16-bit values, of which the low byte is dropped.
inline bool IsHighByteTaken(const PictureTraits& traits, const PictureRules& rules) {
  return traits.bits == 16 && !traits.clipped && rules.sixteen_bit == SixteenBit::kClip;
}
// An EXIF orientation that is not applied.
inline bool IsLeftUnturned(const PictureTraits& traits, const PictureRules& rules) {
  return traits.orientation != 1 && !rules.applies_exif;
}

// `holds` tells for which pictures it is true; `one` and `many` start its line after the count, and
// `what` explains what happens to such pictures and how to change that.
struct Surprise {
  bool (*holds)(const PictureTraits& traits, const PictureRules& rules);
  const char *one, *many, *what;
};
// IsClipped, IsHighByteTaken, IsLeftUnturned, and alpha that is dropped.
std::span<const Surprise> Surprises();

// "3 pictures have alpha (the first: a.png): it is dropped, ...". `of`: follows the count.
std::string SurpriseText(const Surprise& surprise, std::int64_t count, const std::string& first,
                         const std::string& of = "");

// Those of one picture's file, each as a line without its name. DataError where it cannot be read.
std::vector<std::string> SurprisesOf(const std::string& path, const PictureRules& rules);

}  // namespace ada::data

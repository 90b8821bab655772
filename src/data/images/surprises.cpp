#include "data/images/surprises.h"

#include <array>

namespace ada::data {
namespace {

constexpr auto kSurprises = std::to_array<Surprise>({
    {IsClipped, "picture is 16-bit grey", "pictures are 16-bit grey",
     "values above 255 become white, as PIL does; data.sixteen_bit: scale divides them by 257"},
    {IsHighByteTaken, "picture is 16-bit", "pictures are 16-bit",
     "the high byte of each value is taken, as PIL does; data.sixteen_bit: scale divides values by "
     "257 and rounds"},
    {IsLeftUnturned, "picture carries an EXIF orientation", "pictures carry an EXIF orientation",
     "it is not applied; data.exif: apply turns pictures as viewers show them"},
    {[](const PictureTraits& traits, const PictureRules&) { return traits.alpha; },
     "picture has alpha", "pictures have alpha",
     "it is dropped, and what it hides is seen; paint pictures on a background if that matters"},
});

}  // namespace

std::span<const Surprise> Surprises() { return kSurprises; }

std::string SurpriseText(const Surprise& surprise, std::int64_t count, const std::string& first,
                         const std::string& of) {
  const bool one = count == 1;
  return std::to_string(count) + of + " " + (one ? surprise.one : surprise.many) + " (" +
         (one ? "" : "the first: ") + first + "): " + surprise.what;
}

std::vector<std::string> SurprisesOf(const std::string& path, const PictureRules& rules) {
  const PictureTraits traits = NeedsOfPictureFile(path).traits;
  std::vector<std::string> lines;
  for (const Surprise& surprise : kSurprises)
    if (surprise.holds(traits, rules))
      lines.push_back(std::string(surprise.one) + ": " + surprise.what);
  return lines;
}

}  // namespace ada::data

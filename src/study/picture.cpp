// One picture through the functions that the loader of a data set calls.
// For a look at what resizing, decoding and orientation make of a file; the same bytes go into a
// batch.
#include "data/images/picture.h"

#include <ostream>
#include <string>

#include "data/images/resize.h"
#include "error.h"
#include "study/commands.h"

namespace ada::study {
namespace {

// Throws ConfigError if the picture would have too many pixels.
void CheckMade(const char* option, std::int64_t height, std::int64_t width) {
  if (height <= data::kMaxPixels / width) return;
  throw ConfigError(std::string(option) + ": makes " + std::to_string(width) + " x " +
                    std::to_string(height) + " pixels; expected at most " +
                    std::to_string(data::kMaxPixels) + " in all");
}

// The part of a picture of `size` that the options name.
data::Box BoxIn(data::PictureSize size, const PictureOptions& options) {
  if (!options.box) return {0, 0, size.height, size.width};
  const PictureOptions::Corners& c = *options.box;
  if (c.x0 < 0 || c.y0 < 0 || c.x1 <= c.x0 || c.y1 <= c.y0 || c.x1 > size.width ||
      c.y1 > size.height) {
    throw ConfigError("--box " + std::to_string(c.x0) + "," + std::to_string(c.y0) + "," +
                      std::to_string(c.x1) + "," + std::to_string(c.y1) +
                      " is empty or reaches beyond the picture; " + options.input + " has " +
                      SizeText(size) + ": expected 0 <= X0 < X1 <= " + std::to_string(size.width) +
                      " and 0 <= Y0 < Y1 <= " + std::to_string(size.height));
  }
  return {c.y0, c.x0, c.y1 - c.y0, c.x1 - c.x0};
}

// The order is that of the loader. With both a shorter side and a crop one function does the two,
// as the loader does.
data::Picture Changed(data::Picture picture, const PictureOptions& options) {
  const data::Box whole{0, 0, picture.height, picture.width};
  const data::PictureSize crop{options.center_crop, options.center_crop};
  if (options.height > 0) {
    picture = data::ResizeBox(picture, whole, {options.height, options.width});
    if (options.center_crop > 0)
      picture = data::CutBox(picture, data::CenterBox(picture.size(), crop));
  } else if (options.center_crop > 0) {
    picture = data::ResizeAndCrop(picture, options.shorter_side, crop, options.input);
  } else if (options.shorter_side > 0) {
    picture = data::ResizeBox(
        picture, whole, data::ShorterSide(picture.size(), options.shorter_side, options.input));
  }
  if (options.flip) data::FlipColumns(&picture);
  return picture;
}

}  // namespace

void ShowPicture(const PictureOptions& options, std::ostream& out, std::ostream& notes) {
  if (options.height > 0) CheckMade("--resize", options.height, options.width);
  if (options.center_crop > 0) CheckMade("--center-crop", options.center_crop, options.center_crop);
  const std::vector<std::uint8_t> file = data::ReadPictureFile(options.input);
  // The header is enough to check the box; only the part that is asked for is decoded.
  const data::PictureSize size = data::SizeOfPicture(file, options.input, options.rules);
  const data::Box box = BoxIn(size, options);
  const data::Picture picture =
      Changed(data::DecodePicture(file, options.input, box, options.rules), options);
  for (const std::string& line : data::SurprisesOf(options.input, options.rules))
    notes << options.input << ": " << line << '\n';
  if (!options.output.empty()) {
    data::WritePng(options.output, picture);
    return;
  }
  out << options.input << ": " << SizeText(size) << ", "
      << data::KindOfPicture(file, options.input);
  if (!(picture.size() == size)) out << "; " << SizeText(picture.size()) << " with these options";
  out << '\n';
}

}  // namespace ada::study

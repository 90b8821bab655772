// Whether a picture's file has the end that its format wants, without decoding it.
#pragma once
#include <string>

namespace ada::data {

// True: a JPEG without the marker of its end, a PNG that ends within the
// chunks of its pixels, a WebP shorter than it says: each is an error of who decodes it. False:
// none of these, or no such picture. Errors are those of ReadPictureFile.
bool IsCutOff(const std::string& path);

}  // namespace ada::data

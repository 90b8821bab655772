// The orientation that EXIF gives a picture: where it is found, and what it makes of sizes, boxes
// and pixels. Orientation 1 is the picture as it is stored; 6 is turned by 90 degrees to the right
// (Exif 2.32, tag 0x0112).
#pragma once
#include "data/images/picture.h"
#include "vision/box.h"

namespace ada::data {

inline bool SwapsSides(int orientation) { return orientation >= 5; }

// The orientation in the TIFF block of an EXIF block; 1 if it has none, or an invalid
// one.
int OrientationOf(FileBytes tiff);
// Whether EXIF data begins with "Exif\0\0", as it does in JPEG.
bool HasExifMark(FileBytes exif);
// The same as OrientationOf, of EXIF data with that mark or without.
int OrientationOfExif(FileBytes exif);

PictureSize Turned(PictureSize stored, int orientation);
Picture Turned(Picture stored, int orientation);
// The part of the stored picture, which has the size `stored`, that becomes `box`.
Box StoredBox(const Box& box, PictureSize stored, int orientation);
// What a box on the stored picture becomes.
vision::Box Turned(const vision::Box& box, PictureSize stored, int orientation);

}  // namespace ada::data

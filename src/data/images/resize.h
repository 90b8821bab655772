// Bilinear resizing with antialias, byte for byte as Pillow 13's Image.resize(..., BILINEAR) on RGB
// and gray pictures (so torchvision's PIL path): weights of 22 bits, one axis after the other, each
// rounded to bytes; down first where the height loses more than twice as many pixels as the width,
// else across first. And the sizes and boxes that torchvision's transforms compute. Pure functions,
// for any number of channels.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/images/picture.h"

namespace ada::data {

// The box, which lies within the picture, resized to `to`.
Picture ResizeBox(const Picture& picture, const Box& box, PictureSize to);

// The same, but only `part` of the result, which lies within it, is computed.
Picture ResizeBox(const Picture& picture, const Box& box, PictureSize to, const Box& part);

// For pixel `at` of an axis of `to` pixels, the one of `from` pixels in which its center lies: the
// choice of Pillow's NEAREST.
inline int NearestPlace(int at, int from, int to) {
  return static_cast<int>((2 * std::int64_t{at} + 1) * from / (2 * std::int64_t{to}));
}

// torchvision's Resize(size): the shorter side becomes `size`, the longer one is size * longer /
// shorter without its fraction. Throws DataError naming `path` where that passes kMaxPixels.
PictureSize ShorterSide(PictureSize of, int size, const std::string& path);

// torchvision's CenterCrop(crop): its place in a picture. Halves of pixels round to even. If the
// crop is larger than the picture, the box extends beyond it.
Box CenterBox(PictureSize of, PictureSize crop);

// Cuts out the box; pixels outside of the picture are black.
Picture CutBox(const Picture& picture, const Box& box);

// torchvision's Resize(size) and CenterCrop(crop), one after the other; only what the crop shows is
// computed. A size of 0: no resizing.
Picture ResizeAndCrop(const Picture& picture, int size, PictureSize crop, const std::string& path);

// Mirrors the columns in place.
void FlipColumns(Picture* picture);

// The instruction sets that this machine has among those that the kernels were compiled for, the
// best first, and resizing with one of them: for tests.
std::vector<std::string> ResizeKernelNames();
Picture ResizeBoxWith(const std::string& kernels, const Picture& picture, const Box& box,
                      PictureSize to, const Box& part);

}  // namespace ada::data

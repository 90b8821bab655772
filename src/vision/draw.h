// Draws on pictures what was found in them: boxes with captions, and labels of pixels as colors.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "vision/box.h"

namespace ada::vision {

// A picture of 8 bits a value, red, green, blue, row after row without gaps. The pixels belong to
// the caller and must outlive the call. Nothing is drawn outside of them.
struct RgbView {
  std::uint8_t* pixels = nullptr;
  int height = 0, width = 0;
};

struct Rgb {
  std::uint8_t r = 0, g = 0, b = 0;
  friend bool operator==(const Rgb&, const Rgb&) = default;
};

// The color of a class; neighboring labels have very different ones. None is black, which is for
// pixels without a label.
Rgb LabelColor(int label);
// Black or white, whichever is read better on `ground`.
Rgb TextColor(Rgb ground);

// Draws the outline inside the box, whose corners may be outside of the picture or inverted.
// Corners are rounded to whole pixels; parts that are outside, or NaN, are not drawn.
void DrawBox(RgbView picture, const Box& box, Rgb color, int thickness = 1);

// Text in a font of 5 x 7 pixels within cells of 6 x 9, each pixel `zoom` wide and high. What is no
// printable ASCII is an empty frame, one a code point.
int TextHeight(int zoom = 1);
int TextWidth(std::string_view text, int zoom = 1);
// The upper left corner of the text's ground lies at (y, x).
void DrawText(RgbView picture, int y, int x, std::string_view text, Rgb color, Rgb ground,
              int zoom = 1);

// A box of its class's color with a caption, such as "car 0.87", above it; below its upper edge
// where there is no room above, and moved to where the picture shows it. Lines and text are larger
// on larger pictures.
void DrawLabeledBox(RgbView picture, const Box& box, int label, std::string_view caption);

// Mixes into each pixel its label's color, `opacity` of it; negative labels leave it as it is.
// `labels` has one a pixel.
void DrawLabels(RgbView picture, std::span<const std::int32_t> labels, float opacity = 0.5F);

// The letters of captions.
inline constexpr int kGlyphHeight = 7, kGlyphWidth = 5;
using Glyph = std::array<std::uint8_t, kGlyphHeight>;  // a row's bit 4 is its left pixel

// One a code point of UTF-8; what is not printable ASCII is an empty frame. The glyphs that are
// returned are constants and stay valid.
std::vector<const Glyph*> GlyphsOf(std::string_view text);

}  // namespace ada::vision

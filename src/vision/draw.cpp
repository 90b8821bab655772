// All drawing but that of labels fills boxes, which are cut off at the picture's edges: outlines,
// grounds and the pixels of letters.
#include "vision/draw.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "error.h"

namespace ada::vision {
namespace {

constexpr int kMargin = 1;  // around the letters and between them, in pixels of the font

// Half-open, in pixels.
struct PixelBox {
  int y0, x0, y1, x1;
};

// Fills the part of the box that is inside the picture.
void FillBox(RgbView picture, const PixelBox& box, Rgb color) {
  const int x0 = std::max(box.x0, 0), x1 = std::min(box.x1, picture.width);
  for (int y = std::max(box.y0, 0); y < std::min(box.y1, picture.height); ++y) {
    for (int x = x0; x < x1; ++x) {
      std::uint8_t* pixel = picture.pixels + 3 * (static_cast<std::size_t>(y) *
                                                      static_cast<std::size_t>(picture.width) +
                                                  static_cast<std::size_t>(x));
      pixel[0] = color.r;
      pixel[1] = color.g;
      pixel[2] = color.b;
    }
  }
}

// A whole pixel that no sum with a size of a picture leaves.
int Rounded(float value) {
  return static_cast<int>(std::lround(std::clamp(value, -1.0e8F, 1.0e8F)));
}

bool HasNan(const Box& box) {
  return std::isnan(box.y0) || std::isnan(box.x0) || std::isnan(box.y1) || std::isnan(box.x1);
}

PixelBox PixelsOf(const Box& box) {
  const auto [y0, y1] = std::minmax({Rounded(box.y0), Rounded(box.y1)});
  const auto [x0, x1] = std::minmax({Rounded(box.x0), Rounded(box.x1)});
  return {y0, x0, y1, x1};
}

// Red, green and blue of hue, saturation and value, each 0..1.
Rgb FromHsv(double hue, double saturation, double value) {
  const auto part = [&](double offset) {
    const double k = std::fmod(offset + hue * 6, 6.0);
    const double share = std::clamp(std::min(k, 4 - k), 0.0, 1.0);
    return static_cast<std::uint8_t>(std::lround(255 * value * (1 - saturation * share)));
  };
  return {part(5), part(3), part(1)};
}

}  // namespace

Rgb LabelColor(int label) {
  // Steps of the golden ratio keep any number of hues apart; three shades, as hues come near again.
  constexpr double kGolden = 0.6180339887498949;
  constexpr std::array<std::array<double, 2>, 3> kShades = {{{0.85, 0.95}, {0.55, 1}, {0.9, 0.6}}};
  const auto& [saturation, value] = kShades[static_cast<std::size_t>(std::abs(label % 3))];
  const double turns = 0.02 + kGolden * label;
  return FromHsv(turns - std::floor(turns), saturation, value);
}

Rgb TextColor(Rgb ground) {
  // Luma of ITU-R BT.601.
  const double luma = 0.299 * ground.r + 0.587 * ground.g + 0.114 * ground.b;
  return luma > 140 ? Rgb{0, 0, 0} : Rgb{255, 255, 255};
}

void DrawBox(RgbView picture, const Box& box, Rgb color, int thickness) {
  if (HasNan(box)) return;
  const PixelBox b = PixelsOf(box);
  const int rows = std::min(thickness, b.y1 - b.y0), columns = std::min(thickness, b.x1 - b.x0);
  // Lines lie within the box, so that its outline shows which pixels belong to it.
  FillBox(picture, {b.y0, b.x0, b.y0 + rows, b.x1}, color);
  FillBox(picture, {b.y1 - rows, b.x0, b.y1, b.x1}, color);
  FillBox(picture, {b.y0, b.x0, b.y1, b.x0 + columns}, color);
  FillBox(picture, {b.y0, b.x1 - columns, b.y1, b.x1}, color);
}

int TextHeight(int zoom) { return zoom * (kGlyphHeight + 2 * kMargin); }

int TextWidth(std::string_view text, int zoom) {
  const auto glyphs = static_cast<int>(GlyphsOf(text).size());
  return zoom * (glyphs * (kGlyphWidth + kMargin) + kMargin);
}

void DrawText(RgbView picture, int y, int x, std::string_view text, Rgb color, Rgb ground,
              int zoom) {
  FillBox(picture, {y, x, y + TextHeight(zoom), x + TextWidth(text, zoom)}, ground);
  int left = x + zoom * kMargin;
  for (const Glyph* glyph : GlyphsOf(text)) {
    for (int row = 0; row < kGlyphHeight; ++row) {
      for (int column = 0; column < kGlyphWidth; ++column) {
        if (((*glyph)[static_cast<std::size_t>(row)] >> (kGlyphWidth - 1 - column) & 1) == 0)
          continue;
        const int top = y + zoom * (kMargin + row), start = left + zoom * column;
        FillBox(picture, {top, start, top + zoom, start + zoom}, color);
      }
    }
    left += zoom * (kGlyphWidth + kMargin);
  }
}

void DrawLabeledBox(RgbView picture, const Box& box, int label, std::string_view caption) {
  const int side = std::min(picture.height, picture.width);
  const int zoom = std::max(1, side / 400), thickness = 1 + side / 300;
  const Rgb color = LabelColor(label);
  DrawBox(picture, box, color, thickness);
  if (HasNan(box) || caption.empty()) return;
  const PixelBox b = PixelsOf(box);
  if (b.y1 <= 0 || b.x1 <= 0 || b.y0 >= picture.height || b.x0 >= picture.width) return;
  const int height = TextHeight(zoom), width = TextWidth(caption, zoom);
  // The caption stands on the box; where the picture ends above, within it.
  const int y = b.y0 >= height ? b.y0 - height : b.y0;
  DrawText(picture, std::max(0, std::min(y, picture.height - height)),
           std::max(0, std::min(b.x0, picture.width - width)), caption, TextColor(color), color,
           zoom);
}

void DrawLabels(RgbView picture, std::span<const std::int32_t> labels, float opacity) {
  ADA_CHECK(labels.size() ==
            static_cast<std::size_t>(picture.height) * static_cast<std::size_t>(picture.width));
  const auto mixed = [&](std::uint8_t before, std::uint8_t color) {
    const auto from = static_cast<float>(before), to = static_cast<float>(color);
    return static_cast<std::uint8_t>(std::lround(from + (to - from) * opacity));
  };
  // Neighbors mostly have the same label, whose color is kept.
  std::int32_t last = -1;
  Rgb color;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0) continue;
    if (labels[i] != last) color = LabelColor(labels[i]);
    last = labels[i];
    std::uint8_t* pixel = picture.pixels + 3 * i;
    pixel[0] = mixed(pixel[0], color.r);
    pixel[1] = mixed(pixel[1], color.g);
    pixel[2] = mixed(pixel[2], color.b);
  }
}

}  // namespace ada::vision

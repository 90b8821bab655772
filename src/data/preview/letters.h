// Small letters for labels on pictures: five rows of pixels, made for this program. Lower case
// looks like upper case; what has no letter here is an empty box.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "data/images/picture.h"

namespace ada::data {

inline constexpr int kLetterRows = 5;

// Columns that `text`, UTF-8, takes when each pixel of a letter is `scale` wide.
int TextWidth(std::string_view text, int scale);

// Writes it with its upper left corner at (top, left); what lies outside the picture is cut off.
void DrawText(std::string_view text, int scale, int top, int left,
              const std::array<std::uint8_t, 3>& colour, Picture* picture);

}  // namespace ada::data

// The letters of draw.h.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ada::vision {

inline constexpr int kGlyphHeight = 7, kGlyphWidth = 5;
using Glyph = std::array<std::uint8_t, kGlyphHeight>;  // a row's bit 4 is its left pixel

// One a code point of UTF-8; what is not printable ASCII is an empty frame. The glyphs that are
// returned are constants and stay valid.
std::vector<const Glyph*> GlyphsOf(std::string_view text);

}  // namespace ada::vision

// Text in the encodings that files declare, as UTF-8, by iconv.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace ada::data {

// Tells three outcomes apart: an encoding that the system does not know, bytes that are not valid
// in it, and a text.
struct Utf8Text {
  bool known = true;        // the encoding is
  std::string text;         // up to `bad`
  std::ptrdiff_t bad = -1;  // the first byte that is none of the encoding's; -1: there is none
};

// `encoding`: as XML names it, in any case.
Utf8Text ToUtf8(std::string_view bytes, const std::string& encoding);

}  // namespace ada::data

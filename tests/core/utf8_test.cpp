// Text of files as people see it: nothing that a terminal would obey is left.
#include <doctest/doctest.h>

#include <string>

#include "core/shown_text.h"

TEST_SUITE("cpu") {
  TEST_CASE("what a terminal would obey is visible, all else stays") {
    const std::string plain = "conv1.dx \xC3\xA4 \xE2\x96\x81 \xF0\x9F\x99\x82 'a\"b\\c' $x$";
    CHECK(ada::ValidUtf8("a\n\x1b\xC3\xA9\xff\xC3") == "a\n\x1b\xC3\xA9\\xff\\xc3");
    CHECK(ada::Visible(plain) == plain);
    CHECK(ada::Visible("a\x1b[2Jb\r\n\tc\x7f") == "a\\x1b[2Jb\\x0d\\x0a\\x09c\\x7f");
    CHECK(ada::Visible(std::string("nul\0!", 5)) == "nul\\x00!");
    CHECK(ada::Visible("c1 \xC2\x9B"
                       "31m, as a byte \x9B"
                       "31m") == "c1 \\x9b31m, as a byte \\x9b31m");
    CHECK(ada::Visible("\xE2\x80\xAE"
                       "evil\xE2\x81\xA9") == "\\u202eevil\\u2069");
    CHECK(ada::VisibleLines("two\nlines\r\n") == "two\nlines\\x0d\n");
  }

  TEST_CASE("bytes that are no UTF-8") {
    CHECK(ada::Visible("\xC0\x80 \xED\xA0\x80 \xF5 \xE2\x82") ==
          "\\xc0\\x80 \\xed\\xa0\\x80 \\xf5 \\xe2\\x82");
    for (int a = 0; a < 256; ++a) {
      for (int b = 0; b < 256; ++b) {
        const std::string text = {'x', static_cast<char>(a), static_cast<char>(b)};
        const std::string shown = ada::Visible(text);
        CHECK(ada::Visible(shown) == shown);
      }
    }
  }

  TEST_CASE("a piece of a file in a message: in quotes, of what is long the beginning") {
    CHECK(ada::Shown("a\x1b") == "'a\\x1b'");
    CHECK(ada::Shown(std::string(80, 'z')) == "'" + std::string(80, 'z') + "'");
    CHECK(ada::Shown(std::string(81, 'z')) == "'" + std::string(80, 'z') + "...'");
    const std::string cut = std::string(79, 'z') + "\xC3\xA4";  // 81 bytes, 80 characters
    CHECK(ada::Shown(cut) == "'" + std::string(79, 'z') + "...'");
  }
}

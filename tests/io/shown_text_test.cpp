// Text of files as people see it: nothing that a terminal would obey is left; words in lines of
// some columns, and letters in lower case.
#include "io/shown_text.h"

#include <doctest/doctest.h>

#include <string>

#include "io/text.h"

namespace ada {

TEST_SUITE("cpu") {
  TEST_CASE("what a terminal would obey is visible, all else stays") {
    const std::string plain = "conv1.dx \xC3\xA4 \xE2\x96\x81 \xF0\x9F\x99\x82 'a\"b\\c' $x$";
    CHECK(ValidUtf8("a\n\x1b\xC3\xA9\xff\xC3") == "a\n\x1b\xC3\xA9\\xff\\xc3");
    CHECK(Visible(plain) == plain);
    CHECK(Visible("a\x1b[2Jb\r\n\tc\x7f") == "a\\x1b[2Jb\\x0d\\x0a\\x09c\\x7f");
    CHECK(Visible(std::string("nul\0!", 5)) == "nul\\x00!");
    CHECK(Visible("c1 \xC2\x9B"
                  "31m, as a byte \x9B"
                  "31m") == "c1 \\x9b31m, as a byte \\x9b31m");
    CHECK(Visible("\xE2\x80\xAE"
                  "evil\xE2\x81\xA9") == "\\u202eevil\\u2069");
    CHECK(VisibleLines("two\nlines\r\n") == "two\nlines\\x0d\n");
  }

  TEST_CASE("bytes that are no UTF-8") {
    CHECK(Visible("\xC0\x80 \xED\xA0\x80 \xF5 \xE2\x82") ==
          "\\xc0\\x80 \\xed\\xa0\\x80 \\xf5 \\xe2\\x82");
    for (int a = 0; a < 256; ++a) {
      for (int b = 0; b < 256; ++b) {
        const std::string text = {'x', static_cast<char>(a), static_cast<char>(b)};
        const std::string shown = Visible(text);
        CHECK(Visible(shown) == shown);
      }
    }
  }

  TEST_CASE("a piece of a file in a message: in quotes, of what is long the beginning") {
    CHECK(Shown("a\x1b") == "'a\\x1b'");
    CHECK(Shown(std::string(80, 'z')) == "'" + std::string(80, 'z') + "'");
    CHECK(Shown(std::string(81, 'z')) == "'" + std::string(80, 'z') + "...'");
    const std::string cut = std::string(79, 'z') + "\xC3\xA4";  // 81 bytes, 80 characters
    CHECK(Shown(cut) == "'" + std::string(79, 'z') + "...'");
  }

  TEST_CASE("words that are wrapped") {
    CHECK(Wrapped("", 2, 10).empty());
    CHECK(Wrapped("one two three", 2, 9) == "one two\n  three");
    CHECK(Wrapped("one two", 2, 7) == "one two");
    CHECK(Wrapped("  a  b   longer_than_this", 4, 10) == "  a  b\n    longer_than_this");
    CHECK(Wrapped("\xC3\xA4\xC3\xA4 b", 0, 4) == "\xC3\xA4\xC3\xA4 b");
  }

  TEST_CASE("a first line that is used in part") {
    CHECK(Wrapped("one two three", 4, 11, 4) == "one two\n    three");
    CHECK(Wrapped("longer_than_this b", 4, 8, 4) == "longer_than_this\n    b");
  }

  TEST_CASE("codes for colors take no columns") {
    CHECK(TextWidth("\033[31mred\033[0m \xC3\xA4") == 5);
    CHECK(TextWidth("\033[31") == 0);
    CHECK(Wrapped("\033[31mred\033[0m and blue", 0, 12) == "\033[31mred\033[0m and blue");
  }

  TEST_CASE("letters in lower case") {
    CHECK(LowerCase("ABC xyz.JPG-\xC3\x84[@") == "abc xyz.jpg-\xC3\x84[@");
    CHECK(LowerCase('Z') == 'z');
  }
}

}  // namespace ada

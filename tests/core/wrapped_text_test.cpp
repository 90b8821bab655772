// Words in lines of some columns, and letters in lower case.
#include <doctest/doctest.h>

#include "core/shown_text.h"
#include "core/text.h"

namespace ada {

TEST_SUITE("cpu") {
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

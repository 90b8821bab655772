// Files with a name in each line.
#include "data/names.h"

#include <doctest/doctest.h>

#include "tiny_files.h"

namespace ada::data {
namespace {

constexpr std::uint64_t kMost = 1000;

struct NamesFile {
  testing::TempFolder folder;
  std::string path = folder / "list.txt";

  explicit NamesFile(const std::string& text) { WriteFile(path, Bytes(text.begin(), text.end())); }
  std::vector<NameInFile> Read(NamePart part) const { return ReadNamesFile(path, kMost, part); }
  std::string Refusal() const {
    return MessageOf(folder.path(), [&] { Read(NamePart::kFirstWord); });
  }
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("names: whole lines or their first words, with the lines they stand in") {
    const NamesFile file("\xEF\xBB\xBF  one two\t\r\n\nthree  -1\nfour");
    const std::vector<NameInFile> words = file.Read(NamePart::kFirstWord);
    REQUIRE(words.size() == 3);
    CHECK(words[0].name == "one");
    CHECK(words[0].line == 1);
    CHECK(words[1].name == "three");
    CHECK(words[1].line == 3);
    CHECK(words[2].name == "four");
    CHECK(NamesFile("a b\r\nc\n").Read(NamePart::kWholeLine).at(0).name == "a b");
    CHECK(NamesFile("\xEF\xBB\xBF").Read(NamePart::kWholeLine).empty());
    CHECK(NamesFile("\n\n").Read(NamePart::kFirstWord).empty());
  }

  TEST_CASE("names: what is no name is shown, and one that is there twice is refused") {
    const std::string control =
        " has a control character; expected a text file with a name in each line";
    CHECK(NamesFile(std::string("a\nb\0c\n", 6)).Refusal() ==
          "DIR/list.txt: line 2: the name 'b\\x00c'" + control);
    CHECK(NamesFile("a\x1b[2J\n").Refusal() ==
          "DIR/list.txt: line 1: the name 'a\\x1b[2J'" + control);
    CHECK(NamesFile(std::string("\xFF\xFE"
                                "a\0\n\0",
                                6))
              .Refusal() == "DIR/list.txt: line 1: the name '\\xff\\xfea\\x00'" + control);
    CHECK(NamesFile("a 1\nb\na -1\n").Refusal() ==
          "DIR/list.txt: line 3: 'a' is there twice, first in line 1; expected each name once");
    CHECK(NamesFile(std::string(kMost + 1, 'a')).Refusal() ==
          "DIR/list.txt: has 1001 B (1001 bytes); at most 1000 B (1000 bytes) are read of such a "
          "file");
  }
}

}  // namespace ada::data

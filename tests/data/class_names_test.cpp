// Names of classes: built in, or from a list beside the data.
#include <doctest/doctest.h>

#include <set>

#include "data/dataset.h"
#include "tiny_files.h"

namespace ada::data {
namespace {

std::string Lines(int count, const std::string& end) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "class " + std::to_string(i) + end;
  return text;
}

void WriteText(const std::string& path, const std::string& text) {
  WriteFile(path, Bytes(text.begin(), text.end()));
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("class names: as many as classes, all different, in the order of the labels") {
    for (const char* name : {"cifar10", "mnist", "fashion_mnist"}) {
      const std::vector<std::string> names = ClassNames(name, "no folder is needed");
      CHECK(names.size() == 10);
      CHECK(std::set<std::string>(names.begin(), names.end()).size() == 10);
    }
    CHECK(ClassNames("cifar10", "").at(3) == "cat");
    CHECK(ClassNames("mnist", "").at(7) == "7");
    CHECK(ClassNames("fashion_mnist", "").at(9) == "Ankle boot");
  }

  TEST_CASE("class names: CIFAR-100's list lies beside its files, or not") {
    const testing::TempFolder folder;
    WriteZeros(folder / "cifar-100-binary/test.bin", 0);
    CHECK(ClassNames("cifar100", folder.path()).empty());
    const std::string list = folder / "cifar-100-binary/fine_label_names.txt";
    for (const char* end : {"\n", "\r\n"}) {
      WriteText(list, Lines(100, end) + "\n");
      const std::vector<std::string> names = ClassNames("cifar100", folder.path());
      REQUIRE(names.size() == 100);
      CHECK(names.front() == "class 0");
      CHECK(names.back() == "class 99");
    }
    WriteText(list, Lines(99, "\n"));
    CHECK_THROWS_WITH_AS(
        ClassNames("cifar100", folder.path()),
        (list +
         ": 99 names of classes; expected 100, one a line; mend or remove the file, it is only "
         "read for names")
            .c_str(),
        DataError);
    WriteText(list, Lines(100, "\n") + "class 5\n");
    CHECK_THROWS_WITH_AS(ClassNames("cifar100", folder.path()),
                         (list + ": line 101: 'class 5' is there twice, first in line 6; expected "
                                 "each name once")
                             .c_str(),
                         DataError);
  }
}

}  // namespace ada::data

// Every bad input is refused with its exact message: files of tests/bad, and inputs that are made
// here because they are too large or no text.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "config/load.h"
#include "config/refusal.h"
#include "temp_folder.h"

namespace fs = std::filesystem;
using ada::config::Load;
using ada::config::LoadText;
using ada::config::RefusalOf;

namespace {

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string MessageOf(const std::string& path) {
  return RefusalOf([&] { Load(path, {}); });
}

std::string MessageOfText(const std::string& text) {
  return RefusalOf([&] { LoadText(text, "text.yaml", {}); });
}

std::string Repeated(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("every file of tests/bad is refused with its message") {
    int files = 0;
    for (const auto& entry : fs::directory_iterator("tests/bad")) {
      if (entry.path().extension() != ".yaml") continue;
      ++files;
      fs::path expected = entry.path();
      expected.replace_extension(".txt");
      const std::string name = "tests/bad/" + entry.path().filename().string();
      CAPTURE(name);
      REQUIRE(fs::exists(expected));
      CHECK(MessageOf(name) + "\n" == Read(expected));
    }
    CHECK(files >= 90);
  }

  TEST_CASE("files that are none") {
    CHECK(MessageOf("tests/bad/no_such_file.yaml") ==
          "tests/bad/no_such_file.yaml: cannot be opened: No such file or directory");
    CHECK(MessageOf("tests/bad") == "tests/bad: is a directory; expected a YAML file");
    CHECK(MessageOf("") == ": cannot be opened: No such file or directory");
  }

  TEST_CASE("a file of 100 MB is refused without reading it") {
    const ada::testing::TempFolder folder;
    const std::string file = folder.Write("long.yaml", "seed: 1\n");
    fs::resize_file(file, 100'000'000);
    CHECK(
        MessageOf(file) ==
        file +
            ": is larger than 1 MB (100000000 bytes); expected a configuration of a few kilobytes");
    // A file without end is read no further than that either.
    CHECK(MessageOf("/dev/zero") ==
          "/dev/zero: is larger than 1 MB; expected a configuration of a few kilobytes");
  }

  TEST_CASE("binary files") {
    struct Row {
      std::string content, message;
    };
    const std::vector<Row> rows = {
        {"seed: 1\n" + std::string(2, '\0'), "byte 8 is a control character"},
        {"\x7f"
         "ELF",
         "byte 0 is a control character"},
        {"name: caf\xe9\n", "byte 9 is not valid UTF-8"},
        {"\xff\xfes", "byte 0 is not valid UTF-8"},
        {"name: \xc0\xaf", "byte 6 is not valid UTF-8"},
        {"name: \xed\xa0\x80", "byte 6 is not valid UTF-8"},
        {"name: \xf4\x90\x80\x80", "byte 6 is not valid UTF-8"},
        {"name: \xe2\x82", "byte 6 is not valid UTF-8"},
    };
    for (const Row& row : rows) {
      CHECK(MessageOfText(row.content) ==
            "text.yaml: is not a text file: " + row.message + "; expected YAML");
    }
  }

  TEST_CASE("deep nesting is refused at level 65, however it is written") {
    const std::string message = ": nested deeper than 64 levels";
    for (const std::string part : {"[", "{a: ", "- ", "? ", "[\n", "{a: [", "- - ? "}) {
      CAPTURE(part);
      CHECK(MessageOfText(Repeated(part, 100'000)).find(message) != std::string::npos);
    }
    CHECK(MessageOfText(Repeated("[", 65) + Repeated("]", 65)) == "text.yaml:1:65" + message);
    CHECK(MessageOfText(Repeated("- ", 65) + "x") == "text.yaml:1:129" + message);
    std::string blocks;
    for (int i = 0; i < 1000; ++i) blocks += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
    CHECK(MessageOfText(blocks) == "text.yaml:65:65" + message);
    // 64 levels are read: the complaint is about what stands there.
    const std::string allowed = "name: " + Repeated("[", 63) + Repeated("]", 63);
    CHECK(MessageOfText(allowed).find("name: expected text; got a list") != std::string::npos);
    // Aliases may not stack levels either.
    std::string stacked = "a0: &a0 [x]\n";
    for (int i = 1; i < 100; ++i) {
      const std::string n = std::to_string(i);
      stacked += "a" + n + ": &a" + n + " [*a" + std::to_string(i - 1) + "]\n";
    }
    CHECK(MessageOfText(stacked).find(message) != std::string::npos);
  }

  TEST_CASE("large inputs that are slow to refuse for careless readers") {
    const std::string long_word(900'000, 'a');
    CHECK(MessageOfText("name: " + long_word + "\n" + "seed: x\n").find(":2:7: seed: ") !=
          std::string::npos);
    CHECK(MessageOfText(Repeated("'', ", 200'000)) == "text.yaml:1:3: not valid YAML here");
    CHECK(MessageOfText("name: [" + Repeated("[x], ", 190'000) + "]\n").find("got a list") !=
          std::string::npos);
    CHECK(MessageOfText("a: &a [x]\nb: [" + Repeated("*a, ", 6'000) + "]\n") ==
          "text.yaml:2:20005: aliases expand to more than 10000 values");
    CHECK(MessageOfText("a: &a " + std::string(1000, 'a') + "\nb: [" + Repeated("*a, ", 1'100) +
                        "]\n") == "text.yaml:2:4197: aliases expand to more than 1 MB of text");
    CHECK(MessageOfText(std::string(201, 'k') + ": 1\n") ==
          "text.yaml:1:1: a key of 201 bytes; expected a name of at most 200");
    std::string names = "optimizer: {kind: sgd, no_decay: [";
    for (int i = 0; i < 100'000; ++i) names += std::to_string(i) + "a, ";
    CHECK(MessageOfText(names + "0a]}\n").find("'0a' stands here twice") != std::string::npos);
  }

  TEST_CASE("a thousand problems are shown as a hundred") {
    std::string text;
    for (int i = 0; i < 1000; ++i) text += "k" + std::to_string(i) + ": 1\n";
    const std::string message = MessageOfText(text);
    CHECK(message.find("text.yaml: and 902 more problems") != std::string::npos);
    CHECK(message.find("text.yaml:1:1: k0: unknown key") != std::string::npos);
    // Reading ends early: the same key many times in a map would be as many paths in memory.
    CHECK(MessageOfText("a: {" + Repeated("b: 1, ", 100'000) + "}\n")
              .find("text.yaml: and at least 1900 more problems") != std::string::npos);
  }
}

// The table of keys is complete, and configs/README.md says what it says.
#include "config/schema.h"

#include <doctest/doctest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "config/load.h"

namespace ada::config {

namespace {

std::string ReadmeText() {
  std::ifstream file("configs/README.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string InCell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) {
    text.insert(at, "\\");
  }
  return text;
}

// The examples of the README: every ```yaml block.
std::vector<std::string> Examples(const std::string& readme) {
  const std::string fence = "```yaml\n";
  std::vector<std::string> examples;
  for (std::size_t at = 0; (at = readme.find(fence, at)) != std::string::npos;) {
    at += fence.size();
    const std::size_t end = readme.find("```", at);
    examples.push_back(readme.substr(at, end - at));
    at = end;
  }
  return examples;
}

// "; preset: deepspeed, megatron".
std::string Refined(const KeyInfo& key) {
  std::string names;
  for (const std::string& name : key.refined_for) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "" : "; " + key.refiner + ": " + names;
}

// The README's row of a key: | `key` | type | default | range | meaning |
std::string Row(const KeyInfo& key) {
  std::string meaning = key.meaning;
  if (!key.only_for.empty()) {
    std::string choices;
    for (const std::string& choice : key.only_for)
      choices += (choices.empty() ? "" : ", ") + choice;
    if (choices != "layers") meaning += " (" + key.chooser + ": " + choices + Refined(key) + ")";
  }
  const std::string shown = key.default_text == "{}" ? "" : key.default_text;
  return "| `" + key.path + "` | " + key.type + " | " + InCell(shown) + " | " + InCell(key.range) +
         " | " + InCell(meaning) + " |";
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("every key has a name of its own, a type and a meaning") {
    std::set<std::string> paths;
    for (const KeyInfo& key : AllKeys()) {
      CAPTURE(key.path);
      CHECK(paths.insert(key.path).second);
      CHECK_FALSE(key.type.empty());
      CHECK_FALSE(key.meaning.empty());
      CHECK_FALSE(key.default_text.empty());
    }
    CHECK(paths.size() > 110);
    for (const char* path : {"name", "data.limit.train", "model.layers[].kernel",
                             "scaling.layers[].match", "schedule.warmup.lr", "checkpoint.best"}) {
      CHECK(paths.contains(path));
    }
  }

  TEST_CASE("configs/README.md has the row of every key") {
    const std::string readme = ReadmeText();
    for (const KeyInfo& key : AllKeys()) {
      const std::string row = Row(key);
      CAPTURE(row);
      CHECK(readme.find(row) != std::string::npos);
    }
  }

  TEST_CASE("the examples of configs/README.md load") {
    const std::vector<std::string> examples = Examples(ReadmeText());
    CHECK(examples.size() >= 10);
    for (std::string example : examples) {
      CAPTURE(example);
      for (const std::string section :
           {"data: {dataset: synthetic}\n", "model: {zoo: lenet}\n", "optimizer: {lr: 0.1}\n"}) {
        const std::string key = section.substr(0, section.find(':') + 1);
        if (!example.starts_with(key) && example.find("\n" + key) == std::string::npos) {
          example += section;
        }
      }
      CHECK_NOTHROW(LoadText(example, "example.yaml", {}));
    }
  }
}

}  // namespace ada::config

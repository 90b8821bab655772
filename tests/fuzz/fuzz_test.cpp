// Each fuzz target over its seeds and over mutations of them that are the same in every run: what
// libFuzzer does for a minute or for hours (tools/fuzz.sh), in seconds and with any compiler.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/targets.h"
#include "telemetry/temp_folder.h"

namespace ada::fuzz {
namespace {

std::string Bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Some bytes flipped, a piece taken out, doubled or brought in from `other`, or the end cut off.
std::string Mutated(std::string text, const std::string& other, std::mt19937& random) {
  const auto below = [&](std::size_t end) { return end == 0 ? 0 : random() % end; };
  for (std::size_t i = 0, edits = 1 + below(4); i < edits; ++i) {
    const std::size_t at = below(text.size() + 1), length = below(40);
    switch (below(5)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.insert(at, other.substr(below(other.size() + 1), length));
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

TEST_SUITE("cpu") {
  TEST_CASE("every fuzz target takes its seeds and what a mutation makes of them") {
    const ada::testing::TempFolder folder;
    const std::string make_seeds = std::string("python3 ") + ADA_SOURCE_DIR +
                                   "/tests/fuzz/seeds.py " + ADA_BINARY + " " + folder.path();
    REQUIRE(std::system(make_seeds.c_str()) == 0);
    std::mt19937 random(16);
    for (const Target& target : kTargets) {
      CAPTURE(target.name);
      std::vector<std::string> seeds;
      for (const auto& entry :
           std::filesystem::directory_iterator(folder / std::string(target.name))) {
        seeds.push_back(Bytes(entry.path()));
      }
      REQUIRE(seeds.size() >= 3);
      for (const std::string& seed : seeds) {
        CHECK_NOTHROW(target.run(seed));
        for (int i = 0; i < 10; ++i)
          CHECK_NOTHROW(target.run(Mutated(seed, seeds[random() % seeds.size()], random)));
      }
    }
  }
}

}  // namespace
}  // namespace ada::fuzz

// Each fuzz target over its seeds and over mutations of them that are the same in every run: what
// libFuzzer does for a minute or for hours (tools/fuzz.sh), in seconds and with any compiler.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/targets.h"
#include "study/mutation.h"
#include "temp_folder.h"

namespace ada::fuzz {
namespace {

std::string Bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_SUITE("cpu") {
  TEST_CASE("every fuzz target takes its seeds and what a mutation makes of them") {
    const ada::testing::TempFolder folder;
    const std::string make_seeds = std::string("python3 ") + ADA_SOURCE_DIR +
                                   "/tests/fuzz/seeds.py " + ADA_BINARY + " " + folder.path();
    REQUIRE(std::system(make_seeds.c_str()) == 0);
    ada::testing::Mutator random(16);
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
        for (int i = 0; i < 10; ++i) CHECK_NOTHROW(target.run(random.Mutated(seed)));
      }
    }
  }
}

}  // namespace
}  // namespace ada::fuzz

// XXH3-128 against published values; pieces, whole and file agree.
#include "io/hash.h"

#include <doctest/doctest.h>

#include "error.h"
#include "io/small_files.h"
#include "temp_folder.h"

namespace ada {

TEST_SUITE("cpu") {
  TEST_CASE("hashes") {
    const auto hash = [](std::string_view text) {
      return HashBytes(std::as_bytes(std::span(text)));
    };
    // XXH3-128 with seed 0, as `printf abc | xxhsum -H2` prints it.
    CHECK(hash("") == "99aa06d3014798d86001c324468d497f");
    CHECK(hash("abc") == "06b05ab6733a618578af5f94892f3950");

    std::string bytes;
    for (int i = 0; i < 1'000'003; ++i) bytes += static_cast<char>(i * 2654435761u >> 13);
    const std::string want = hash(bytes);
    for (const std::size_t piece : {1u, 7u, 240u, 241u, 65536u}) {
      Hasher hasher;
      for (std::size_t at = 0; at < bytes.size(); at += piece) {
        hasher.Update(std::as_bytes(std::span(std::string_view(bytes).substr(at, piece))));
      }
      CHECK(hasher.Hex() == want);
      CHECK(hasher.Hex() == want);  // asking changes nothing
    }
    const testing::TempFolder scratch;
    test::Put(scratch / "file", bytes);
    CHECK(HashFile(scratch / "file") == want);
    bytes[500'000] = static_cast<char>(bytes[500'000] ^ 1);
    CHECK(hash(bytes) != want);
  }

  TEST_CASE("a file that cannot be read") {
    const testing::TempFolder scratch;
    CHECK_THROWS_WITH_AS(
        HashFile(scratch / "none"),
        (scratch / "none" + ": cannot be opened: No such file or directory").c_str(), DataError);
    CHECK_THROWS_WITH_AS(
        HashFile(scratch.path()),
        (scratch.path() + ": cannot be opened: it is a folder, not a regular file").c_str(),
        DataError);
  }
}

}  // namespace ada

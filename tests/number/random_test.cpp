// Philox against the known answers of Random123, and the draws made of it.
#include "number/random.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "error.h"

namespace ada {

TEST_SUITE("cpu") {
  // Random123 (github.com/DEShawResearch/random123), tests/kat_vectors, philox4x32 10.
  TEST_CASE("known answers") {
    struct {
      std::uint64_t key, high, low;
      std::array<std::uint32_t, 4> want;
    } const table[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {0xffffffffffffffff,
         0xffffffffffffffff,
         0xffffffffffffffff,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x0370734413198a2e,
         0x85a308d3243f6a88,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (const auto& row : table) CHECK(Philox(row.key, row.high, row.low) == row.want);
  }

  TEST_CASE("a stream is the blocks in order, and can be entered anywhere") {
    RandomStream stream(7, 9);
    std::vector<std::uint32_t> words;
    for (int i = 0; i < 23; ++i) words.push_back(stream.NextU32());
    CHECK(stream.position() == 23);
    for (std::size_t i = 0; i < words.size(); ++i) CHECK(words[i] == Philox(7, 9, i / 4)[i % 4]);
    for (std::size_t start = 0; start < words.size(); ++start) {
      RandomStream entered(7, 9);
      entered.Seek(start);
      for (std::size_t i = start; i < words.size(); ++i) CHECK(entered.NextU32() == words[i]);
    }
    CHECK(RandomStream(7, 10).NextU32() != words[0]);
    CHECK(RandomStream(8, 9).NextU32() != words[0]);
  }

  TEST_CASE("uniform floats") {
    CHECK(UniformFloat(0) == 0);
    CHECK(UniformFloat(0xFF) == 0);
    CHECK(UniformFloat(0x80000000u) == 0.5f);
    CHECK(UniformFloat(0xFFFFFFFFu) == 1 - 0x1p-24f);
    RandomStream stream(1, StreamId("uniform"));
    double sum = 0, squares = 0;
    constexpr int kDraws = 1'000'000;
    for (int i = 0; i < kDraws; ++i) {
      const double u = stream.Uniform();
      sum += u;
      squares += u * u;
    }
    CHECK(sum / kDraws == doctest::Approx(0.5).epsilon(0.003));  // 5 standard errors
    CHECK(squares / kDraws == doctest::Approx(1.0 / 3).epsilon(0.005));
  }

  TEST_CASE("Below is unbiased and stays below") {
    for (const std::uint32_t n : {1u, 2u, 3u, 10u, 1000u}) {
      RandomStream stream(2, n);
      std::vector<int> counts(n);
      const int draws = 1000 * static_cast<int>(n);
      for (int i = 0; i < draws; ++i) {
        const std::uint32_t value = stream.Below(n);
        REQUIRE(value < n);
        ++counts[value];
      }
      double chi_squared = 0;
      for (const int count : counts) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000;
      CHECK(chi_squared <= n - 1 + 5 * std::sqrt(2.0 * n));
    }
    // With n = 3 * 2^30 a plain multiplication would give every third value twice as often.
    RandomStream stream(2, 0);
    int thirds = 0;
    for (int i = 0; i < 300'000; ++i) thirds += stream.Below(3u << 30) % 3 == 0;
    CHECK(thirds == doctest::Approx(100'000).epsilon(0.015));
    CHECK_THROWS_AS(stream.Below(0), InternalError);
  }

  TEST_CASE("normal draws") {
    RandomStream stream(5, StreamId("normal"));
    constexpr int kDraws = 400'000;
    double moments[5] = {};
    for (int i = 0; i < kDraws; ++i) {
      double power = 1;
      const double x = stream.Normal();
      REQUIRE(std::isfinite(x));
      for (double& moment : moments) {
        moment += power / kDraws;
        power *= x;
      }
    }
    CHECK(stream.position() == 4u * kDraws);
    CHECK(std::fabs(moments[1]) < 0.008);
    CHECK(moments[2] == doctest::Approx(1).epsilon(0.012));
    CHECK(std::fabs(moments[3]) < 0.031);
    CHECK(moments[4] == doctest::Approx(3).epsilon(0.03));
  }

  TEST_CASE("stream names: 64-bit FNV-1a") {
    static_assert(StreamId("") == 0xcbf29ce484222325u);
    CHECK(StreamId("a") == 0xaf63dc4c8601ec8cu);
    CHECK(StreamId("foobar") == 0x85944171f73967e8u);
    CHECK(StreamId("\xff") == 0xaf64724c8602eb6eu);  // bytes, not signed
  }
}

}  // namespace ada

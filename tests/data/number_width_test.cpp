// The width of numbers without a header, told by streams of known width: no text of uint16 is taken
// for a wider one, whatever its vocabulary is.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "data/tokens/token_files.h"

namespace ada::data {
namespace {

// Tokens whose frequencies fall as 1 / rank, as those of a language do; `mixed`: the numbers of
// frequent ones are any, else the smallest.
std::vector<std::int64_t> ZipfTokens(int vocabulary, int count, unsigned seed, bool mixed) {
  std::mt19937 random(seed);
  std::vector<double> weights(static_cast<std::size_t>(vocabulary));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 1.0 / static_cast<double>(i + 1);
  std::discrete_distribution<int> draw(weights.begin(), weights.end());
  std::vector<std::int64_t> numbers(weights.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  if (mixed) std::shuffle(numbers.begin(), numbers.end(), random);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
  for (std::int64_t& token : tokens) token = numbers[static_cast<std::size_t>(draw(random))];
  return tokens;
}

template <class T>
NumberWidth WidthAs(const std::vector<std::int64_t>& tokens) {
  std::vector<T> numbers(tokens.begin(), tokens.end());
  return WidthOfNumbers(std::as_bytes(std::span(numbers)));
}

template <class T>
std::string OrderOf(const std::vector<std::int64_t>& tokens, bool exchanged = false) {
  std::vector<T> numbers(tokens.begin(), tokens.end());
  const auto bytes = std::as_writable_bytes(std::span(numbers));
  for (std::size_t i = 0; exchanged && i < bytes.size(); i += sizeof(T))
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + sizeof(T)));
  return OrderFault(bytes);
}

TEST_SUITE("cpu") {
  TEST_CASE("width: no text of uint16 looks wider, with few tokens of a small vocabulary or many") {
    for (const int vocabulary : {2, 3, 4, 5, 15, 16, 17, 18, 24, 64, 128, 256, 300, 5000, 50257})
      for (const int count : {16, 33, 64, 257, 1000, 4000})
        for (unsigned seed = 0; seed < (vocabulary > 1000 ? 6 : 60); ++seed) {
          CAPTURE(vocabulary);
          CAPTURE(count);
          CAPTURE(seed);
          const auto tokens = ZipfTokens(vocabulary, count, seed, seed % 2 == 1);
          REQUIRE(WidthAs<std::uint16_t>(tokens).bytes == 2);
          REQUIRE(OrderOf<std::uint16_t>(tokens).empty());
        }
    // Few tokens that are not the frequent one, wherever they stand.
    for (unsigned seed = 0; seed < 300; ++seed) {
      std::mt19937 random(seed);
      std::vector<std::int64_t> tokens(2000);
      for (unsigned i = 0; i < seed % 30; ++i)
        tokens[random() % tokens.size()] = static_cast<std::int64_t>(random() % 50257);
      REQUIRE(WidthAs<std::uint16_t>(tokens).bytes == 2);
    }
    CHECK(WidthAs<std::uint16_t>(std::vector<std::int64_t>(5000, 65535)).bytes == 2);
    CHECK(WidthAs<std::uint16_t>(std::vector<std::int64_t>(5000, 7)).bytes == 2);
    CHECK(WidthAs<std::uint16_t>({}).bytes == 2);
  }

  TEST_CASE("width: numbers of 32 bits, above 65,535 too, and with some that are negative") {
    for (const int vocabulary : {4, 256, 50257, 65536, 70000, 128256, 151936, 256000, 900000})
      for (const bool mixed : {false, true}) {
        CAPTURE(vocabulary);
        const auto tokens = ZipfTokens(vocabulary, 2000, 5, mixed);
        const std::int64_t largest = *std::max_element(tokens.begin(), tokens.end());
        const NumberWidth width = WidthAs<std::uint32_t>(tokens);
        CHECK(width.bytes == 4);
        CHECK(width.high <= largest >> 16);
        auto padded = tokens;
        for (std::size_t i = 0; i < padded.size(); i += 7) padded[i] = -100;
        for (std::size_t i = 1500; i < padded.size(); ++i) padded[i] = -1;
        CHECK(WidthAs<std::int32_t>(padded).bytes == 4);
        // After some hundred bytes that are no tokens.
        std::vector<std::uint32_t> numbers(tokens.begin(), tokens.end());
        for (std::size_t i = 0; i < 8; ++i)
          numbers[i] = 0x7E57'1234u + static_cast<std::uint32_t>(i);
        CHECK(WidthOfNumbers(std::as_bytes(std::span(numbers))).bytes == 4);
      }
  }

  TEST_CASE("order: floats, numbers in the other order of bytes, and any text of uint16") {
    for (const int vocabulary : {5000, 50257}) {
      CAPTURE(vocabulary);
      const auto tokens = ZipfTokens(vocabulary, 5000, 7, true);
      const auto differs = [](const std::string& told) {
        return told.starts_with("what stands at even and at odd places differs");
      };
      CHECK(differs(OrderOf<float>(tokens)));
      CHECK(differs(OrderOf<double>(tokens)));
      CHECK(differs(OrderOf<std::uint32_t>(tokens, true)));
      CHECK(differs(OrderOf<std::int64_t>(tokens, true)));
      CHECK(OrderOf<std::uint16_t>(tokens, true) == "looks big-endian");
      CHECK(OrderOf<std::uint16_t>(tokens).empty());
    }
    CHECK(OrderOf<std::uint16_t>(ZipfTokens(200, 5000, 7, true), true) == "looks big-endian");
    std::vector<std::int64_t> any(20000);
    std::mt19937 random(1);
    for (std::int64_t& token : any) token = static_cast<std::int64_t>(random() % 65536);
    CHECK(OrderOf<std::uint16_t>(any).empty());
    std::iota(any.begin(), any.end(), 0);
    CHECK(OrderOf<std::uint16_t>(any).empty());
  }

  TEST_CASE("letters in UTF-16 are a text; tokens behind its mark are none") {
    const auto looks = [](std::vector<std::uint16_t> numbers, std::uint16_t mark) {
      numbers.insert(numbers.begin(), mark);
      return LooksLikeText(std::as_bytes(std::span(numbers)));
    };
    std::vector<std::uint16_t> letters(100), exchanged, tokens;
    for (std::size_t i = 0; i < letters.size(); ++i)
      letters[i] = static_cast<std::uint16_t>((i % 3 == 0 ? 0x430 : 0x60) + i % 20);
    for (const std::uint16_t letter : letters)
      exchanged.push_back(static_cast<std::uint16_t>(letter << 8 | letter >> 8));
    for (const std::int64_t token : ZipfTokens(65500, 100, 3, true))
      tokens.push_back(static_cast<std::uint16_t>(token));
    CHECK(looks(letters, 0xFEFF));
    CHECK(looks(exchanged, 0xFFFE));
    CHECK_FALSE(looks(tokens, 0xFEFF));
    CHECK_FALSE(looks(letters, 0x0060));
  }

  TEST_CASE("width: numbers of 64 bits") {
    for (const int vocabulary : {4, 256, 50257, 128256, 900000}) {
      CAPTURE(vocabulary);
      auto tokens = ZipfTokens(vocabulary, 1500, 5, true);
      CHECK(WidthAs<std::int64_t>(tokens).bytes == 8);
      for (std::size_t i = 0; i < tokens.size(); i += 5) tokens[i] = -100;
      CHECK(WidthAs<std::int64_t>(tokens).bytes == 8);
    }
  }

  TEST_CASE("width: what stands after the beginning counts too") {
    std::vector<std::uint32_t> numbers(1 << 20);  // nothing but zeros at first
    const auto tokens = ZipfTokens(100000, 4000, 3, true);
    std::copy(tokens.begin(), tokens.end(), numbers.end() - 4000);
    CHECK(WidthOfNumbers(std::as_bytes(std::span(numbers))).bytes == 4);
  }

  TEST_CASE("width: said with what would be read") {
    CHECK(WidthText({4, 0}, 2, false) ==
          "as uint16 every second token would be 0: it looks like uint32");
    CHECK(WidthText({4, 1}, 2, false) ==
          "as uint16 every second token would be 0 to 1: it looks like uint32");
    CHECK(WidthText({8, 0}, 2, false) ==
          "as uint16 three of four tokens would be 0, as uint32 every second one: it looks like "
          "int64");
    CHECK(WidthText({8, 2}, 2, false) ==
          "as uint16 every second token would be 0 to 2, as uint32 every second one would be 0: it "
          "looks like int64");
    CHECK(WidthText({8, 0}, 4, true) ==
          "as uint32 (data.element) every second token is 0: it looks like int64");
    CHECK(WidthText({4, 1}, 2, true) ==
          "as uint16 (data.element) every second token is 0 to 1: it looks like uint32");
  }
}

}  // namespace
}  // namespace ada::data

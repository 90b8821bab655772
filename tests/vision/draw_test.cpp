// What is drawn on pictures.
#include "vision/draw.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace ada::vision {
namespace {

// A gray picture with room before and after that nobody may write to.
struct Canvas {
  static constexpr std::size_t kGuard = 64;
  Canvas(int height, int width)
      : bytes(2 * kGuard + static_cast<std::size_t>(height * width) * 3, 77),
        view{bytes.data() + kGuard, height, width} {}
  Rgb At(int y, int x) const {
    const std::uint8_t* p = view.pixels + 3 * (y * view.width + x);
    return {p[0], p[1], p[2]};
  }
  bool GuardsAreWhole() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (bytes[i] != 77 || bytes[bytes.size() - 1 - i] != 77) return false;
    }
    return true;
  }
  // Rows of '#' where the picture has `color`.
  std::string Where(Rgb color) const {
    std::string rows;
    for (int y = 0; y < view.height; ++y) {
      for (int x = 0; x < view.width; ++x) rows += At(y, x) == color ? '#' : '.';
      rows += '\n';
    }
    return rows;
  }
  std::vector<std::uint8_t> bytes;
  RgbView view;
};

constexpr Rgb kRed = {255, 0, 0}, kWhite = {255, 255, 255}, kBlack = {0, 0, 0};

TEST_SUITE("cpu") {
  TEST_CASE("a box is an outline within its corners") {
    Canvas canvas(5, 8);
    DrawBox(canvas.view, {1, 2, 5, 7}, kRed);
    CHECK(canvas.Where(kRed) ==
          "........\n"
          "..#####.\n"
          "..#...#.\n"
          "..#...#.\n"
          "..#####.\n");
    DrawBox(canvas.view, {5, 7, 1, 2}, kWhite, 2);  // inverted: the same box
    CHECK(canvas.Where(kWhite) ==
          "........\n"
          "..#####.\n"
          "..#####.\n"
          "..#####.\n"
          "..#####.\n");
  }

  TEST_CASE("what lies outside is not drawn") {
    const float nan = std::numeric_limits<float>::quiet_NaN(),
                infinite = std::numeric_limits<float>::infinity();
    Canvas canvas(6, 6);
    DrawBox(canvas.view, {-3, -3, 3, 3}, kRed);
    CHECK(canvas.Where(kRed) == "..#...\n..#...\n###...\n......\n......\n......\n");
    for (const Box& box : {Box{-infinite, -infinite, infinite, infinite}, Box{nan, 0, 3, 3},
                           Box{1e30F, 2, 2e30F, 9}, Box{-9, -9, -5, -5}, Box{2, 2, 2, 2}}) {
      DrawBox(canvas.view, box, kWhite, 3);
      DrawLabeledBox(canvas.view, box, 3, "a name that is longer than the picture");
      CHECK(canvas.GuardsAreWhole());
    }
    DrawText(canvas.view, -4, -100, "outside", kRed, kWhite);
    DrawText(canvas.view, 400, 3, "outside", kRed, kWhite, 3);
    CHECK(canvas.GuardsAreWhole());
  }

  TEST_CASE("letters are those of the font, on their ground") {
    Canvas canvas(TextHeight(), TextWidth("T1"));
    DrawText(canvas.view, 0, 0, "T1", kBlack, kWhite);
    CHECK(canvas.Where(kBlack) ==
          ".............\n"
          ".#####...#...\n"
          "...#....##...\n"
          "...#.....#...\n"
          "...#.....#...\n"
          "...#.....#...\n"
          "...#.....#...\n"
          "...#....###..\n"
          ".............\n");
    CHECK(canvas.At(0, 0) == kWhite);
    CHECK(TextWidth("T1", 2) == 2 * TextWidth("T1"));
    CHECK(TextWidth("\xC3\xA9") == TextWidth("e"));  // one code point
    Canvas unknown(TextHeight(), TextWidth("\xC3\xA9"));
    DrawText(unknown.view, 0, 0, "\xC3\xA9", kBlack, kWhite);
    CHECK(unknown.At(1, 1) == kBlack);
    CHECK(unknown.At(4, 3) == kWhite);
  }

  TEST_CASE("every printable character has a shape of its own") {
    std::set<std::string> shapes;
    for (char c = ' '; c <= '~'; ++c) {
      Canvas canvas(TextHeight(), TextWidth("x"));
      DrawText(canvas.view, 0, 0, std::string(1, c), kBlack, kWhite);
      shapes.insert(canvas.Where(kBlack));
    }
    CHECK(shapes.size() == 95);
  }

  TEST_CASE("a caption stands where the picture shows it") {
    Canvas canvas(60, 90);
    DrawLabeledBox(canvas.view, {20, 10, 50, 60}, 0, "cat 0.90");
    const Rgb color = LabelColor(0);
    CHECK(canvas.At(20, 10) == color);
    CHECK(canvas.At(20 - TextHeight(), 10) == color);
    CHECK(canvas.At(20 - TextHeight() - 1, 10) == Rgb{77, 77, 77});
    Canvas top(60, 90);
    DrawLabeledBox(top.view, {2, 70, 50, 89}, 0, "cat 0.90");
    CHECK(top.At(2, 90 - TextWidth("cat 0.90")) == color);
    CHECK(top.GuardsAreWhole());
  }

  TEST_CASE("colours of labels differ, and none is black") {
    std::set<std::tuple<int, int, int>> colors;
    for (int label = 0; label < 256; ++label) {
      const Rgb c = LabelColor(label);
      colors.insert({c.r, c.g, c.b});
      CHECK(c.r + c.g + c.b > 100);
      const Rgb next = LabelColor(label + 1);
      CHECK(std::abs(c.r - next.r) + std::abs(c.g - next.g) + std::abs(c.b - next.b) > 100);
    }
    CHECK(colors.size() > 250);
    CHECK(TextColor(kWhite) == kBlack);
    CHECK(TextColor(kBlack) == kWhite);
  }

  TEST_CASE("labels are mixed into the picture, ignored pixels stay") {
    Canvas canvas(1, 3);
    DrawLabels(canvas.view, std::vector<std::int32_t>{0, -1, 5}, 1);
    CHECK(canvas.At(0, 0) == LabelColor(0));
    CHECK(canvas.At(0, 1) == Rgb{77, 77, 77});
    CHECK(canvas.At(0, 2) == LabelColor(5));
    DrawLabels(canvas.view, std::vector<std::int32_t>{0, 5, 5}, 0);
    CHECK(canvas.At(0, 1) == Rgb{77, 77, 77});
    CHECK(canvas.GuardsAreWhole());
  }
}

}  // namespace
}  // namespace ada::vision

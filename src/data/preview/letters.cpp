#include "data/preview/letters.h"

#include <cctype>

namespace ada::data {
namespace {

struct Letter {
  char letter;
  std::string_view rows;  // five, with a bar between two
};

constexpr std::array kLetters = {
    Letter{'A', ".#.|#.#|###|#.#|#.#"},
    Letter{'B', "##.|#.#|##.|#.#|##."},
    Letter{'C', ".##|#..|#..|#..|.##"},
    Letter{'D', "##.|#.#|#.#|#.#|##."},
    Letter{'E', "###|#..|##.|#..|###"},
    Letter{'F', "###|#..|##.|#..|#.."},
    Letter{'G', ".###|#...|#.##|#..#|.###"},
    Letter{'H', "#.#|#.#|###|#.#|#.#"},
    Letter{'I', "#|#|#|#|#"},
    Letter{'J', "..#|..#|..#|#.#|.#."},
    Letter{'K', "#.#|#.#|##.|#.#|#.#"},
    Letter{'L', "#..|#..|#..|#..|###"},
    Letter{'M', "#...#|##.##|#.#.#|#...#|#...#"},
    Letter{'N', "#..#|##.#|#.##|#..#|#..#"},
    Letter{'O', ".##.|#..#|#..#|#..#|.##."},
    Letter{'P', "##.|#.#|##.|#..|#.."},
    Letter{'Q', ".##.|#..#|#..#|#.##|.###"},
    Letter{'R', "##.|#.#|##.|#.#|#.#"},
    Letter{'S', ".##|#..|.#.|..#|##."},
    Letter{'T', "###|.#.|.#.|.#.|.#."},
    Letter{'U', "#.#|#.#|#.#|#.#|###"},
    Letter{'V', "#.#|#.#|#.#|#.#|.#."},
    Letter{'W', "#...#|#...#|#.#.#|##.##|#...#"},
    Letter{'X', "#.#|#.#|.#.|#.#|#.#"},
    Letter{'Y', "#.#|#.#|.#.|.#.|.#."},
    Letter{'Z', "###|..#|.#.|#..|###"},
    Letter{'0', "###|#.#|#.#|#.#|###"},
    Letter{'1', ".#|##|.#|.#|.#"},
    Letter{'2', "##.|..#|.#.|#..|###"},
    Letter{'3', "##.|..#|.#.|..#|##."},
    Letter{'4', "#.#|#.#|###|..#|..#"},
    Letter{'5', "###|#..|##.|..#|##."},
    Letter{'6', ".##|#..|###|#.#|###"},
    Letter{'7', "###|..#|.#.|.#.|.#."},
    Letter{'8', "###|#.#|###|#.#|###"},
    Letter{'9', "###|#.#|###|..#|##."},
    Letter{'-', "..|..|##|..|.."},
    Letter{'_', "...|...|...|...|###"},
    Letter{'.', ".|.|.|.|#"},
    Letter{',', "..|..|..|.#|#."},
    Letter{':', ".|#|.|#|."},
    Letter{'/', "..#|..#|.#.|#..|#.."},
    Letter{'(', ".#|#.|#.|#.|.#"},
    Letter{')', "#.|.#|.#|.#|#."},
    Letter{'+', "...|.#.|###|.#.|..."},
    Letter{'\'', "#|#|.|.|."},
    Letter{'&', ".#..|#.#.|.#..|#.##|.##."},
    Letter{'=', "...|###|...|###|..."},
    Letter{'#', "#.#|###|#.#|###|#.#"},
    Letter{' ', "..|..|..|..|.."},
};
constexpr std::string_view kUnknown = "###|#.#|#.#|#.#|###";

std::string_view RowsOf(char c) {
  const char upper = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const Letter& letter : kLetters)
    if (letter.letter == upper) return letter.rows;
  return kUnknown;
}

// Calls `draw` with each letter's rows and its first column, in pixels of letters; returns the end.
template <class Draw>
int EachLetter(std::string_view text, Draw draw) {
  int column = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xc0) == 0x80) continue;  // inside a character of UTF-8
    const std::string_view rows = RowsOf(c);
    draw(rows, column);
    column += static_cast<int>(rows.find('|')) + 1;
  }
  return column > 0 ? column - 1 : 0;
}

}  // namespace

int TextWidth(std::string_view text, int scale) {
  return scale * EachLetter(text, [](std::string_view, int) {});
}

void DrawText(std::string_view text, int scale, int top, int left,
              const std::array<std::uint8_t, 3>& colour, Picture* picture) {
  const auto dot = [&](int row, int column) {
    for (int y = top + row * scale; y < top + (row + 1) * scale; ++y)
      for (int x = left + column * scale; x < left + (column + 1) * scale; ++x) {
        if (y < 0 || x < 0 || y >= picture->height || x >= picture->width) continue;
        const std::int64_t at = (std::int64_t{y} * picture->width + x) * picture->channels;
        for (int c = 0; c < picture->channels; ++c)
          picture->pixels[static_cast<std::size_t>(at + c)] = colour[static_cast<std::size_t>(c)];
      }
  };
  EachLetter(text, [&](std::string_view rows, int first) {
    const auto width = static_cast<int>(rows.find('|'));
    for (int row = 0; row < kLetterRows; ++row)
      for (int column = 0; column < width; ++column)
        if (rows[static_cast<std::size_t>(row * (width + 1) + column)] == '#')
          dot(row, first + column);
  });
}

}  // namespace ada::data

// Each stream is asked for itself, at each call: one may be a terminal and another a file.
#include "core/color.h"

#include <unistd.h>

#include <cstdlib>

namespace ada {
namespace {

ColorChoice chosen = ColorChoice::kAuto;

// The parameter of SGR (ECMA-48, 8.3.117).
const char* CodeOf(Color color) {
  switch (color) {
    case Color::kBold:
      return "1";
    case Color::kDim:
      return "2";
    case Color::kRed:
      return "31";
    case Color::kGreen:
      return "32";
    case Color::kYellow:
      return "33";
    case Color::kPlain:
      break;
  }
  return "0";
}

}  // namespace

void SetColorChoice(ColorChoice choice) { chosen = choice; }

bool CanMoveCursor(int descriptor) {
  const char* term = std::getenv("TERM");
  return isatty(descriptor) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

bool HasColor(int descriptor) {
  if (chosen != ColorChoice::kAuto) return chosen == ColorChoice::kAlways;
  const char* refused = std::getenv("NO_COLOR");
  return (refused == nullptr || *refused == '\0') && CanMoveCursor(descriptor);
}

std::string Colored(bool on, Color color, std::string_view text) {
  if (!on || color == Color::kPlain || text.empty()) return std::string(text);
  return std::string("\033[") + CodeOf(color) + "m" + std::string(text) + "\033[0m";
}

}  // namespace ada

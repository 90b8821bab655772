// Shares in percent, and lists of formats whose maps hold commas.
#include "cli/shares.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <system_error>

#include "error.h"

namespace ada::cli {

double ShareOf(const std::string& option, const std::string& text) {
  const bool percent = text.ends_with('%');
  const std::string digits = text.substr(0, text.size() - (percent ? 1 : 0));
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || !std::isfinite(number) || number <= 0)
    throw ConfigError(option + " " + text +
                      ": expected a share above 0, for example 0.1% or 0.001");
  return percent ? number / 100 : number;
}

std::vector<std::string> WholeFormats(const std::vector<std::string>& pieces) {
  std::vector<std::string> formats;
  std::ptrdiff_t open = 0;
  for (const std::string& piece : pieces) {
    // A comma within braces was cut too: pieces are joined again until the braces are closed.
    if (open > 0)
      formats.back() += "," + piece;
    else
      formats.push_back(piece);
    open +=
        std::count(piece.begin(), piece.end(), '{') - std::count(piece.begin(), piece.end(), '}');
  }
  return formats;
}

}  // namespace ada::cli

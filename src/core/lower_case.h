// Letters in lower case, whatever the locale is: ASCII alone, all other bytes stay.
#pragma once
#include <string>
#include <string_view>

namespace ada {

inline char LowerCase(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
inline std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = LowerCase(c);
  return lower;
}

}  // namespace ada

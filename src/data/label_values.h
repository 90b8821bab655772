// What the values of label images mean, where they are not the numbers of the classes.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ada::data {

// The name of a class that says: pixels of this value are passed over.
inline constexpr char kIgnoredName[] = "ignored";

// This is the key data.label_values, as LabelFiles looks values up and the configuration writes it
// back.
struct LabelValues {
  // In the order given: a value of a gray or palette PNG (0 to 255), or a color 0xRRGGBB; and the
  // class, which several may have.
  std::vector<std::pair<std::uint32_t, std::string>> classes = {};
  bool by_color = false;

  bool any() const { return !classes.empty(); }
  friend bool operator==(const LabelValues&, const LabelValues&) = default;
};

// "#ff8000", or "255" of a value.
std::string ValueText(std::uint32_t value, bool is_color);

}  // namespace ada::data

// The problems of one configuration, collected and thrown together, sorted by place.
// Everything that reads a part of the tree gets a reference to the one Problems of the reading. A
// file with five mistakes is answered by five lines at once.
#pragma once
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/yaml/node.h"
#include "error.h"

namespace ada::config {

// A key that overrides the file's: "scaling.scale" and the YAML text of its value. `where` is its
// place in a file of such keys; default: it was given by --set.
struct Override : std::pair<std::string, std::string> {
  using std::pair<std::string, std::string>::pair;
  Location where = {};
};
// In the order given.
using Overrides = std::vector<Override>;

// Lives as long as one reading. Adding a problem does not stop the reading, up to two thousand
// of them: a reader leaves its field at the default and goes on, and later checks ask Clean before
// they trust fields.
class Problems {
 public:
  // `file` stands for source 0, `overrides` for the sources 1, 2, ... (the places of overrides).
  Problems(std::string file, std::vector<Location> overrides);

  // A file whose nodes have source kIncluded, and where it is named: messages begin with both.
  void Include(const Location& named_at, const std::string& file);
  Location Where(const YamlNode& node) const;
  // One line: the place of `at`, the key's path (may be empty), and what is wrong. Throws all of
  // them once there are two thousand, because a hostile file has more than memory holds.
  void Add(const YamlNode& at, const std::string& path, const std::string& message);
  // True when none of these keys has a problem: a check across keys then makes sense.
  // Paths are compared whole: a problem of "data.resize" does not make "data" unclean.
  bool Clean(std::initializer_list<std::string_view> paths) const;
  // Callers compare counts before and after a part to learn whether that part had problems.
  std::size_t count() const { return lines_.size(); }
  // Throws a ConfigError with all lines, the first hundred at most.
  // Sorted by source, line and column, each line once.
  void ThrowIfAny() const;

 private:
  struct Line {
    int source, line, column;
    std::string text;
  };
  std::string file_, included_;
  std::vector<Location> overrides_;
  std::vector<Line> lines_;
  std::set<std::string, std::less<>> paths_;
};

// "expected <what>; got 'abc'", where the value given is shown shortened.
std::string Expected(const std::string& what, const YamlNode& got);

}  // namespace ada::config

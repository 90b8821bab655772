// YAML text to a tree of nodes, safely: nesting, aliases and encoding are bounded. The only file
// that knows yaml-cpp (0.7 and 0.8 alike: only its parser's events are used).
#pragma once
#include <string>

#include "config/yaml/node.h"

namespace ada::config {

inline constexpr std::size_t kNestingLimit = 64;
inline constexpr std::size_t kAliasLimit = 10'000;  // nodes that aliases may add

// Why a text is no single YAML document, and where (from 1; line 0: the text as a whole).
struct ParseProblem {
  int line = 0, column = 0;
  std::string message;
};

// Parses one document; an empty one is a null node. `source` is noted in every node. Columns count
// characters. Duplicate keys are kept: RemoveDuplicates reports them. Throws ParseProblem.
YamlNode ParseYaml(const std::string& text, int source);

}  // namespace ada::config

// From a configuration file to its map of keys, before any key is looked at. Size, kind, encoding,
// nesting and aliases are bounded.
// The bounds keep a hostile or broken file from taking memory or the stack: a reader of nodes may
// walk the tree recursively and need not count.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/yaml/node.h"
#include "config/yaml/problems.h"

namespace ada::config {

// The text of `path`, at most 1 MB. Throws ConfigError: missing, unreadable, a directory, too large
// (without reading it whole).
std::string ReadTextFile(const std::string& path);

// Why `text` is no text that a configuration may hold (NUL, other control characters, invalid
// UTF-8), with the byte's place; empty when it is fine.
std::string TextProblem(std::string_view text);

inline constexpr std::size_t kNestingLimit = 64;
inline constexpr std::size_t kAliasLimit = 10'000;    // nodes that aliases may add
inline constexpr std::size_t kAliasBytes = 1 << 20;   // of text that aliases may add
inline constexpr std::size_t kKeyLimit = 200;         // bytes of a key
inline constexpr std::size_t kAnchorLimit = 100'000;  // nodes that anchors may name in all

// Why a text is no single YAML document, and where (from 1; line 0: the text as a whole).
// Thrown by ParseYaml only; callers turn it into a problem with the name of the file or option.
struct ParseProblem {
  int line = 0, column = 0;
  std::string message;
};

// Parses one document; an empty one is a null node. `source` is noted in every node. Columns count
// characters. Duplicate keys are kept: RemoveDuplicates reports them. Throws ParseProblem.
YamlNode ParseYaml(const std::string& text, int source);

// Returns the document's map. If the text is not YAML it throws at once, because nothing else can
// be checked. Null nodes, and a list at the top, are problems in the same way. Throws
// ConfigError.
YamlNode ParseDocument(const std::string& text, Problems& problems);

// Keys given twice in one map: the first stays, with a problem. yaml-cpp keeps both without a word.
// Called after overrides were set, which replace the first of equal keys, and before the tree is
// read: after it FindEntry finds the only entry of a name.
void RemoveDuplicates(YamlNode& node, const std::string& path, Problems& problems);

// The places of overrides in their order, as Problems names them: "--set KEY", or where their file
// has them.
std::vector<Location> PlacesOf(const Overrides& overrides);

// A place in the text, in lines and bytes from 0.
struct TextFault {
  int line = 0, byte = 0;
  std::string message;
};

// Finds what is wrong with a text that the YAML parser refused, in terms of what its author wrote;
// where it finds nothing its caller says "not valid YAML here". It looks for the common slips
// around the place (line and byte, from 0) where the parser gave up: a tab in the indentation,
// brackets and quotes that are not closed, lines that stand at no depth of those above, a missing
// blank after a colon, a glob that is taken for an alias.
std::optional<TextFault> FindFault(std::string_view text, int line, int byte);

}  // namespace ada::config

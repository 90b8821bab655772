// What keeps a text from being a map of keys.
#include "config/yaml/document.h"

#include <map>

#include "config/keys/keys.h"

namespace ada::config {

YamlNode ParseDocument(const std::string& text, Problems& problems) {
  YamlNode place;
  try {
    YamlNode root = ParseYaml(text, 0);
    if (root.kind == YamlNode::Kind::kMap) return root;
    place = root;
    // An empty text has no place worth naming, so line 0 makes the message one about the file.
    const bool empty = root.kind == YamlNode::Kind::kNull;
    if (empty) place.line = 0;
    problems.Add(place, "",
                 empty ? "is empty; expected a configuration (see configs/README.md)"
                       : Expected("keys and values", root));
  } catch (const ParseProblem& problem) {
    // The place of the problem is given as a node, since Problems takes places from nodes.
    place.line = problem.line;
    place.column = problem.column;
    problems.Add(place, "", problem.message);
  }
  problems.ThrowIfAny();
  return {};
}

void RemoveDuplicates(YamlNode& node, const std::string& path, Problems& problems) {
  for (YamlNode& item : node.items) RemoveDuplicates(item, path + "[]", problems);
  std::map<std::string, int> lines;
  std::vector<Entry> kept;
  for (Entry& entry : node.entries) {
    const std::string inner = Join(path, entry.key.text);
    const auto [first, is_new] = lines.emplace(entry.key.text, entry.key.line);
    if (!is_new) {
      problems.Add(entry.key, inner,
                   "duplicate key, first given in line " + std::to_string(first->second));
      continue;
    }
    RemoveDuplicates(entry.value, inner, problems);
    kept.push_back(std::move(entry));
  }
  node.entries = std::move(kept);
}

std::vector<Location> PlacesOf(const Overrides& overrides) {
  std::vector<Location> places;
  for (const Override& item : overrides)
    places.push_back(item.where.file.empty() ? Location{"--set " + item.first} : item.where);
  return places;
}

}  // namespace ada::config

// The order of things: text, tree, overrides, sections, checks across sections.
#include "config/load.h"

#include <map>

#include "config/checks.h"
#include "config/overrides.h"
#include "config/sections.h"
#include "config/text_file.h"
#include "config/yaml_document.h"

namespace ada::config {
namespace {

// The document's map. What keeps the text from being one is thrown at once: nothing else can be
// said.
YamlNode ParseDocument(const std::string& text, Problems& problems) {
  YamlNode place;
  try {
    YamlNode root = ParseYaml(text, 0);
    if (root.kind == YamlNode::Kind::kMap) return root;
    place = root;
    const bool empty = root.kind == YamlNode::Kind::kNull;
    if (empty) place.line = 0;
    problems.Add(place, "",
                 empty ? "is empty; expected a configuration (see configs/README.md)"
                       : Expected("keys and values", root));
  } catch (const ParseProblem& problem) {
    place.line = problem.line;
    place.column = problem.column;
    problems.Add(place, "", problem.message);
  }
  problems.ThrowIfAny();
  return {};
}

// Keys given twice in one map: the first stays. yaml-cpp keeps both without a word.
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

}  // namespace

Loaded LoadText(const std::string& text, const std::string& name, const Overrides& overrides) {
  std::vector<std::string> set_keys;
  for (const auto& item : overrides) set_keys.push_back(item.first);
  Problems problems(name, set_keys);
  YamlNode root = ParseDocument(text, problems);
  Loaded loaded;
  const Section document = RootSection(loaded.config);
  ApplyOverrides(overrides, document, root, problems, loaded.notes);
  RemoveDuplicates(root, "", problems);
  ReadSection(root, document, {problems, "", root});
  Complete(loaded.config, root, name, problems);
  problems.ThrowIfAny();
  return loaded;
}

Loaded Load(const std::string& path, const Overrides& overrides) {
  return LoadText(ReadTextFile(path), path, overrides);
}

YamlNode ToNode(const Config& config) {
  Config copy = config;
  return WriteSection(RootSection(copy));
}

std::string ToYaml(const Config& config) { return DocumentText(ToNode(config)); }

std::string YamlText(std::string_view text) { return FlowText(TextNode(std::string(text))); }

}  // namespace ada::config

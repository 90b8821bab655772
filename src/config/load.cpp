// The order of things: text, tree, overrides, sections, checks across sections.
#include "config/load.h"

#include "config/checks.h"
#include "config/sections/sections.h"
#include "config/yaml/document.h"
#include "config/yaml/overrides.h"
#include "config/yaml/text_file.h"

namespace ada::config {
Loaded LoadText(const std::string& text, const std::string& name, const Overrides& overrides) {
  Problems problems(name, KeysOf(overrides));
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

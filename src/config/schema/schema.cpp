// Walks the tables of keys that reading and writing use.
// AllKeys is the one list of keys for help, shell completion and documentation: none of them keeps
// a copy that could be out of date.
#include "config/schema/schema.h"

#include "config/sections/sections.h"

namespace ada::config {
namespace {

// Words given for the default come first; `{}` is that of every section and says nothing where the
// section is required. Else it is the value that a default struct would write.
std::string DefaultOf(const Key& key) {
  if (!key.default_text.empty() && key.default_text != "{}") return key.default_text;
  if (key.required) return "required";
  if (!key.default_text.empty()) return key.default_text;
  const auto value = key.write();
  return value ? FlowText(*value) : "none";
}

// Goes down into sections and into the entries of lists, whose paths have [] after the list's name.
void Collect(const Section& section, const std::string& path, std::vector<KeyInfo>& keys) {
  for (const Key& key : section.keys) {
    KeyInfo info;
    info.path = Join(path, key.name);
    info.type = key.type;
    info.default_text = DefaultOf(key);
    info.range = key.range;
    info.meaning = key.meaning;
    info.only_for = key.only_for;
    info.discriminator = key.only_for.empty() ? "" : section.discriminator;
    info.only_for_second = key.only_for_second;
    info.second_discriminator = key.only_for_second.empty() ? "" : section.second_discriminator;
    const bool list = key.type.starts_with("list");
    keys.push_back(std::move(info));
    if (key.section) Collect(*key.section, Join(path, key.name) + (list ? "[]" : ""), keys);
  }
}

}  // namespace

std::vector<KeyInfo> AllKeys() {
  Config config;
  std::vector<KeyInfo> keys;
  Collect(RootSection(config), "", keys);
  return keys;
}

}  // namespace ada::config

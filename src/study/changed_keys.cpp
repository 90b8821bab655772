// Compares two settings of a section as they are written, and keeps the keys that differ.
#include "study/changed_keys.h"

#include "config/sections/sections.h"
#include "scaling/policies/policies.h"

namespace ada::study {
namespace {

// The value of a key that `then` is written without, since it is the usual one. Empty: the section
// does not take the key, such as one of another policy, which an overlay drops by itself.
std::string ResetValue(const std::string& section, const std::string& key,
                       const config::Config& then) {
  if (key == "layers")
    return section == "precision" || then.scaling.policy == "adaptive" ? "[]" : "";
  if (section == "scaling") {
    if (then.scaling.policy != "adaptive") return "";
    return key == "batch_norm" ? "false" : key == "attention" ? "true" : "";
  }
  if (key == "schedule") return "[]";
  if (key == "operands" || key == "recipe" || key == "preset") return "none";
  // Roles, masters and state are unset where they have the usual format.
  const bool is_role = key == "activations" || key == "weights" || key == "gradients";
  return FormatName(is_role ? then.precision.format : kFp32);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> ChangedKeys(const std::string& section,
                                                             const config::Config& now,
                                                             const config::Config& then) {
  config::Config filled = then;
  scaling::FillDefaults(filled.scaling);
  const config::YamlNode was = config::ToNode(now), is = config::ToNode(filled);
  std::vector<std::pair<std::string, std::string>> keys;
  for (const config::Entry& entry : was.Find(section)->entries) {
    const std::string& key = entry.key.text;
    const config::YamlNode* value = is.Find(section)->Find(key);
    const std::string text =
        value != nullptr ? config::FlowText(*value) : ResetValue(section, key, then);
    if (!text.empty() && text != config::FlowText(entry.value)) keys.emplace_back(key, text);
  }
  return keys;
}

}  // namespace ada::study

// The keys of two configurations side by side. Unlike config::Differences it gives each key of a
// list's entries for itself, by the entry's name.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "config/sections/sections.h"
#include "study/compare/comparison.h"

namespace ada::study {
namespace {

using config::YamlNode;

// A leaf of the tree by its path, in the order of the document.
struct FlatKey {
  std::string key, value;
};

// The labels for items of a list of maps: their names if all have distinct ones, otherwise their
// positions.
std::vector<std::string> ItemNames(const YamlNode& list) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const YamlNode& item : list.items) {
    const YamlNode* name = item.Find("name");
    if (name == nullptr || !seen.insert(name->text).second) break;
    names.push_back(name->text);
  }
  if (names.size() == list.items.size()) return names;
  names.clear();
  for (std::size_t i = 0; i < list.items.size(); ++i) names.push_back(std::to_string(i));
  return names;
}

// A list of maps is walked into; any other list is one value.
void Flatten(const YamlNode& node, const std::string& path, std::vector<FlatKey>& keys) {
  const bool maps = !node.items.empty() &&
                    std::all_of(node.items.begin(), node.items.end(), [](const YamlNode& item) {
                      return item.kind == YamlNode::Kind::kMap;
                    });
  if (node.kind == YamlNode::Kind::kMap) {
    for (const config::Entry& entry : node.entries) {
      Flatten(entry.value, path.empty() ? entry.key.text : path + "." + entry.key.text, keys);
    }
  } else if (node.kind == YamlNode::Kind::kList && maps) {
    const std::vector<std::string> names = ItemNames(node);
    for (std::size_t i = 0; i < names.size(); ++i) {
      Flatten(node.items[i], path + "[" + names[i] + "]", keys);
    }
  } else {
    keys.push_back({path, config::FlowText(node)});
  }
}

std::map<std::string, std::string> ByKey(const std::vector<FlatKey>& keys) {
  std::map<std::string, std::string> values;
  for (const FlatKey& key : keys) values[key.key] = key.value;
  return values;
}

std::string_view SectionOf(std::string_view key) { return key.substr(0, key.find_first_of(".[")); }

// b's own keys, put after the last key of their section.
// The order of a's document stays, so a table of differences reads like one.
void InsertMissing(const std::vector<FlatKey>& b, std::vector<FlatKey>& keys) {
  const auto known = ByKey(keys);
  for (const FlatKey& key : b) {
    if (known.contains(key.key)) continue;
    const auto last = std::find_if(keys.rbegin(), keys.rend(), [&](const FlatKey& other) {
      return SectionOf(other.key) == SectionOf(key.key);
    });
    keys.insert(last == keys.rend() ? keys.end() : last.base(), key);
  }
}

}  // namespace

std::vector<KeyDifference> ConfigDifferences(const config::Config& a, const config::Config& b) {
  std::vector<FlatKey> keys_a, keys_b;
  Flatten(config::ToNode(a), "", keys_a);
  Flatten(config::ToNode(b), "", keys_b);
  const auto in_a = ByKey(keys_a), in_b = ByKey(keys_b);
  InsertMissing(keys_b, keys_a);
  const auto value = [](const auto& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string() : found->second;
  };
  std::vector<KeyDifference> differences;
  for (const FlatKey& key : keys_a) {
    const std::string va = value(in_a, key.key), vb = value(in_b, key.key);
    if (va != vb && key.key != "name" && key.key != "output") {
      differences.push_back({key.key, va, vb});
    }
  }
  return differences;
}

}  // namespace ada::study

// Setting by dotted path, then dropping section by section.
#include "config/overrides.h"

#include <algorithm>
#include <optional>

#include "config/yaml_document.h"

namespace ada::config {
namespace {

// "a.b.c" in parts; nothing where a part is empty.
std::optional<Names> Split(const std::string& path) {
  Names parts;
  std::size_t start = 0;
  while (true) {
    const std::size_t dot = path.find('.', start);
    parts.push_back(path.substr(start, dot - start));
    if (parts.back().empty()) return std::nullopt;
    if (dot == std::string::npos) return parts;
    start = dot + 1;
  }
}

YamlNode Named(const std::string& name, int source) {
  YamlNode key = Scalar(name);
  key.source = source;
  return key;
}

// `device: cpu` and `--set device=cpu` mean the kind; the map's other keys stay.
void SpellOutDevice(YamlNode& root) {
  Entry* device = root.FindEntry("device");
  if (!device || device->value.kind != YamlNode::Kind::kScalar) return;
  YamlNode map;
  map.kind = YamlNode::Kind::kMap;
  map.source = device->value.source;
  map.line = device->value.line;
  map.column = device->value.column;
  YamlNode key = device->key;
  key.text = "kind";
  map.entries.push_back({key, device->value});
  device->value = map;
}

class Setter {
 public:
  Setter(YamlNode& root, Problems& problems, std::vector<std::string>& notes)
      : root_(root), problems_(problems), notes_(notes) {}

  void Set(const std::string& path, YamlNode value, int source) {
    YamlNode at = Named(path, source);
    std::optional<Names> parts = Split(path);
    if (!parts) {
      problems_.Add(at, path, "expected a key such as scaling.policy");
      return;
    }
    if (path == "device" && value.kind == YamlNode::Kind::kScalar) parts->push_back("kind");
    YamlNode* node = &root_;
    std::string reached;
    for (std::size_t i = 0; i + 1 < parts->size(); ++i) {
      reached = Join(reached, (*parts)[i]);
      node = Enter(*node, (*parts)[i], reached, path, at);
      if (!node) return;
    }
    Put(*node, Named(parts->back(), source), std::move(value));
  }

 private:
  // The map below `name`, made where there is none; null and a problem for a list.
  YamlNode* Enter(YamlNode& map, const std::string& name, const std::string& reached,
                  const std::string& path, const YamlNode& at) {
    Entry* entry = map.FindEntry(name);
    if (!entry) {
      map.entries.push_back({Named(name, at.source), YamlNode()});
      entry = &map.entries.back();
      entry->value.source = at.source;
      entry->value.kind = YamlNode::Kind::kMap;
    }
    YamlNode& value = entry->value;
    if (value.kind == YamlNode::Kind::kList) {
      problems_.Add(at, path,
                    reached + " is a list; set the whole list: --set '" + reached + "=[...]'");
      return nullptr;
    }
    if (value.kind != YamlNode::Kind::kMap) {
      if (value.kind == YamlNode::Kind::kScalar) {
        notes_.push_back(ToString(problems_.Where(entry->key)) + ": " + reached + ": " +
                         FlowText(value) + " dropped for --set " + path);
      }
      value = YamlNode();
      value.kind = YamlNode::Kind::kMap;
      value.source = at.source;
    }
    return &value;
  }

  static void Put(YamlNode& map, YamlNode key, YamlNode value) {
    if (Entry* entry = map.FindEntry(key.text)) {
      *entry = {std::move(key), std::move(value)};
    } else {
      map.entries.push_back({std::move(key), std::move(value)});
    }
  }

  YamlNode& root_;
  Problems& problems_;
  std::vector<std::string>& notes_;
};

// Drops the file's keys in `map` for which `drop` holds.
void DropKeys(YamlNode& map, const Section& section, const std::string& reason,
              const std::function<bool(const Key&)>& drop, const Problems& problems,
              std::vector<std::string>& notes) {
  const auto unfit = [&](const Entry& entry) {
    const Key* key = section.Find(entry.key.text);
    if (!key || entry.key.source != 0 || !drop(*key)) return false;
    notes.push_back(ToString(problems.Where(entry.key)) + ": " +
                    Join(section.path, entry.key.text) + " dropped: " + reason);
    return true;
  };
  map.entries.erase(std::remove_if(map.entries.begin(), map.entries.end(), unfit),
                    map.entries.end());
}

void DropMisfits(YamlNode& map, const Section& section, const Problems& problems,
                 std::vector<std::string>& notes) {
  const Entry* chooser = map.FindEntry(section.chooser);
  const Entry* other = section.alternative.empty() ? nullptr : map.FindEntry(section.alternative);
  if (other && other->key.source > 0 && (!chooser || chooser->key.source == 0)) {
    const std::string reason = ToString(problems.Where(other->key)) + " replaces it";
    DropKeys(
        map, section, reason,
        [&](const Key& key) {
          return key.name == section.chooser || !section.Knows(key, section.alternative);
        },
        problems, notes);
    return;
  }
  if (!chooser || chooser->key.source == 0) return;
  const std::string choice = section.ChoiceOf(map);
  if (choice.empty()) return;
  const std::string reason = section.chooser + " " + choice + " does not know it";
  DropKeys(
      map, section, reason, [&](const Key& key) { return !section.Knows(key, choice); }, problems,
      notes);
}

}  // namespace

void ApplyOverrides(const Overrides& overrides, const Section& document, YamlNode& root,
                    Problems& problems, std::vector<std::string>& notes) {
  SpellOutDevice(root);
  Setter setter(root, problems, notes);
  int source = 0;
  for (const auto& [path, text] : overrides) {
    ++source;
    try {
      YamlNode value = ParseYaml(text, source);
      value.source = source;
      setter.Set(path, std::move(value), source);
    } catch (const ParseProblem& problem) {
      problems.Add(Named(path, source), path, "'" + text + "': " + problem.message);
    }
  }
  for (const Key& key : document.keys) {
    Entry* entry =
        key.section && !key.section->chooser.empty() ? root.FindEntry(key.name) : nullptr;
    if (entry && entry->value.kind == YamlNode::Kind::kMap) {
      DropMisfits(entry->value, *key.section, problems, notes);
    }
  }
}

}  // namespace ada::config

// The list of all keys, and their reference as a page. Both walk the tables of keys that reading
// and writing use, so no list can be out of date. In the page a map's keys stand below a heading
// with its path; those that belong to one choice alone (a policy, a kind of layer) stand together.
// A map whose keys have been written out for another one refers to that one.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

constexpr std::string_view kIntroduction =
    "# Keys\n\n"
    "`ada-train schema --markdown` prints this page. `a.b` is the key `b` of the map `a`, and "
    "`a[].b`\n"
    "the key `b` of each entry of the list `a`. A key without a default is left out unless you "
    "write\n"
    "it. \"With\" names the choices to which keys belong; elsewhere they are errors.\n";

// Fewer keys than these are written out again.
constexpr int kFewestRepeated = 3;

struct Path {
  std::string parent, name;
};

// "scaling.layers[].match" is the key "match" of "scaling.layers[]".
Path SplitPath(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

bool Within(const std::string& path, const std::string& map) {
  return path.starts_with(map + ".") || path.starts_with(map + "[]");
}

std::string WithCommas(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// "policy: adaptive", or nothing for a key of every choice. The choice `layers` of a network has no
// word of its own in a file.
std::string ConditionOf(const KeyInfo& key) {
  std::vector<std::string> choices = key.only_for;
  std::erase(choices, "layers");
  if (choices.empty()) return "";
  std::string text = "`" + key.discriminator + "`: " + WithCommas(choices);
  if (!key.only_for_second.empty()) {
    text += "; `" + key.second_discriminator + "`: " + WithCommas(key.only_for_second);
  }
  return text;
}

// "integer, 1 to 64; default 3". The two values of a boolean need not be said, nor the default of a
// key that is left out.
std::string ValueOf(const KeyInfo& key) {
  std::string text = key.type;
  if (!key.range.empty() && key.range != "true, false") text += ", " + key.range;
  if (key.default_text.starts_with("required")) return text + "; " + key.default_text;
  const bool left_out = key.default_text == "none" && !key.range.starts_with("none");
  if (!left_out && key.default_text != "{}") text += "; default " + key.default_text;
  return text;
}

// What the page says of a key but for its name.
std::string Said(const KeyInfo& key) {
  return ConditionOf(key) + '\n' + ValueOf(key) + '\n' + key.meaning;
}

// The keys of one map, with those of the maps in it.
struct Map {
  std::string path;
  std::vector<const KeyInfo*> own;
  std::vector<std::pair<std::string, std::string>> all;  // relative path and what is said, sorted
  const Map* same_as = nullptr;                          // the map that has its keys written out
};

std::vector<Map> MapsOf(const std::vector<KeyInfo>& keys) {
  std::vector<Map> maps;
  for (const KeyInfo& key : keys) {
    const std::string parent = SplitPath(key.path).parent;
    auto found = std::ranges::find(maps, parent, &Map::path);
    if (found == maps.end())
      found = maps.insert(maps.end(), {.path = parent, .own = {}, .all = {}});
    found->own.push_back(&key);
  }
  for (Map& map : maps) {
    for (const KeyInfo& key : keys) {
      if (map.path.empty() || !key.path.starts_with(map.path + ".")) continue;
      map.all.emplace_back(key.path.substr(map.path.size() + 1), Said(key));
    }
    std::ranges::sort(map.all);
  }
  return maps;
}

// Among equal maps the one with the shorter path is written out, else the earlier one.
void FindRepeated(std::vector<Map>& maps) {
  for (Map& map : maps) {
    for (const Map& other : maps) {
      if (map.all.size() < 2 || &map == &other || map.path == other.path) continue;
      if (Within(map.path, other.path) || Within(other.path, map.path)) continue;
      if (!std::ranges::includes(other.all, map.all)) continue;
      const bool equal = other.all.size() == map.all.size();
      const auto rank = [](const Map& one) { return std::pair(one.path.size(), &one); };
      if (equal && rank(map) < rank(other)) continue;
      if (map.same_as == nullptr || map.same_as->all.size() < other.all.size() ||
          (map.same_as->all.size() == other.all.size() && rank(other) < rank(*map.same_as))) {
        map.same_as = &other;
      }
    }
  }
}

// "Keys: those of `precision.operands`, but for `spared`."
std::string Reference(const Map& map) {
  std::vector<std::string> lacking;
  for (const auto& [name, said] : map.same_as->all) {
    const bool nested = name.find_first_of(".[") != std::string::npos;
    if (!nested && !std::ranges::binary_search(map.all, std::pair(name, said))) {
      lacking.push_back("`" + name + "`");
    }
  }
  return " Keys: those of `" + map.same_as->path + "`" +
         (lacking.empty() ? "" : ", but for " + WithCommas(lacking)) + ".";
}

class Page {
 public:
  explicit Page(const std::vector<Map>& maps) : maps_(maps) {}

  std::string Write() {
    for (const Map& map : maps_) {
      if (!Referred(map)) Write(map);
    }
    return std::move(text_);
  }

 private:
  // A map that refers to another one, or lies in one that does.
  bool Referred(const Map& map) const {
    return std::ranges::any_of(maps_, [&](const Map& other) {
      return other.same_as != nullptr && (map.path == other.path || Within(map.path, other.path));
    });
  }

  void Write(const Map& map) {
    text_ += "\n## " + (map.path.empty() ? "The document" : map.path) + "\n";
    const std::vector<std::string> earlier = EarlierOf(map);
    Groups choices = {{"", ""}};  // by condition: lines; a condition of one key stands in its line
    Groups repeated;              // by the map that they are written out for: names
    for (std::size_t i = 0; i < map.own.size(); ++i) {
      const KeyInfo& key = *map.own[i];
      const std::string name = "`" + SplitPath(key.path).name + "`";
      if (std::ranges::count(earlier, earlier[i]) >= kFewestRepeated && !earlier[i].empty()) {
        std::string& names = Of(repeated, earlier[i]);
        names += (names.empty() ? "" : ", ") + name;
      } else {
        const std::string condition = ConditionOf(key);
        const bool is_alone = std::ranges::count(map.own, condition, [](const KeyInfo* other) {
                                return ConditionOf(*other);
                              }) == 1;
        const bool in_line = is_alone && !condition.empty();
        Of(choices, in_line ? "" : condition) +=
            "* " + name + Line(key) + (in_line ? ". With " + condition : "") + "\n";
      }
    }
    for (const auto& [condition, lines] : choices) {
      if (lines.empty()) continue;
      if (!condition.empty()) text_ += "\nWith " + condition + "\n";
      text_ += "\n" + lines;
    }
    if (!repeated.empty()) text_ += "\n";
    for (const auto& [from, names] : repeated) {
      text_ += "* As in `" + from + "`: " + names + "\n";
    }
  }

  using Groups = std::vector<std::pair<std::string, std::string>>;

  // The text of a group, which is made where there is none.
  static std::string& Of(Groups& groups, const std::string& name) {
    const auto found = std::ranges::find(groups, name, &Groups::value_type::first);
    if (found != groups.end()) return found->second;
    return groups.emplace_back(name, "").second;
  }

  // For each key of a map the earlier map with a key of which the page has said the same: entirely,
  // or but for a default that is that other key's value. Empty: there is none, or the key is a map.
  std::vector<std::string> EarlierOf(const Map& map) {
    std::vector<std::string> earlier;
    for (const KeyInfo* key : map.own) {
      earlier.emplace_back();
      if (IsMap(*key)) continue;
      const std::vector<std::string> words = {SplitPath(key->path).name, ConditionOf(*key),
                                              key->type, key->range, key->meaning};
      const auto [seen, is_new] = said_.try_emplace(words, map.path, key->default_text);
      const auto& [path, default_text] = seen->second;
      const bool inherited =
          key->default_text == "as in `" + path + "`" || key->default_text == "as before";
      if (!is_new && (inherited || key->default_text == default_text)) earlier.back() = path;
    }
    return earlier;
  }

  // Whether a key has keys of its own.
  bool IsMap(const KeyInfo& key) const {
    return std::ranges::any_of(
        maps_, [&](const Map& map) { return map.path == key.path || map.path == key.path + "[]"; });
  }

  std::string Line(const KeyInfo& key) const {
    std::string line = " (" + ValueOf(key) + "): " + key.meaning;
    for (const Map& map : maps_) {
      if (map.same_as != nullptr && (map.path == key.path || map.path == key.path + "[]")) {
        line += "." + Reference(map);
      }
    }
    return line;
  }

  const std::vector<Map>& maps_;
  std::map<std::vector<std::string>, std::pair<std::string, std::string>> said_;
  std::string text_{kIntroduction};
};

}  // namespace

std::vector<KeyInfo> AllKeys() {
  Config config;
  std::vector<KeyInfo> keys;
  Collect(RootSection(config), "", keys);
  return keys;
}

std::string KeysMarkdown() {
  const std::vector<KeyInfo> keys = AllKeys();
  std::vector<Map> maps = MapsOf(keys);
  FindRepeated(maps);
  return Page(maps).Write();
}

}  // namespace ada::config

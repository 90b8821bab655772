// A YAML value as a plain tree with the place of every part. The folder's own type: context,
// overriding and writing work on it, and only yaml_document.cpp knows the YAML library.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ada::config {

struct Entry;

inline constexpr int kIncluded = -1;  // source of nodes from the file that model.file names

// Nodes are values: copying one copies all below it. Sections, overrides and the merging of
// model.file change the tree in place, so pointers into it last only until the next change of the
// same list. Problems turns source, line and column into a place.
struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  std::string text;     // kScalar
  bool quoted = false;  // kScalar: written in quotes or as a block, so never a number or a boolean
  int source = 0;       // 0: the file; n: the n-th --set; kIncluded
  int line = 0, column = 0;     // from 1
  std::vector<YamlNode> items;  // kList
  std::vector<Entry> entries;   // kMap, in the order written
  std::string comment;          // kScalar, kList: DocumentText writes it after the value

  // The first entry of this name; null where there is none or the node is no map.
  const Entry* FindEntry(std::string_view key) const;
  Entry* FindEntry(std::string_view key);
  const YamlNode* Find(std::string_view key) const;  // the value; null where there is none
};

struct Entry {
  YamlNode key, value;
};

// The path of a key within another: "a.b", or "b" where a is empty.
std::string Join(const std::string& path, const std::string& name);

YamlNode Scalar(std::string text);
YamlNode List(std::vector<YamlNode> items);
// Appends `key: value` to a map.
void Append(YamlNode& map, std::string key, YamlNode value);

// The value in flow style on one line, `{a: 1, b: [x, y]}`; reads back to the same tree.
std::string FlowText(const YamlNode& node);
// A whole document: sections as blocks, their values in flow style, lists of maps one line each.
std::string DocumentText(const YamlNode& root);

}  // namespace ada::config

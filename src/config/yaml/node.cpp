// The tree's look-ups and its text. Scalars are quoted only where a plain one would read
// differently.
#include "config/yaml/node.h"

#include <algorithm>
#include <cctype>

namespace ada::config {

const Entry* YamlNode::FindEntry(std::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key.text == key) return &entry;
  }
  return nullptr;
}

Entry* YamlNode::FindEntry(std::string_view key) {
  return const_cast<Entry*>(static_cast<const YamlNode*>(this)->FindEntry(key));
}

const YamlNode* YamlNode::Find(std::string_view key) const {
  const Entry* entry = FindEntry(key);
  return entry ? &entry->value : nullptr;
}

std::string Join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

YamlNode Scalar(std::string text) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.text = std::move(text);
  return node;
}

YamlNode List(std::vector<YamlNode> items) {
  YamlNode node;
  node.kind = YamlNode::Kind::kList;
  node.items = std::move(items);
  return node;
}

void Append(YamlNode& map, std::string key, YamlNode value) {
  map.kind = YamlNode::Kind::kMap;
  map.entries.push_back({Scalar(std::move(key)), std::move(value)});
}

namespace {

// True where the text stands for itself without quotes, for every YAML reader.
// Only a small set of characters is trusted; a text with any other one is quoted, which costs
// nothing. Words that are booleans or numbers are marked as quoted by TextNode before.
bool IsPlain(const std::string& text) {
  if (text.empty() || text.front() == '-' || text.back() == ':') return false;
  for (const char* word : {"~", "null", "Null", "NULL"}) {
    if (text == word) return false;
  }
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '/' || c == '-' || c == '+' ||
           c == ':';
  });
}

// YAML's double quotes: control characters become \x escapes, all bytes of UTF-8 stay as they are.
std::string Quoted(const std::string& text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string result = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      result += c;
    }
  }
  return result + '"';
}

// A negative number begins with a dash, which IsPlain refuses for texts.
std::string ScalarText(const YamlNode& node) {
  const bool negative_number = !node.quoted && node.text.size() > 1 && node.text[0] == '-' &&
                               (std::isdigit(static_cast<unsigned char>(node.text[1])) != 0);
  if (negative_number || (!node.quoted && IsPlain(node.text))) return node.text;
  return Quoted(node.text);
}

// Such a list (layers, entries by glob) is written one map a line, which stays readable and can be
// compared line by line.
bool HoldsMaps(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kList && !node.items.empty() &&
         node.items.front().kind == YamlNode::Kind::kMap;
}

// Block style is used for two levels, sections and their keys; deeper levels are in flow style.
void AppendBlock(const YamlNode& map, const std::string& indent, std::string& text) {
  for (const Entry& entry : map.entries) {
    text += indent + FlowText(entry.key) + ":";
    if (indent.empty() && entry.value.kind == YamlNode::Kind::kMap) {
      text += "\n";
      AppendBlock(entry.value, "  ", text);
    } else if (HoldsMaps(entry.value)) {
      text += "\n";
      for (const YamlNode& item : entry.value.items)
        text += indent + "  - " + FlowText(item) + "\n";
    } else {
      text += " " + FlowText(entry.value);
      text += (entry.value.comment.empty() ? "" : "  # " + entry.value.comment) + "\n";
    }
  }
}

}  // namespace

std::string FlowText(const YamlNode& node) {
  std::string text;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kScalar:
      return ScalarText(node);
    case YamlNode::Kind::kList:
      for (const YamlNode& item : node.items) text += (text.empty() ? "" : ", ") + FlowText(item);
      return "[" + text + "]";
    case YamlNode::Kind::kMap:
      for (const Entry& entry : node.entries) {
        text += (text.empty() ? "" : ", ") + FlowText(entry.key) + ": " + FlowText(entry.value);
      }
      return "{" + text + "}";
  }
  return text;
}

std::string DocumentText(const YamlNode& root) {
  std::string text;
  AppendBlock(root, "", text);
  return text;
}

}  // namespace ada::config

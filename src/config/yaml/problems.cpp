// Sorting and printing of problems.
#include "config/yaml/problems.h"

#include <algorithm>
#include <tuple>

#include "error.h"
#include "io/shown_text.h"

namespace ada::config {
namespace {

constexpr std::size_t kMost = 2000, kShown = 100;

}  // namespace

Problems::Problems(std::string file, std::vector<Location> overrides)
    : file_(std::move(file)), overrides_(std::move(overrides)) {}

Location Problems::Where(const YamlNode& node) const {
  if (node.source > 0) return overrides_[static_cast<std::size_t>(node.source) - 1];
  return {node.source == kIncluded ? included_ : file_, node.line, node.column};
}

void Problems::Include(const Location& named_at, const std::string& file) {
  // Only one file can be included, since a file of model.file names no other.
  included_ = ToString(named_at) + ": " + file;
}

void Problems::Add(const YamlNode& at, const std::string& path, const std::string& message) {
  const Location where = Where(at);
  std::string text = ToString(where);
  // The place "--set KEY" already holds the path; it is not said twice.
  const bool named = !path.empty() && where.file != "--set " + path;
  text += (named ? ": " + path : "") + ": " + message;
  lines_.push_back({at.source, at.line, at.column, std::move(text)});
  paths_.insert(path);
  if (lines_.size() >= kMost) ThrowIfAny();
}

bool Problems::Clean(std::initializer_list<std::string_view> paths) const {
  return std::none_of(paths.begin(), paths.end(),
                      [this](std::string_view path) { return paths_.contains(path); });
}

// Aliases and repeated blocks show one node several times, so equal lines occur; one is enough.
void Problems::ThrowIfAny() const {
  if (lines_.empty()) return;
  std::vector<Line> sorted = lines_;
  // Sources go in their order: the included file (-1), the file, then overrides as they were given.
  std::stable_sort(sorted.begin(), sorted.end(), [](const Line& a, const Line& b) {
    return std::tie(a.source, a.line, a.column) < std::tie(b.source, b.line, b.column);
  });
  const auto same = [](const Line& a, const Line& b) { return a.text == b.text; };
  sorted.erase(std::unique(sorted.begin(), sorted.end(), same), sorted.end());
  std::string message;
  for (std::size_t i = 0; i < std::min(sorted.size(), kShown); ++i) {
    message += (i == 0 ? "" : "\n") + sorted[i].text;
  }
  if (sorted.size() > kShown) {
    const std::string least = lines_.size() >= kMost ? "at least " : "";
    message +=
        "\n" + file_ + ": and " + least + std::to_string(sorted.size() - kShown) + " more problems";
  }
  throw ConfigError(message);
}

std::string Expected(const std::string& what, const YamlNode& got) {
  const std::string start = "expected " + what + "; got ";
  switch (got.kind) {
    case YamlNode::Kind::kNull:
      return start + "nothing";
    case YamlNode::Kind::kList:
      return start + "a list";
    case YamlNode::Kind::kMap:
      return start + "a map";
    case YamlNode::Kind::kScalar:
      break;
  }
  return start + Shown(got.text);
}

}  // namespace ada::config

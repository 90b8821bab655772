// Flattens both configurations to "key: value" and compares key by key.
// A resume takes the stored configuration of a run and that of the command line, and refuses
// (run/checkpoint/resume.cpp) where they differ in a key that decides weights or logs.
#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "config/load.h"
#include "config/sections/sections.h"

namespace ada::config {
namespace {

// Neither weights nor the rows of the logs up to the resume depend on these. A dot at the end: all
// keys of the section.
constexpr std::array<std::string_view, 15> kFree = {
    "name",
    "output",
    "device.",
    "data.path",
    "data.workers",
    "train.epochs",
    "train.max_steps",
    "log.",
    "checkpoint.",
    "train.max_minutes",
    "evaluate.every_epochs",
    "train.stop_after_skips",
    "parallel.ranks",  // run/run.cpp asks that it be said
    "parallel.bucket_mb",
    "parallel.timeout_seconds",
};

// Lists are compared as one value, so a path never holds an index.
bool IsFree(std::string_view key) {
  return std::any_of(kFree.begin(), kFree.end(), [&](std::string_view free) {
    return free.ends_with('.') ? key.starts_with(free) : key == free;
  });
}

// Values are compared as the text that ToYaml would write, in which a default and the same value
// given are alike.
void Flatten(const YamlNode& map, const std::string& path,
             std::map<std::string, std::string>& values) {
  for (const Entry& entry : map.entries) {
    const std::string inner = Join(path, entry.key.text);
    if (entry.value.kind == YamlNode::Kind::kMap) {
      Flatten(entry.value, inner, values);
    } else {
      values[inner] = FlowText(entry.value);
    }
  }
}

std::string ShownValue(const std::string& value) {
  constexpr std::size_t kLimit = 60;
  if (value.empty()) return "(not set)";
  return value.size() > kLimit ? value.substr(0, kLimit) + "..." : value;
}

}  // namespace

std::vector<std::string> Differences(const Config& one, const Config& other,
                                     const std::function<bool(std::string_view key)>& is_free) {
  std::map<std::string, std::string> before, after;
  Flatten(ToNode(one), "", before);
  Flatten(ToNode(other), "", after);
  // Keys that only the stored side has get an empty value here, so one loop over `after` sees all
  // keys.
  for (const auto& item : before) after.try_emplace(item.first);
  std::vector<std::string> differences;
  for (const auto& [key, value] : after) {
    const auto found = before.find(key);
    const std::string old = found == before.end() ? "" : found->second;
    if (old == value || is_free(key)) continue;
    differences.push_back(key + ": " + ShownValue(old) + " -> " + ShownValue(value));
  }
  return differences;
}

std::vector<std::string> ResumeConflicts(const Config& stored, const Config& now) {
  return Differences(stored, now, IsFree);
}

}  // namespace ada::config

// From a file to its map of keys: reading with a limit, and what keeps a text from being one.
#include "config/yaml/document.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "io/data_files.h"
#include "io/shown_text.h"
#include "io/system_call.h"

namespace ada::config {

namespace {

constexpr std::size_t kLimit = 1'000'000;

}  // namespace

std::string ReadTextFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw ConfigError(path + ": is a directory; expected a YAML file");
  }
  std::string text, problem;
  // Pipes of the shell (`<(command)`) are allowed, whose size is not known: the read is bounded as
  // well.
  const int fd = OpenToRead(path, Pipes::kOffered, &problem);
  const int refused = errno;
  if (fd < 0) ThrowUnread<ConfigError>(path + ": cannot be opened: " + problem, refused);
  const auto size = static_cast<std::size_t>(SizeOfFile(fd));
  int error = 0;
  if (size <= kLimit && !ReadUpTo(fd, kLimit + 1, &text)) error = errno;
  CloseFile(fd);
  if (error != 0)
    ThrowUnread<ConfigError>(path + ": cannot be read: " + std::strerror(error), error);
  if (size <= kLimit && text.size() <= kLimit) return text;
  throw ConfigError(path + ": is larger than 1 MB" +
                    (size > kLimit ? " (" + std::to_string(size) + " bytes)" : "") +
                    "; expected a configuration of a few kilobytes");
}

std::string TextProblem(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool control =
        (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7f;
    const std::size_t length = control ? 0 : CharacterLength(text, i);
    if (length == 0) {
      return "is not a text file: byte " + std::to_string(i) + " is " +
             (control ? "a control character" : "not valid UTF-8") + "; expected YAML";
    }
    i += length;
  }
  return "";
}

YamlNode ParseDocument(const std::string& text, Problems& problems) {
  YamlNode place;
  try {
    YamlNode root = ParseYaml(text, 0);
    if (root.kind == YamlNode::Kind::kMap) return root;
    place = root;
    // An empty text has no place worth naming, so line 0 makes the message one about the file.
    const bool empty = root.kind == YamlNode::Kind::kNull;
    if (empty) place.line = 0;
    problems.Add(place, "",
                 empty ? "is empty; expected a configuration (see configs/README.md)"
                       : Expected("keys and values", root));
  } catch (const ParseProblem& problem) {
    // The place of the problem is given as a node, since Problems takes places from nodes.
    place.line = problem.line;
    place.column = problem.column;
    problems.Add(place, "", problem.message);
  }
  problems.ThrowIfAny();
  return {};
}

void RemoveDuplicates(YamlNode& node, const std::string& path, Problems& problems) {
  for (YamlNode& item : node.items) RemoveDuplicates(item, path + "[]", problems);
  std::map<std::string, int> lines;
  std::vector<Entry> kept;
  for (Entry& entry : node.entries) {
    const std::string inner = Join(path, entry.key.text);
    const auto [first, is_new] = lines.emplace(entry.key.text, entry.key.line);
    if (!is_new) {
      problems.Add(entry.key, inner,
                   "duplicate key, first given in line " + std::to_string(first->second));
      continue;
    }
    RemoveDuplicates(entry.value, inner, problems);
    kept.push_back(std::move(entry));
  }
  node.entries = std::move(kept);
}

std::vector<Location> PlacesOf(const Overrides& overrides) {
  std::vector<Location> places;
  for (const Override& item : overrides)
    places.push_back(item.where.file.empty() ? Location{"--set " + item.first} : item.where);
  return places;
}

}  // namespace ada::config

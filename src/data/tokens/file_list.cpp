// Expands patterns of names part by part, walks folders, and passes over what is hidden or no text.
#include <algorithm>
#include <filesystem>
#include <set>

#include "data/dataset.h"
#include "data/tokens/token_files.h"
#include "error.h"
#include "io/data_files.h"
#include "io/shown_text.h"
#include "io/text.h"

namespace ada::data {
namespace {

namespace fs = std::filesystem;

bool IsPattern(const std::string& name) { return name.find_first_of("*?[") != std::string::npos; }

// What lies in a folder and matches a pattern of names, without what is hidden.
std::vector<std::string> MatchesIn(const std::string& folder, const std::string& pattern) {
  std::vector<std::string> found;
  for (const std::string& name : ListDataFolder(folder.empty() ? "." : folder))
    if (!name.starts_with('.') && GlobMatch(pattern, name))
      found.push_back((fs::path(folder) / name).string());
  std::sort(found.begin(), found.end());
  return found;
}

// What a path matches, any of whose parts may be patterns of names.
std::vector<std::string> Matches(const std::string& path) {
  std::vector<std::string> found = {""};
  for (const fs::path& part : fs::path(path)) {
    if (part.empty()) continue;  // after a slash at the end
    std::vector<std::string> next;
    for (const std::string& folder : found) {
      const std::string within = (fs::path(folder) / part).string();
      if (!IsPattern(part.string()) || IsThere(within)) {
        if (folder.empty() || IsThere(within)) next.push_back(within);
      } else if (folder.empty() || IsDataFolder(folder)) {
        for (std::string& match : MatchesIn(folder, part.string()))
          next.push_back(std::move(match));
      }
    }
    found = std::move(next);
  }
  return found;
}

// One path of data.path.
struct Listed {
  std::string path;
  bool is_folder = false;
  std::vector<std::string> files = {},
                           folders = {};  // that it names; of the folders nothing is read
};

Listed List(const std::string& path, const std::string& ending) {
  Listed listed{WithoutLastSlash(path), IsDataFolder(path)};
  if (!listed.is_folder && (!IsPattern(path) || IsThere(path))) {
    listed.files = {path};
    return listed;
  }
  for (std::string& found : listed.is_folder ? MatchesIn(path, "*") : Matches(path)) {
    const bool folder = IsDataFolder(found);
    if (!folder && listed.is_folder && !found.ends_with(ending)) continue;
    (folder ? listed.folders : listed.files).push_back(std::move(found));
  }
  std::sort(listed.files.begin(), listed.files.end());
  return listed;
}

// Whether a folder holds what could be read: a file of this ending, or more folders.
bool IsWorthALine(const std::string& folder, const std::string& ending) {
  for (const std::string& found : MatchesIn(folder, "*"))
    if (found.ends_with(ending) || IsDataFolder(found)) return true;
  return false;
}

// "2 folders in it are not read: AA, AB (data.path: corpus/*/* takes their files)"; "": there are
// none, but those in `read` or without anything.
std::string NotReadText(const Listed& listed, const std::string& ending,
                        const std::set<std::string>& read) {
  constexpr std::size_t kNamed = 5;
  std::vector<std::string> names;
  for (const std::string& folder : listed.folders) {
    if (read.contains(fs::path(folder).lexically_normal().string())) continue;
    if (!IsWorthALine(folder, ending)) continue;
    names.push_back(Visible(listed.is_folder ? fs::path(folder).filename().string() : folder));
  }
  if (names.empty()) return "";
  const bool one = names.size() == 1;
  return Counted(static_cast<std::int64_t>(names.size()), "folder") +
         (listed.is_folder ? " in it "
          : one            ? " that matches it "
                           : " that match it ") +
         (one ? "is not read: " : "are not read: ") + FirstNames(names, kNamed) +
         " (data.path: " + listed.path + (listed.is_folder ? "/*/*" : "/*") + ending + " takes " +
         (one ? "its" : "their") + " files)";
}

[[noreturn]] void RefuseEmpty(const Listed& listed, const std::string& ending) {
  const std::string not_read = NotReadText(listed, ending, {});
  const fs::path parts(listed.path);
  const std::string folder = parts.has_parent_path() ? parts.parent_path().string() : ".";
  throw DataError(listed.path +
                  (listed.is_folder ? ": no file " + (ending.empty() ? "" : "*" + ending + " ") +
                                          "in this folder"
                   : IsPattern(folder) ? ": no file has such a path"
                                       : ": no file in " + folder + " has such a name") +
                  (not_read.empty() ? "" : "; " + not_read));
}

}  // namespace

FileList ListTokenFiles(const std::vector<std::string>& paths, const std::string& ending) {
  FileList list;
  std::set<std::string> seen, read;  // files, and folders of them
  std::vector<Listed> all;
  for (const std::string& path : paths) {
    Listed listed = List(path, ending);
    if (listed.files.empty()) RefuseEmpty(listed, ending);
    for (const std::string& file : listed.files) {
      const fs::path normal = fs::path(file).lexically_normal();
      if (!seen.insert(normal.string()).second)
        throw DataError(file + ": stands twice in data.path");
      read.insert(normal.parent_path().string());
      list.files.push_back(file);
    }
    all.push_back(std::move(listed));
  }
  for (const Listed& listed : all)
    if (const std::string text = NotReadText(listed, ending, read); !text.empty())
      list.not_read.push_back(listed.path + ": " + text);
  return list;
}

}  // namespace ada::data

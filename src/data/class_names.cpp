// The names of a data set's classes: known beforehand, or read from the set's own list.
#include <filesystem>
#include <sstream>

#include "core/error.h"
#include "core/file.h"
#include "data/catalog.h"
#include "data/dataset.h"

namespace ada::data {
namespace {

constexpr std::uint64_t kMaxListBytes = 1 << 16;

// One name a line; empty lines (the published list ends with one) are none.
std::vector<std::string> ReadNames(const std::string& path) {
  std::istringstream text(ReadFile(path, kMaxListBytes));
  std::vector<std::string> names;
  for (std::string line; std::getline(text, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  return names;
}

}  // namespace

std::vector<std::string> ClassNames(const std::string& name, const std::string& folder) {
  const DatasetFacts& facts = FactsOf(name);
  if (!facts.class_names.empty()) return {facts.class_names.begin(), facts.class_names.end()};
  const std::filesystem::path inside = FindFolder(facts, folder);
  const std::string path = (inside / facts.names_file).string();
  if (facts.names_file.empty() || !std::filesystem::exists(path)) return {};
  std::vector<std::string> names = ReadNames(path);
  if (names.size() != static_cast<std::size_t>(facts.classes))
    throw DataError(path + ": " + std::to_string(names.size()) + " names of classes; expected " +
                    std::to_string(facts.classes) +
                    ", one a line; mend or remove the file, it is only read for names");
  return names;
}

}  // namespace ada::data

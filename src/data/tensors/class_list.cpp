// Metadata of safetensors are only texts, so a list has to be written as one.
#include "data/tensors/class_list.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/shown_text.h"
#include "core/text.h"
#include "data/dataset.h"

namespace ada::data {
namespace {

// JSON of some depth is refused before it is parsed: a list of texts has none.
std::vector<std::string> NamesOfJson(const std::string& text, const std::string& place) {
  const nlohmann::json list = nlohmann::json::parse(
      text,
      [&](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) { return depth <= 1; },
      /*allow_exceptions=*/false);
  const bool good = list.is_array() && std::all_of(list.begin(), list.end(), [](const auto& name) {
                      return name.is_string();
                    });
  if (!good)
    throw DataError(place +
                    ": begins like a JSON list and is none of texts; expected "
                    "[\"cat\", \"dog\"], or cat,dog");
  return list.get<std::vector<std::string>>();
}

std::vector<std::string> NamesBetweenCommas(const std::string& text) {
  constexpr const char* kBlank = " \t\r\n";
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    name.erase(0, std::min(name.find_first_not_of(kBlank), name.size()));
    name.erase(name.find_last_not_of(kBlank) + 1);
    names.push_back(name);
    begin = end + 1;
  }
  return names;
}

}  // namespace

std::vector<std::string> ClassesOfMetadata(const std::map<std::string, std::string>& metadata,
                                           const std::string& path) {
  const auto found = metadata.find("classes");
  if (found == metadata.end()) return {};
  const std::string place = path + ": metadata classes";
  const bool json = found->second.starts_with('[');
  const std::vector<std::string> names =
      json ? NamesOfJson(found->second, place) : NamesBetweenCommas(found->second);
  const bool unnamed =
      std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.empty(); });
  if (names.empty() || unnamed) throw DataError(place + ": a name is empty, or there is none");
  const std::string twice = FirstTwice(names);
  if (!twice.empty())
    throw DataError(place + ": " + Shown(twice) + " is there twice; expected each class once");
  if (names.size() > static_cast<std::size_t>(kMostClasses))
    throw DataError(place + ": " + std::to_string(names.size()) + " names; expected at most " +
                    std::to_string(kMostClasses));
  return names;
}

}  // namespace ada::data

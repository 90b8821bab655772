// Values are checked field by field. What is missing is treated as null, which is of no type that
// is asked for, so that one message serves both.
#include "io/json_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "error.h"

namespace ada {
namespace {

using nlohmann::json;

constexpr std::size_t kLongestShown = 40;  // characters of a value in a message

// Without characters that a terminal obeys.
std::string Ascii(const json& value) { return value.dump(-1, ' ', true); }

// What a message shows of a value: a number or short text itself, of others their kind.
std::string Found(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  const std::string text = Ascii(value);
  return text.size() <= kLongestShown ? text : "a long text";
}

}  // namespace

json ParseJson(const std::string& path, std::string_view text) {
  // The parser itself does not recurse; what reads, copies or writes the values does.
  using Event = json::parse_event_t;
  const auto no_deeper = [&path](int depth, Event event, const json&) {
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (!opens || depth < kMaxJsonDepth) return true;
    throw DataError(path + ": nests more than " + std::to_string(kMaxJsonDepth) +
                    " deep: it is no file of this program");
  };
  json value = json::parse(text, no_deeper, false);
  if (value.is_discarded()) throw DataError(path + ": is not valid JSON: it is cut off or damaged");
  if (!value.is_object()) throw DataError(path + ": expected a JSON object, found " + Found(value));
  return value;
}

JsonFields::JsonFields(const json& object, std::string path, std::string place)
    : object_(object), path_(std::move(path)), place_(std::move(place)) {}

// The name comes from a file: it is shown as JSON writes it, without the quotes.
std::string JsonFields::PlaceOf(const std::string& field) const {
  const std::string quoted = Ascii(field), name = quoted.substr(1, quoted.size() - 2);
  return place_.empty() ? name : place_ + "." + name;
}

void JsonFields::Fail(const std::string& field, const std::string& expected) const {
  const auto found = object_.find(field);
  throw DataError(path_ + ": " + PlaceOf(field) + ": expected " + expected + ", found " +
                  (found == object_.end() ? "nothing" : Found(*found)));
}

const json& JsonFields::At(const std::string& field) const {
  static const json missing;
  const auto found = object_.find(field);
  return found == object_.end() ? missing : *found;
}

JsonFields JsonFields::Object(const std::string& field) const {
  const json& value = At(field);
  if (!value.is_object()) Fail(field, "an object");
  return {value, path_, PlaceOf(field)};
}

bool JsonFields::Has(const std::string& field) const { return object_.contains(field); }

std::int64_t JsonFields::Count(const std::string& field) const {
  const json& value = At(field);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kLargestCount) {
    Fail(field, "a whole number from 0");
  }
  return value.get<std::int64_t>();
}

std::uint64_t JsonFields::Unsigned(const std::string& field) const {
  const json& value = At(field);
  if (!value.is_number_unsigned()) Fail(field, "a whole number from 0");
  return value.get<std::uint64_t>();
}

double JsonFields::Number(const std::string& field) const {
  const json& value = At(field);
  if (!value.is_number()) Fail(field, "a number");
  return value.get<double>();
}

std::string JsonFields::Text(const std::string& field) const {
  const json& value = At(field);
  if (!value.is_string()) Fail(field, "a text");
  return value.get<std::string>();
}

std::vector<double> JsonFields::Numbers(const std::string& field) const {
  const json& list = At(field);
  const bool good = list.is_array() && std::all_of(list.begin(), list.end(),
                                                   [](const json& v) { return v.is_number(); });
  if (!good) Fail(field, "a list of numbers");
  return list.get<std::vector<double>>();
}

std::vector<std::string> JsonFields::TextList(const std::string& field) const {
  const json& list = At(field);
  const bool good = list.is_array() && std::all_of(list.begin(), list.end(),
                                                   [](const json& v) { return v.is_string(); });
  if (!good) Fail(field, "a list of texts");
  return list.get<std::vector<std::string>>();
}

std::map<std::string, std::int64_t> JsonFields::Counts(const std::string& field) const {
  const JsonFields inner = Object(field);
  std::map<std::string, std::int64_t> all;
  for (const auto& item : inner.object_.items()) all[item.key()] = inner.Count(item.key());
  return all;
}

std::map<std::string, std::string> JsonFields::Texts(const std::string& field) const {
  const JsonFields inner = Object(field);
  std::map<std::string, std::string> all;
  for (const auto& item : inner.object_.items()) all[item.key()] = inner.Text(item.key());
  return all;
}

std::map<std::string, std::map<std::string, std::string>> JsonFields::TextMaps(
    const std::string& field) const {
  const JsonFields inner = Object(field);
  std::map<std::string, std::map<std::string, std::string>> all;
  for (const auto& item : inner.object_.items()) all[item.key()] = inner.Texts(item.key());
  return all;
}

}  // namespace ada

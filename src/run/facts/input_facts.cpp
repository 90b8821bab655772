// Writes the facts of a network's input to a checkpoint's JSON, and checks each field that it reads
// back.
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/dataset.h"
#include "io/shown_text.h"
#include "run/facts/data_facts.h"

namespace ada::run {
namespace {

// What a picture, and so a network's input, may be.
constexpr std::int64_t kLargestInputSide = 65'536, kMostInputChannels = 1024;

std::int64_t SizeFrom(const JsonFields& fields, const std::string& field, std::int64_t most) {
  const std::int64_t size = fields.Count(field);
  if (size < 1 || size > most) fields.Fail(field, "1 to " + std::to_string(most));
  return size;
}

}  // namespace

nlohmann::ordered_json JsonOf(const InputFacts& facts) {
  nlohmann::ordered_json json;
  json["height"] = facts.image.h;
  json["width"] = facts.image.w;
  json["channels"] = facts.image.c;
  json["mean"] = facts.mean;
  json["std"] = facts.std;
  json["class_names"] = nlohmann::ordered_json::array();
  for (const std::string& name : facts.class_names) json["class_names"].push_back(ValidUtf8(name));
  return json;
}

// A file may have been changed by hand: everything that later code relies on (a mean and a
// deviation for each channel or none, deviations above 0) is checked here.
InputFacts InputFactsFrom(const JsonFields& fields) {
  InputFacts facts;
  facts.image = {1, SizeFrom(fields, "height", kLargestInputSide),
                 SizeFrom(fields, "width", kLargestInputSide),
                 SizeFrom(fields, "channels", kMostInputChannels)};
  facts.mean = fields.Numbers("mean");
  facts.std = fields.Numbers("std");
  facts.class_names = fields.TextList("class_names");
  const auto channels = static_cast<std::size_t>(facts.image.c);
  for (const auto& [field, values] : {std::pair{"mean", &facts.mean}, {"std", &facts.std}})
    if (values->size() != facts.mean.size() || (!values->empty() && values->size() != channels))
      fields.Fail(field, "a number for each channel, or none");
  for (const double value : facts.std)
    if (!(value > 0) || !std::isfinite(value)) fields.Fail("std", "numbers above 0");
  if (facts.class_names.size() > static_cast<std::size_t>(data::kMostClasses))
    fields.Fail("class_names", "at most " + std::to_string(data::kMostClasses) + " names");
  return facts;
}

}  // namespace ada::run

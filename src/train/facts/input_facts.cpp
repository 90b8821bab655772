#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/shown_text.h"
#include "core/text.h"
#include "data/dataset.h"
#include "train/checkpoint/checkpoint.h"
#include "train/facts/data_facts.h"

namespace ada::train {
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

namespace {

constexpr std::size_t kNamedClasses = 8;  // of each list, in a message

// Names as a checkpoint of any version may hold them.
std::vector<std::string> Comparable(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) shown.push_back(Visible(name));
  return shown;
}

std::string NamedClass(const std::vector<std::string>& names, std::size_t label) {
  return label < names.size() ? names[label] : "none";
}

// What gives classes their names.
std::string AdviceOn(const config::Config& config) {
  switch (data::FactsOf(config.data.dataset).origin) {
    case data::Origin::kFolder:
      return "give the class folders the names of the checkpoint";
    case data::Origin::kLabelImages:
    case data::Origin::kBoxes:
      return "name them in data.class_names as the checkpoint has them";
    case data::Origin::kTensors:
      return "name them in the file's metadata as the checkpoint has them";
    default:
      return "put the names of the checkpoint back";
  }
}

}  // namespace

std::vector<std::string> NamesOfClasses(const config::Config& config,
                                        const data::DatasetInfo& info) {
  if (info.found) return info.found->class_names;
  if (!data::FactsOf(config.data.dataset).layout) return {};
  try {
    return data::ClassNames(config.data.dataset, config.data.path);
  } catch (const DataError&) {  // a damaged list of names: a run goes without, and says so itself
    return {};
  }
}

// A list that is longer, shorter or in another order is refused at the first label that differs.
void RequireSameClasses(const std::string& path, const std::optional<InputFacts>& known,
                        const config::Config& config, const data::DatasetInfo& info) {
  if (!known) return;
  const std::vector<std::string> then = Comparable(known->class_names);
  const std::vector<std::string> now = Comparable(NamesOfClasses(config, info));
  if (then.empty() || now.empty() || then == now) return;
  const auto [one, other] = std::mismatch(then.begin(), then.end(), now.begin(), now.end());
  const auto label = static_cast<std::size_t>(one - then.begin());
  throw DataError(
      path + ": the network was trained with the classes " + FirstNames(then, kNamedClasses) +
      ", and the data (" + config.data.path + ") have " + FirstNames(now, kNamedClasses) +
      ": class " + std::to_string(label) + " is " + NamedClass(then, label) + " there and " +
      NamedClass(now, label) +
      " here, so labels mean other classes; expected the same names in the same order: " +
      AdviceOn(config));
}

void RequireClassesOfRun(const config::Config& config, const data::DatasetInfo& info) {
  const std::string folder = config.output + "/checkpoints";
  for (const std::int64_t step : ListCheckpoints(folder).paired) {
    const std::string path = CheckpointStem(folder, step) + ".json";
    std::optional<InputFacts> known;
    try {
      known = ReadStateText(path).state.input;
    } catch (const DataError&) {  // the search for a checkpoint to go on from says what is wrong
      continue;
    }
    return RequireSameClasses(path, known, config, info);
  }
}

}  // namespace ada::train

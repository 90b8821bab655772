// What the classes of the data are called.
#include <algorithm>

#include "error.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "run/facts/data_facts.h"

namespace ada::run {
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

// Advice on how to name the classes.
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

std::string ClassName(const std::vector<std::string>& names, int label) {
  const auto k = static_cast<std::size_t>(label);
  return k < names.size() && !names[k].empty() ? names[k] : std::to_string(label);
}

}  // namespace ada::run

// Compares a file of weights with the parameters of a network, and names what was probably meant.
#include <algorithm>
#include <unordered_map>

#include "error.h"
#include "graph/network/parameters.h"
#include "graph/network/shapes.h"
#include "io/shown_text.h"
#include "io/text.h"

namespace ada::graph {
namespace {

using ParametersByName = std::unordered_map<std::string, const Parameter*>;

// Names of a foreign file may hold control characters; a message shows the first eight.
std::string Some(std::vector<std::string> names) {
  for (std::string& name : names) name = Visible(name);
  return FirstNames(names, 8);
}

// What was probably meant: a name of the network after a prefix ("module."), or the nearest one.
// Prefixes are tried from the shortest on.
std::string Meant(const std::string& name, const ParametersByName& known,
                  const std::vector<Parameter>& parameters) {
  for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    const std::string rest = name.substr(dot + 1);
    if (known.contains(rest))
      return "; it would be '" + rest + "' without '" + name.substr(0, dot + 1) +
             "', a prefix that wrappers such as DistributedDataParallel add";
  }
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters) names.push_back(parameter.name);
  return Nearest(name, names);
}

// A pattern that matches nothing is a mistake.
void CheckSkip(const config::InitConfig& init, const std::vector<Parameter>& parameters) {
  for (const std::string& pattern : init.skip) {
    const bool used = std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& p) {
      return GlobMatch(pattern, p.name) || GlobMatch(pattern + ".*", p.name);
    });
    if (!used)
      throw ConfigError(PlacePrefix(init.where) + "model.init.skip: '" + pattern +
                        "' matches no layer with weights and no tensor of this model");
  }
}

void RefuseUnknown(const std::string& path, const std::vector<std::string>& unknown,
                   const ParametersByName& known, const std::vector<Parameter>& parameters) {
  const std::string others =
      unknown.size() > 1 ? " (nor those of " + std::to_string(unknown.size() - 1) + " more)" : "";
  throw DataError(path + ": tensor " + unknown[0] + ": the network has none of this name" + others +
                  Meant(unknown[0], known, parameters) +
                  "; model.init.ignore_unknown: true leaves such tensors out");
}

}  // namespace

void CheckTied(const SafetensorsFile& file, const Parameter& parameter) {
  const std::string first = NameInFile(file, parameter);
  for (const std::string& other : parameter.other_names) {
    if (other == first || !file.Find(other)) continue;
    if (file.ReadF32(first) == file.ReadF32(other)) continue;
    throw DataError(file.path() + ": tensors " + first + " and " + other +
                    " differ, and the network has one weight for both; `tied: false` (of one's own "
                    "layers: no `weight_of`) gives each its own");
  }
}

std::string NameInFile(const SafetensorsFile& file, const Parameter& parameter,
                       const std::string& prefix) {
  if (file.Find(prefix + parameter.name)) return prefix + parameter.name;
  for (const std::string& other : parameter.other_names)
    if (file.Find(prefix + other)) return prefix + other;
  return "";
}

std::string WeightsCover::LoadedText() const {
  return path + ": loaded " + std::to_string(loaded) + " of " +
         Counted(static_cast<std::int64_t>(loaded + missing.size()), "tensor");
}

std::string WeightsCover::MissingText() const {
  if (missing.empty()) return "";
  return LoadedText() + "; missing " + Some(missing) +
         ": these start as without a file (model.init.require_all: true makes this an error)";
}

std::string WeightsCover::IgnoredText() const {
  if (ignored.empty()) return "";
  return path + ": left out " + Counted(static_cast<std::int64_t>(ignored.size()), "tensor") +
         " that the network does not have: " + Some(ignored);
}

std::string WeightsCover::SkippedText() const {
  if (skipped.empty()) return "";
  return path + ": left out by model.init.skip, starting without it: " + Some(skipped);
}

bool IsSkipped(const config::InitConfig& init, const std::string& tensor) {
  return std::any_of(init.skip.begin(), init.skip.end(), [&](const std::string& pattern) {
    return GlobMatch(pattern, tensor) || GlobMatch(pattern + ".*", tensor);
  });
}

SafetensorsFile OpenWeights(const config::InitConfig& init) {
  try {
    return SafetensorsFile::Open(init.weights);
  } catch (const DataError& error) {
    throw DataError(std::string("model.init.weights: ") + error.what());
  }
}

// Reads only the header of the file, and the values of weights that are in it twice.
WeightsCover CoverOf(const SafetensorsFile& file, const config::InitConfig& init,
                     const std::vector<Parameter>& parameters) {
  ParametersByName known;
  for (const Parameter& parameter : parameters) {
    known[parameter.name] = &parameter;
    for (const std::string& other : parameter.other_names) known[other] = &parameter;
  }
  CheckSkip(init, parameters);
  WeightsCover cover;
  cover.path = file.path();
  for (const TensorEntry& entry : file.entries()) {
    if (entry.name.ends_with("num_batches_tracked") || IsSkipped(init, entry.name)) continue;
    const auto found = known.find(entry.name);
    if (found == known.end()) {
      cover.ignored.push_back(entry.name);
    } else if (found->second->dims != entry.shape) {
      throw DataError(file.path() + ": tensor " + entry.name + ": expected shape " +
                      DimsText(found->second->dims) + ", found " + DimsText(entry.shape) +
                      "; model.init.skip lets a layer start without the file");
    }
  }
  if (!cover.ignored.empty() && !init.ignore_unknown)
    RefuseUnknown(file.path(), cover.ignored, known, parameters);
  for (const Parameter& parameter : parameters) {
    CheckTied(file, parameter);
    if (IsSkipped(init, parameter.name))
      cover.skipped.push_back(parameter.name);
    else if (!NameInFile(file, parameter).empty())
      ++cover.loaded;
    else
      cover.missing.push_back(parameter.name);
  }
  if (!cover.missing.empty() && (init.require_all || cover.loaded == 0))
    throw DataError(cover.LoadedText() + "; missing " + Some(cover.missing) +
                    (cover.loaded == 0 ? "; the file is of another network"
                                       : " (model.init.require_all: true)"));
  return cover;
}

}  // namespace ada::graph

// Parts of a configuration read for themselves: a scaling section, a format.
// They use the same tables, overrides and problems as a whole document, so keys, hints and places
// in messages do not differ; only the set of known sections is smaller.
#include <algorithm>

#include "config/load.h"
#include "config/overrides.h"
#include "config/sections/sections.h"
#include "config/yaml/document.h"

namespace ada::config {
namespace {

// A document with only `scaling` and `train`.
Section ScalingDocument(LoadedScaling& loaded) {
  Section document;
  document.keys = {
      Nested("scaling", ScalingSection(loaded.scaling), "loss scaling"),
      Nested("train", TrainSection(loaded.train), "length and manner of the training"),
  };
  return document;
}

// Drops sections that exist in a whole configuration but not in `document`. Keys that no section
// has stay, and are then reported as unknown.
YamlNode WithoutOtherSections(YamlNode root, const Section& whole, const Section& document) {
  std::vector<Entry> kept;
  for (Entry& entry : root.entries) {
    const bool other = whole.Find(entry.key.text) && !document.Find(entry.key.text);
    if (!other) kept.push_back(std::move(entry));
  }
  root.entries = std::move(kept);
  return root;
}

// `root`, which may be the scaling section itself, as a document.
YamlNode AsDocument(YamlNode root, const Section& document) {
  Config config;
  const Section whole = RootSection(config);
  // One known top-level key is enough to tell a whole configuration from the section itself: no key
  // of `scaling` has the name of a section.
  const bool is_whole = std::any_of(root.entries.begin(), root.entries.end(), [&](const Entry& e) {
    return whole.Find(e.key.text) != nullptr;
  });
  if (is_whole) return WithoutOtherSections(std::move(root), whole, document);
  YamlNode wrapped;
  wrapped.line = root.line;
  wrapped.column = root.column;
  // The key `scaling` that is wrapped around a bare section was never written; messages about it
  // point to the section's first key.
  Append(wrapped, "scaling", std::move(root));
  YamlNode& key = wrapped.entries.front().key;
  key.line = wrapped.line;
  key.column = wrapped.column;
  return wrapped;
}

// Reads `text`; `root` becomes the document that was read.
// Unlike LoadText it neither takes model files nor completes names, and the caller fills defaults.
LoadedScaling Read(const std::string& text, const std::string& name, const Overrides& overrides,
                   YamlNode& root) {
  Problems problems(name, PlacesOf(overrides));
  LoadedScaling loaded;
  const Section document = ScalingDocument(loaded);
  root = AsDocument(ParseDocument(text, problems), document);
  ApplyOverrides(overrides, document, root, problems, loaded.notes);
  RemoveDuplicates(root, "", problems);
  ReadSection(root, document, {problems, "", root});
  problems.ThrowIfAny();
  return loaded;
}

// Takes the places out of a tree: it is one short text.
void ForgetPlaces(YamlNode& node) {
  node.line = node.column = 0;
  for (YamlNode& item : node.items) ForgetPlaces(item);
  for (Entry& entry : node.entries) {
    ForgetPlaces(entry.key);
    ForgetPlaces(entry.value);
  }
}

// The format that an option has as its text; `read` says what it may be.
template <class Format, class Read>
Format ReadOption(const std::string& option, const std::string& yaml_text, Format otherwise,
                  Read read) {
  Problems problems(option, {});
  Format format = otherwise;
  try {
    YamlNode node = ParseYaml(yaml_text, 0);
    RemoveDuplicates(node, "", problems);
    ForgetPlaces(node);
    format = read(node, ReadContext{problems, "", node}).value_or(otherwise);
  } catch (const ParseProblem& problem) {
    problems.Add(YamlNode(), "", "'" + yaml_text + "': " + problem.message);
  }
  problems.ThrowIfAny();
  return format;
}

}  // namespace

LoadedScaling LoadScalingText(const std::string& text, const std::string& name,
                              const Overrides& overrides) {
  YamlNode root;
  return Read(text, name, overrides, root);
}

LoadedScaling LoadScaling(const std::string& path, const Overrides& overrides) {
  return LoadScalingText(ReadTextFile(path), path, overrides);
}

LoadedUpdate LoadUpdate(const std::string& path, const Overrides& overrides) {
  LoadedUpdate loaded;
  Section document;
  document.keys = {
      Nested("optimizer", OptimizerSection(loaded.optimizer), "update rule"),
      Nested("precision", PrecisionSection(loaded.precision), "number formats"),
      Nested("scaling", ScalingSection(loaded.scaling), "loss scaling"),
      Nested("train", TrainSection(loaded.train), "length and manner of the training"),
  };
  Config config;
  const Section whole = RootSection(config);
  Problems problems(path.empty() ? "--set" : path, PlacesOf(overrides));
  const std::string text = path.empty() ? "{}" : ReadTextFile(path);
  YamlNode root = WithoutOtherSections(ParseDocument(text, problems), whole, document);
  ApplyOverrides(overrides, document, root, problems, loaded.notes);
  RemoveDuplicates(root, "", problems);
  ReadSection(root, document, {problems, "", root});
  CheckUpdate(loaded.optimizer, loaded.precision, root, problems);
  problems.ThrowIfAny();
  FillScalingDefaults(loaded.scaling, loaded.train);
  return loaded;
}

Loaded LoadPrecision(const Overrides& overrides) {
  Problems problems("(precision)", PlacesOf(overrides));
  Loaded loaded;
  Section document = RootSection(loaded.config);
  document.check = nullptr;
  std::erase_if(document.keys, [](const Key& key) {
    return key.name != "precision" && key.name != "seed" && key.name != "device";
  });
  YamlNode root = ParseDocument("precision: {}", problems);
  ApplyOverrides(overrides, document, root, problems, loaded.notes);
  RemoveDuplicates(root, "", problems);
  ReadSection(root, document, {problems, "", root});
  problems.ThrowIfAny();
  const YamlNode& precision = *root.Find("precision");
  if (precision.kind == YamlNode::Kind::kScalar || precision.Find("format"))
    loaded.config.places["precision.format"] = {};
  return loaded;
}

// A file's `precision: fp16` has the place of the section alone; no recipe stands beside it.
PrecisionConfig PrecisionOfStored(const Config& config) {
  PrecisionConfig precision = config.precision;
  if (precision.recipe != PrecisionRecipe::kNone && config.places.count("precision.format") == 0)
    precision.format = kFp32;
  return precision;
}

AdaptiveOverrides ReadAdaptive(const Overrides& overrides) {
  // inspect compares methods of policy adaptive from a dump, and wants to know which of method and
  // scale the user gave, since method fixed takes part in the comparison only with a scale.
  const auto sets = [&](const char* key) {
    return std::any_of(overrides.begin(), overrides.end(),
                       [&](const auto& item) { return item.first == key; });
  };
  // A scale without a method is read as if its method were given too.
  const bool lone_scale = sets("scaling.scale") && !sets("scaling.method");
  Overrides all = overrides;
  if (lone_scale) all.emplace_back("scaling.method", "fixed");
  YamlNode root;
  AdaptiveOverrides read;
  read.scaling = Read("policy: adaptive\n", "(policy adaptive)", all, root).scaling;
  const YamlNode& section = *root.Find("scaling");
  read.has_method = section.Find("method") && !lone_scale;
  read.has_scale = section.Find("scale") != nullptr;
  // The method that made the reading pass is taken back, so that the caller sees the default.
  if (lone_scale) read.scaling.adaptive.method = scaling::AdaptiveSettings().method;
  return read;
}

NumberFormat ReadFormat(const std::string& yaml_text) {
  return ReadOption("--format", yaml_text, kFp32,
                    [](const YamlNode& node, const ReadContext& context) {
                      return ReadFormatNode(node, false, {}, context);
                    });
}

AnyFormat ReadAnyFormat(const std::string& yaml_text) {
  return ReadOption("--format", yaml_text, AnyFormat(kFp32),
                    [](const YamlNode& node, const ReadContext& context) {
                      return ReadAnyFormatNode(node, false, context);
                    });
}

AnyFormat ReadTensorFormat(const std::string& option, const std::string& yaml_text) {
  return ReadOption(option, yaml_text, AnyFormat(kFp32),
                    [](const YamlNode& node, const ReadContext& context) {
                      return ReadAnyFormatNode(node, true, context);
                    });
}

}  // namespace ada::config

// Parts of a configuration read for themselves: a scaling section, a format.
#include <algorithm>

#include "config/load.h"
#include "config/sections/sections.h"
#include "config/yaml/document.h"
#include "config/yaml/overrides.h"

namespace ada::config {
namespace {

// A document of `scaling` and `train` alone.
Section ScalingDocument(LoadedScaling& loaded) {
  Section document;
  document.keys = {
      Nested("scaling", ScalingSection(loaded.scaling), "loss scaling"),
      Nested("train", TrainSection(loaded.train), "length and manner of the training"),
  };
  return document;
}

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
  const bool is_whole = std::any_of(root.entries.begin(), root.entries.end(), [&](const Entry& e) {
    return whole.Find(e.key.text) != nullptr;
  });
  if (is_whole) return WithoutOtherSections(std::move(root), whole, document);
  YamlNode wrapped;
  wrapped.line = root.line;
  wrapped.column = root.column;
  Append(wrapped, "scaling", std::move(root));
  YamlNode& key = wrapped.entries.front().key;
  key.line = wrapped.line;
  key.column = wrapped.column;
  return wrapped;
}

// Reads `text`; `root` becomes the document that was read.
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

AdaptiveOverrides ReadAdaptive(const Overrides& overrides) {
  const auto sets = [&](const char* key) {
    return std::any_of(overrides.begin(), overrides.end(),
                       [&](const auto& item) { return item.first == key; });
  };
  // A scale alone is read as if its method stood beside it.
  const bool lone_scale = sets("scaling.scale") && !sets("scaling.method");
  Overrides all = overrides;
  if (lone_scale) all.emplace_back("scaling.method", "fixed");
  YamlNode root;
  AdaptiveOverrides read;
  read.scaling = Read("policy: adaptive\n", "(policy adaptive)", all, root).scaling;
  const YamlNode& section = *root.Find("scaling");
  read.has_method = section.Find("method") && !lone_scale;
  read.has_scale = section.Find("scale") != nullptr;
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

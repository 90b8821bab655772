// The keys of `model.init`: how the parameters of a network start.
#include "config/sections/sections.h"

namespace ada::config {
namespace {

const EnumNames<InitScheme> kSchemes = {
    {"he_normal", InitScheme::kHeNormal},
    {"he_uniform", InitScheme::kHeUniform},
    {"xavier_normal", InitScheme::kXavierNormal},
    {"xavier_uniform", InitScheme::kXavierUniform},
    {"lecun_normal", InitScheme::kLecunNormal},
    {"lecun_uniform", InitScheme::kLecunUniform},
    {"normal", InitScheme::kNormal},
    {"uniform", InitScheme::kUniform},
    {"constant", InitScheme::kConstant},
};

const EnumNames<InitRule::Fan> kInitFans = {{"in", InitRule::Fan::kIn},
                                            {"out", InitRule::Fan::kOut}};

// The distribution's own keys, each of the schemes that it belongs to.
// Shared by model.init and its `parameters`: both are an InitRule.
std::vector<Key> DistributionKeys(InitRule& rule) {
  const Names one_fan = {"he_normal", "he_uniform", "lecun_normal", "lecun_uniform"};
  const Names fans = {"he_normal",      "he_uniform",   "xavier_normal",
                      "xavier_uniform", "lecun_normal", "lecun_uniform"};
  return {
      Choice("scheme", rule.scheme, kSchemes, "distribution of the first weights"),
      Choice("fan", rule.fan, kInitFans,
             "in: the values that one output is a sum of; out: the outputs that one value goes to")
          .For(one_fan)
          .WrittenIf([&rule] { return rule.fan != InitRule().fan; }),
      Number(
          "gain", rule.gain, Above(0),
          "factor of the standard deviation 1 / sqrt(fan); xavier: of sqrt(2 / (fan_in + fan_out))")
          .For(fans)
          .Default("he: sqrt(2); xavier, lecun: 1"),
      Number("std", rule.std, Above(0), "standard deviation")
          .For({"normal"})
          .RequiredFor({"normal"})
          .Default("required"),
      Number("bound", rule.bound, Above(0), "numbers lie between -bound and bound")
          .For({"uniform"})
          .RequiredFor({"uniform"})
          .Default("required"),
      Number("value", rule.value, AnyNumber(), "the value of all elements")
          .For({"constant"})
          .RequiredFor({"constant"})
          .Default("required"),
  };
}

void SetSchemes(Section& section) {
  section.discriminator = "scheme";
  for (const auto& scheme : kSchemes) section.choices.push_back(scheme.first);
  section.default_choice = "he_normal";
}

// An entry is a rule of its own and takes nothing from model.init: `gain` without `scheme` is that
// of he_normal.
Section InitParametersSection(InitParametersConfig& entry) {
  Section section;
  section.path = "model.init.parameters[]";
  section.where = &entry.where;
  SetSchemes(section);
  section.keys = {
      Text("match", entry.match, "glob on parameter names; the last match wins, as a whole")
          .Required(),
  };
  for (Key& key : DistributionKeys(entry)) section.keys.push_back(std::move(key));
  return section;
}

// A key about reading a file is not written if there is no file.
Key OfWeights(Key key, const InitConfig& init) {
  key.unused = [&init] { return init.weights.empty(); };
  return key;
}

// Keys that say how a file is read, without a file, are refused; the weights may have had a
// problem.
void CheckInit(const InitConfig& init, const YamlNode& map, const ReadContext& context) {
  const std::string weights = Join(context.path, "weights");
  if (!init.weights.empty() || !context.problems.Clean({weights})) return;
  for (const char* key : {"require_all", "ignore_unknown", "skip"}) {
    const Entry* entry = map.FindEntry(key);
    if (!entry) continue;
    context.problems.Add(entry->key, Join(context.path, key),
                         "says how a file of weights is read; give `weights` too");
  }
}

}  // namespace

Section InitSection(InitConfig& init) {
  Section section;
  section.path = "model.init";
  section.starts_by_outer = true;
  section.where = &init.where;
  SetSchemes(section);
  section.keys = DistributionKeys(init);
  section.keys.front().Default(
      "he_normal; ssd300, ssd512: lecun_uniform; transformers: normal, std 0.02");
  std::vector<Key> others = {
      Entries("parameters", init.parameters, &InitParametersSection,
              "parameters that start otherwise")
          .WrittenIf([&init] { return !init.parameters.empty(); }),
      Switch("zero_gamma", init.zero_gamma,
             "gamma of the last batch norm on the longer way into each addition starts at 0")
          .WrittenIf([&init] { return init.zero_gamma; }),
      Text(
          "weights", init.weights,
          "safetensors file whose tensors replace the scheme's; those that it lacks are named in a "
          "warning",
          ExpandPath),
      OfWeights(Switch("require_all", init.require_all,
                       "a tensor of the network that `weights` lacks is an error"),
                init),
      OfWeights(Switch("ignore_unknown", init.ignore_unknown,
                       "leave out tensors of `weights` that the network does not have; false: they "
                       "are errors"),
                init),
      OfWeights(TextList("skip", init.skip, {},
                         "globs on layers or tensors that start by the scheme, whatever `weights` "
                         "has for them"),
                init),
  };
  for (Key& key : others) section.keys.push_back(std::move(key));
  section.check = [&init](const YamlNode& map, const ReadContext& context) {
    CheckInit(init, map, context);
  };
  return section;
}

// Changes the struct and the table together: the default choice decides which keys are known before
// `scheme` is read, and a std that has a default need not be given.
void StartBy(InitScheme scheme, double std, Section& section, InitConfig& init) {
  const bool normal = scheme == InitScheme::kNormal;
  init.scheme = scheme;
  init.std = std;
  section.default_choice = normal ? "normal" : "he_normal";
  for (Key& key : section.keys)
    if (key.name == "std") key.required_for = normal ? Names{} : Names{"normal"};
}

}  // namespace ada::config

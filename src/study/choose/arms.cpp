// Which arms there are: formats, recipes, either with a policy, and files of keys.
#include <algorithm>
#include <filesystem>

#include "config/recipes.h"
#include "error.h"
#include "io/text.h"
#include "number/blocks/block_format.h"
#include "scaling/policies/presets.h"
#include "study/choose/choice.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

bool IsRecipe(const std::string& name) {
  const std::vector<config::RecipeLine> all = config::Recipes();
  return std::any_of(all.begin(), all.end(), [&](const auto& line) { return line.name == name; });
}

// Files of keys end like one, or lie there under this name.
bool IsFragment(const std::string& word) {
  const auto ends = [&](const char* ending) { return word.ends_with(ending); };
  if (ends(".yaml") || ends(".yml") || ends(".json")) return true;
  std::error_code error;
  return word.find('/') != std::string::npos && std::filesystem::is_regular_file(word, error);
}

std::string UnknownArm(const std::string& option, const std::string& word) {
  std::vector<std::string> known;
  for (const NamedFormat& format : NamedFormats()) known.emplace_back(format.name);
  for (const NamedBlockFormat& format : NamedBlockFormats()) known.emplace_back(format.name);
  for (const config::RecipeLine& recipe : config::Recipes()) known.push_back(recipe.name);
  return option + " " + word +
         ": expected a format (`ada-train formats`), a recipe (`ada-train recipes`), either with "
         "+POLICY or +STATE, or a file of keys (.yaml)" +
         DidYouMean(word, known);
}

// Returns the section `precision` of a format or recipe. Products of block-scaled operands are
// stored in bf16, as recipes have it.
std::string PrecisionOf(const std::string& option, const std::string& word,
                        const std::string& layout) {
  const std::string state = layout.empty() ? "" : ", optimizer_state: " + layout;
  if (IsRecipe(word)) return "{recipe: " + word + state + "}";
  try {
    const AnyFormat format = config::ReadTensorFormat(option, word);
    if (std::holds_alternative<BlockFormat>(format))
      return "{format: bf16, operands: " + word + state + "}";
    return "{format: " + word + state + "}";
  } catch (const ConfigError&) {
    if (word.find('{') != std::string::npos) throw;
    throw ConfigError(UnknownArm(option, word));
  }
}

// A policy, or a preset of `dynamic` by its name.
std::string ScalingOf(const std::string& policy) {
  if (policy.empty()) return "{policy: none}";
  if (Contains(scaling::PresetNames(), policy)) return "{policy: dynamic, preset: " + policy + "}";
  if (!Contains(scaling::PolicyNames(), policy)) {
    std::vector<std::string> known = scaling::PolicyNames();
    for (const std::string& preset : scaling::PresetNames()) known.push_back(preset);
    for (const std::string& layout : config::StateLayouts()) known.push_back(layout);
    throw ConfigError("+" + policy +
                      ": expected a policy or a preset (`ada-train policies`), or a layout of "
                      "precision.optimizer_state" +
                      DidYouMean(policy, known));
  }
  return "{policy: " + policy + "}";
}

// The words that a plus joins, but not within braces.
std::vector<std::string> WordsOf(const std::string& word) {
  std::vector<std::string> words(1);
  int depth = 0;
  for (const char c : word) {
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c == '+' && depth == 0)
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

Arm ReadArm(const std::string& word) {
  Arm arm;
  arm.name = IsFragment(word) ? std::filesystem::path(word).stem().string() : word;
  arm.keys = KeysOfArm("--formats", word);
  arm.folder = FolderWord(arm.name);
  return arm;
}

}  // namespace

config::Overrides KeysOfArm(const std::string& option, const std::string& word) {
  if (IsFragment(word)) return config::OverridesFrom(word);
  const std::vector<std::string> words = WordsOf(word);
  std::string policy, layout;
  for (std::size_t i = 1; i < words.size(); ++i) {
    std::string& field = Contains(config::StateLayouts(), words[i]) ? layout : policy;
    if (!field.empty())
      throw ConfigError(option + " " + word + ": expected one policy and one layout of states; " +
                        field + " and " + words[i] + " exclude each other");
    if (words[i].empty()) throw ConfigError(option + " " + word + ": nothing follows the +");
    field = words[i];
  }
  return {{"precision", PrecisionOf(option, words[0], layout)}, {"scaling", ScalingOf(policy)}};
}

std::vector<Arm> ReadArms(const ChooseOptions& options) {
  std::vector<Arm> arms = {ReadArm(options.baseline)};
  const Arm& baseline = arms.front();
  const std::string first = baseline.name;
  std::vector<std::string> given;
  for (const std::string& word : options.formats) {
    if (Contains(given, word))
      throw ConfigError("--formats: " + word + " is named twice; expected each arm once");
    given.push_back(word);
    Arm arm = ReadArm(word);
    if (word == options.baseline) continue;  // it is there
    for (const Arm& other : arms)
      if (other.name == arm.name)
        throw ConfigError("--formats " + word + ": another arm is called " + arm.name +
                          " too; expected files of different names");
    // Folders of different arms differ, also where what tells them apart is no letter.
    int number = 2;
    const std::string folder = arm.folder;
    const auto taken = [&] {
      return std::any_of(arms.begin(), arms.end(),
                         [&](const Arm& other) { return other.folder == arm.folder; });
    };
    while (taken()) arm.folder = folder + "-" + std::to_string(number++);
    arms.push_back(std::move(arm));
  }
  if (arms.size() < 2)
    throw ConfigError("--formats: expected an arm beside the baseline, " + first);
  return arms;
}

}  // namespace ada::study

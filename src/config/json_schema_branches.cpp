// What a choice (policy, kind, data set, preset) changes about the keys of its section. Choices
// with equal effects share an if-then.
#include <algorithm>

#include "config/json_schema_parts.h"
#include "core/text.h"

namespace ada::config {
namespace {

using Json = SchemaJson;

// What some choices of a section refuse and need.
struct Branch {
  Names choices;
  Names refused, needed;
  std::vector<std::pair<std::string, Names>> refused_in;  // in the entries of a list
  bool empty() const { return refused.empty() && needed.empty() && refused_in.empty(); }
  bool SameAs(const Branch& other) const {
    return refused == other.refused && needed == other.needed && refused_in == other.refused_in;
  }
};

// The branches of `branches` with equal contents become one; those without contents go.
std::vector<Branch> Merged(const std::vector<Branch>& branches) {
  std::vector<Branch> merged;
  for (const Branch& branch : branches) {
    if (branch.empty()) continue;
    const auto same = std::find_if(merged.begin(), merged.end(),
                                   [&](const Branch& other) { return other.SameAs(branch); });
    if (same == merged.end()) {
      merged.push_back(branch);
    } else {
      same->choices.insert(same->choices.end(), branch.choices.begin(), branch.choices.end());
    }
  }
  return merged;
}

// The keys that `section` does not know under `choice`.
Names Misfits(const Section& section, const std::string& choice) {
  Names names;
  for (const Key& key : section.keys) {
    if (!section.Knows(key, choice)) names.push_back(key.name);
  }
  return names;
}

Branch BranchOf(const Section& section, const std::string& choice) {
  Branch branch;
  branch.choices = {choice};
  branch.refused = Misfits(section, choice);
  for (const Key& key : section.keys) {
    if (Contains(key.required_for, choice)) branch.needed.push_back(key.name);
    if (!key.section || !key.section->chosen || !section.Knows(key, choice)) continue;
    const Names inner = Misfits(*key.section, choice);
    if (!inner.empty()) branch.refused_in.emplace_back(key.name, inner);
  }
  return branch;
}

Branch RefinedBranchOf(const Section& section, const std::string& refinement) {
  Branch branch;
  branch.choices = {refinement};
  for (const Key& key : section.keys) {
    if (!key.refined_for.empty() && !Contains(key.refined_for, refinement)) {
      branch.refused.push_back(key.name);
    }
  }
  return branch;
}

// Holds for a map whose `chooser` is one of `choices`, or is not given where that means one of
// them.
Json ConditionJson(const std::string& chooser, const Names& choices,
                   const std::string& default_word) {
  Json json = {{"properties", {{chooser, {{"enum", choices}}}}}};
  if (!Contains(choices, default_word)) json["required"] = {chooser};
  return json;
}

Json RefusedJson(const Names& names) {
  Json json = Json::object();
  for (const std::string& name : names) json[name] = false;
  return json;
}

Json ConsequenceJson(const Branch& branch) {
  Json properties = RefusedJson(branch.refused);
  for (const auto& [list, names] : branch.refused_in) {
    properties[list] = {{"items", {{"properties", RefusedJson(names)}}}};
  }
  Json json = Json::object();
  if (!properties.empty()) json["properties"] = properties;
  if (!branch.needed.empty()) json["required"] = branch.needed;
  return json;
}

}  // namespace

SchemaJson BranchesOf(const Section& section) {
  Json rules = Json::array();
  std::vector<Branch> branches;
  if (!section.chosen) {
    for (const std::string& choice : section.choices) {
      branches.push_back(BranchOf(section, choice));
    }
  }
  for (const Branch& branch : Merged(branches)) {
    rules.push_back({{"if", ConditionJson(section.chooser, branch.choices, section.default_choice)},
                     {"then", ConsequenceJson(branch)}});
  }
  if (!section.alternative.empty()) {
    const Json other = {{"required", {section.alternative}},
                        {"not", {{"required", {section.chooser}}}}};
    rules.push_back(
        {{"if", other}, {"then", ConsequenceJson(BranchOf(section, section.alternative))}});
  }
  branches.clear();
  for (const std::string& refinement : section.refinements) {
    branches.push_back(RefinedBranchOf(section, refinement));
  }
  for (const Branch& branch : Merged(branches)) {
    rules.push_back(
        {{"if", ConditionJson(section.refiner, branch.choices, section.default_refinement)},
         {"then", ConsequenceJson(branch)}});
  }
  return rules;
}

}  // namespace ada::config

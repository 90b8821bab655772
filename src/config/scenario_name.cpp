// Compares the written section with that of the bare policy, key by key.
// The name of a what-if scenario is a cell of what_if.csv: it has no commas, and it depends on
// nothing but the entry itself.
#include <algorithm>

#include "config/load.h"
#include "config/sections/sections.h"

namespace ada::config {
namespace {

void AppendPart(std::string& name, const std::string& part) {
  name += (name.empty() ? "" : " ") + part;
}

// A key is named where its value differs from the policy's default, and always where the policy
// requires it (fixed: scale). Lists appear by their key only: their text would be long and have
// commas.
std::string ScalingName(scaling::Settings scaling) {
  scaling::Settings bare;
  bare.policy = scaling.policy;
  const Section section = ScalingSection(scaling);
  const YamlNode usual = WriteSection(ScalingSection(bare));
  std::string name = "policy=" + scaling.policy;
  for (const Entry& entry : WriteSection(section).entries) {
    const std::string& key = entry.key.text;
    if (key == section.discriminator) continue;
    const YamlNode* other = usual.Find(key);
    const Names& needed = section.Find(key)->required_for;
    const bool always = std::find(needed.begin(), needed.end(), scaling.policy) != needed.end();
    if (!always && other && FlowText(*other) == FlowText(entry.value)) continue;
    const bool list = entry.value.kind == YamlNode::Kind::kList;
    AppendPart(name, key + (list ? "" : "=" + entry.value.text));
  }
  return name;
}

}  // namespace

std::vector<scaling::Accumulator> LogConfig::judged_sums() const {
  std::vector<scaling::Accumulator> rules;
  for (const WhatIfConfig& entry : what_if)
    if (entry.accumulate) rules.push_back(*entry.accumulate);
  return rules;
}

std::vector<BlockFormat> LogConfig::judged_formats() const {
  std::vector<BlockFormat> formats;
  for (const WhatIfConfig& entry : what_if)
    if (const BlockFormat* format = entry.block_format()) formats.push_back(*format);
  return formats;
}

std::string NameOf(const WhatIfConfig& what_if) {
  std::string name;
  if (what_if.format) {
    std::string format = FormatName(*what_if.format);
    // A custom format is written as a flow map, whose commas a CSV cell must not have.
    std::erase(format, ',');
    AppendPart(name, "format=" + format);
  }
  if (what_if.scale) AppendPart(name, "scale=" + NumberText(*what_if.scale));
  if (what_if.accumulate) {
    std::string rule = scaling::AccumulatorText(*what_if.accumulate);
    std::erase(rule, ',');
    AppendPart(name, "accumulate=" + rule);
  }
  if (what_if.scaling) AppendPart(name, ScalingName(*what_if.scaling));
  return name;
}

}  // namespace ada::config

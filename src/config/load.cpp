// The order of things: text, tree, overrides, sections, checks across sections, and the defaults
// that depend on the policy.
#include "config/load.h"

#include <sstream>

#include "config/overrides.h"
#include "config/sections/sections.h"
#include "config/yaml/document.h"
#include "error.h"
#include "io/text.h"
#include "scaling/policies/presets.h"

namespace ada::config {

namespace {

// Notes the place of every key in maps, for KeyText. Lists have no paths of their own and are
// skipped: their entries hold a Location where messages need one.
void NotePlaces(const YamlNode& map, const std::string& path, const Problems& problems,
                std::map<std::string, Location>* places) {
  for (const Entry& entry : map.entries) {
    const std::string key = Join(path, entry.key.text);
    (*places)[key] = problems.Where(entry.value);
    NotePlaces(entry.value, key, problems, places);
  }
}

}  // namespace

Loaded LoadText(const std::string& text, const std::string& name, const Overrides& overrides) {
  // The order matters. Overrides go in first, so that `model.file` may be set by one; the included
  // file must be in the tree before DropMeaningless looks at choices; and duplicates are reported
  // at last, when the tree no longer changes.
  Problems problems(name, PlacesOf(overrides));
  YamlNode root = ParseDocument(text, problems);
  Loaded loaded;
  const Section document = RootSection(loaded.config);
  SetOverrides(overrides, document, root, problems, loaded.notes);
  TakeModelFile(root, problems, loaded.notes);
  DropMeaningless(document, root, problems, loaded.notes);
  RemoveDuplicates(root, "", problems);
  ReadSection(root, document, {problems, "", root});
  Complete(loaded.config, root, name, problems);
  problems.ThrowIfAny();
  NotePlaces(root, "", problems, &loaded.config.places);
  return loaded;
}

Loaded Load(const std::string& path, const Overrides& overrides) {
  return LoadText(ReadTextFile(path), path, overrides);
}

namespace {

// Walks the maps of a partial configuration and makes an override of each leaf. Lists stay whole:
// an override can replace a list but not one entry of it. So do maps that are one value. section:
// of the map; null: none that is known.
void AddLeaves(const YamlNode& map, const std::string& path, const Section* section,
               const Problems& problems, Overrides& overrides) {
  for (const Entry& entry : map.entries) {
    const std::string key = Join(path, entry.key.text);
    const Key* known = section ? section->Find(entry.key.text) : nullptr;
    if (entry.value.kind == YamlNode::Kind::kMap && !(known && known->TakesWhole(entry.value))) {
      AddLeaves(entry.value, key, known ? known->section.get() : nullptr, problems, overrides);
    } else {
      overrides.emplace_back(key, FlowText(entry.value));
      overrides.back().where = problems.Where(entry.key);
    }
  }
}

// Whether a text has lines, and all of them are comments or blank.
bool IsAllComments(const std::string& text) {
  std::istringstream lines(text);
  bool any = false;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find_first_not_of(" \t\r");
    if (at == std::string::npos) continue;
    if (line[at] != '#') return false;
    any = true;
  }
  return any;
}

}  // namespace

Overrides OverridesFrom(const std::string& path) {
  const std::string text = ReadTextFile(path);
  Overrides overrides;
  if (IsAllComments(text)) return overrides;
  Problems problems(path, {});
  YamlNode root = ParseDocument(text, problems);
  RemoveDuplicates(root, "", problems);
  problems.ThrowIfAny();
  Config config;
  const Section document = RootSection(config);
  AddLeaves(root, "", &document, problems, overrides);
  return overrides;
}

// Looks for the key, then for the map around it, and so on upwards: a key that was not written has
// the place of the nearest map that was.
std::string KeyText(const Config& config, const std::string& key) {
  for (std::string at = key; !at.empty();
       at = at.substr(0, at.find('.') == std::string::npos ? 0 : at.rfind('.'))) {
    const auto found = config.places.find(at);
    if (found == config.places.end()) continue;
    const std::string place = ToString(found->second);
    return place == "--set " + key ? place : place + ": " + key;
  }
  return key;
}

// The tables bind to fields by reference that is not const, since reading writes through them;
// hence the copy.
YamlNode ToNode(const Config& config) {
  Config copy = config;
  return WriteSection(RootSection(copy));
}

// Bounds are compared again here because one of them may be given and the other the policy's
// default: the check of the section sees only what was written.
void FillScalingDefaults(scaling::Settings& s, TrainConfig& train) {
  scaling::FillDefaults(s);
  if (scaling::BoundsCross(s.min_scale, s.max_scale))
    throw ConfigError(ToString(s.where) + ": scaling.min_scale: " + ShortestText(*s.min_scale) +
                      " is above max_scale, " + ShortestText(*s.max_scale) +
                      " (given, or the policy's own)");
  CheckLayerBounds(s);
  if (train.on_overflow == OnOverflow::kPreset)
    train.on_overflow = scaling::RetriesSkippedSteps(s) ? OnOverflow::kRetry : OnOverflow::kSkip;
}

namespace {

// Steps between histograms that nobody asked for: rare enough to cost little, and never in a step
// that is not logged anyway.
std::int64_t SparseHistograms(std::int64_t every) {
  constexpr std::int64_t kSteps = 200;
  return every == 0 ? 0 : (kSteps + every - 1) / every * every;
}

}  // namespace

void FillDefaults(Config& config) {
  FillScalingDefaults(config.scaling, config.train);
  for (WhatIfConfig& entry : config.log.what_if) {
    TrainConfig unused;  // the run decides about skipped steps, not a preset
    if (entry.scaling) FillScalingDefaults(*entry.scaling, unused);
  }
  LogConfig& log = config.log;
  if (!log.histogram_every) log.histogram_every = SparseHistograms(log.every);
  if (!log.statistics_given)
    for (std::string& word : AddedStatistics(config.precision))
      log.statistics.push_back(std::move(word));
  log.statistics_given = true;
  PrecisionConfig& p = config.precision;
  // Under `reference` the authors' program keeps dw in the gradients' format, so the role follows
  // it in every stretch of the schedule. Entries that say weight_gradients themselves are left as
  // they are.
  if (p.weight_gradients || !scaling::MakePolicy(config.scaling)->FollowsReference()) return;
  p.weight_gradients = p.gradients.value_or(p.format);
  for (PrecisionSwitchConfig& change : p.schedule) {
    const PrecisionConfig at = PrecisionAt(p, change.from_step);
    if (!change.weight_gradients && (change.format || change.gradients))
      change.weight_gradients = at.gradients.value_or(at.format);
  }
}

std::string ToYaml(const Config& config) { return DocumentText(ToNode(config)); }

std::string YamlText(std::string_view text) { return FlowText(TextNode(std::string(text))); }

}  // namespace ada::config

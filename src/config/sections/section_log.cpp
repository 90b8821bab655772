// The keys of `log`: what is written down of a run, how often, and which other choices are judged.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "config/derived.h"
#include "config/sections/sections.h"

namespace ada::config {
namespace {

const EnumNames<DumpOn> kDumpsOn = {
    {"never", DumpOn::kNever}, {"skip", DumpOn::kSkip}, {"alert", DumpOn::kAlert}};

// What RefuseScenarioName lets pass.
constexpr char kScenarioPattern[] = R"(^[^,"\u0000-\u001f\u007f]+$)";

// A name is one cell of a CSV, also for readers that split at every comma.
// The same as kScenarioPattern, which a schema has.
std::string RefuseScenarioName(std::string& name) {
  const bool good = std::none_of(name.begin(), name.end(), [](unsigned char c) {
    return c == ',' || c == '"' || c < 0x20 || c == 0x7f;
  });
  return good ? "" : "a scenario's name has no commas, quotes and control characters";
}

// A policy with its keys; unset where nothing is given.
Key ScenarioScalingKey(std::optional<scaling::Settings>& scaling) {
  Key key = MakeKey("scaling", "map", "a policy that decides the scale instead");
  key.range = "the keys of `scaling`";
  key.schemas = {MapSchema([] { return ExampleSection<scaling::Settings>(ScalingSection); })};
  key.read = [&scaling](const YamlNode& node, const ReadContext& context) {
    scaling::Settings read;
    ReadSection(node, ScalingSection(read), context);
    scaling = read;
  };
  key.write = [&scaling]() -> std::optional<YamlNode> {
    if (!scaling) return std::nullopt;
    return WriteSection(ScalingSection(*scaling));
  };
  return key;
}

// One scenario changes the format, the scale or the policy; format may be combined with either of
// the others. judge/ judges scenarios from the histograms of a step.
Section WhatIfSection(WhatIfConfig& what_if) {
  Section section;
  section.path = "log.what_if[]";
  section.where = &what_if.where;
  section.keys = {
      Text("name", what_if.name, "its name in what_if.csv", RefuseScenarioName)
          .Fits(kScenarioPattern)
          .Default("made of the rest"),
      AnyFormatKey("format", what_if.format,
                   "format to which every tensor would be rounded; a block-scaled one: every "
                   "operand of convolutions and linear layers")
          .Default("each tensor's own"),
      Number("scale", what_if.scale, ScaleRange(), "scale that every tensor would carry")
          .Default("each tensor's own"),
      ScenarioScalingKey(what_if.scaling),
      AccumulatorRuleKey(what_if.accumulate, "accumulator that would make the sums of all products")
          .Default("each product's own"),
  };
  section.needs_one = {{"format", "scale", "scaling", "accumulate"},
                       "changes nothing; expected format, scale, scaling or accumulate"};
  section.not_both = {{"scale", "scaling"}, "give either scale or scaling, not both"};
  section.check = [&what_if](const YamlNode& map, const ReadContext& context) {
    if (what_if.accumulate)
      for (const char* key : {"format", "scale", "scaling"})
        if (const Entry* entry = map.FindEntry(key))
          context.problems.Add(entry->key, Join(context.path, key),
                               "sums are judged of the products that the run makes; leave it out "
                               "beside accumulate");
    if (what_if.block_format() == nullptr) return;
    for (const char* key : {"scale", "scaling"})
      if (const Entry* entry = map.FindEntry(key))
        context.problems.Add(entry->key, Join(context.path, key),
                             "a block-scaled format has scales of its own; leave it out");
  };
  return section;
}

// Fills in the names that are not given; a name stands for one scenario.
// Names that were given come first; a made name that is taken gets a number, "scale=8 #2".
void NameScenarios(std::vector<WhatIfConfig>& scenarios, const YamlNode& list,
                   const ReadContext& context) {
  std::set<std::string> taken;
  for (std::size_t i = 0; i < scenarios.size(); ++i) {
    const std::string& name = scenarios[i].name;
    if (name.empty()) continue;
    if (!taken.insert(name).second) {
      context.problems.Add(*list.items[i].Find("name"), context.path + "[].name",
                           "a second scenario called '" + name + "'");
    }
  }
  std::map<std::string, int> made_so_far;
  for (WhatIfConfig& scenario : scenarios) {
    if (!scenario.name.empty()) continue;
    const std::string made = NameOf(scenario);
    int& number = made_so_far[made];
    do {
      ++number;
      scenario.name = number == 1 ? made : made + " #" + std::to_string(number);
    } while (!taken.insert(scenario.name).second);
  }
}

Key WhatIfKey(std::vector<WhatIfConfig>& scenarios) {
  Key key = Entries("what_if", scenarios, &WhatIfSection,
                    "other choices, judged from the histograms; needs histogram_every");
  key.read = [&scenarios, read = key.read](const YamlNode& node, const ReadContext& context) {
    const std::size_t problems = context.problems.count();
    read(node, context);
    // Names are made only of entries that were read whole: list and scenarios then correspond by
    // index.
    if (context.problems.count() == problems) NameScenarios(scenarios, node, context);
  };
  return key;
}

// The globs are checked against the network's layers by run/plan/network_warnings.cpp, hence
// their places.
Key DumpKey(LogConfig& log) {
  Key key = OfItems(PlacedTexts("dump", log.dump, log.dump_where,
                                "globs on the names of the layers that are dumped"),
                    1, std::numeric_limits<std::size_t>::max(),
                    "expected at least one glob on layer names; got an empty list");
  key.unused = [&log] { return log.dump_every == 0; };
  return key;
}

Key StatisticsKey(LogConfig& log) {
  Key key =
      TextList("statistics", log.statistics, {"y", "w", "dx", "dw", "dy", "update", "operands"},
               "tensors with rows in underflow.csv");
  key.Default(
      "[dx, dy, dw], operands where a recipe or precision rounds them, y and w where `activations` "
      "and `weights` have fewer than 16 bits");
  key.read = [&log, read = key.read](const YamlNode& node, const ReadContext& context) {
    log.statistics_given = true;
    read(node, context);
  };
  return key;
}

// What would be asked for and never written.
void CheckLog(const LogConfig& log, const YamlNode& map, const ReadContext& context) {
  const auto add = [&](const char* key, const std::string& message) {
    context.problems.Add(map.FindEntry(key)->key, Join(context.path, key), message);
  };
  // A count of steps with a problem is still 0 or unset in the struct, which says nothing.
  const auto clean = [&](const char* key) {
    const std::string path = Join(context.path, key);
    return context.problems.Clean({path});
  };
  if (!log.what_if.empty() && log.histogram_every.value_or(log.every) == 0 &&
      clean("histogram_every")) {
    add("what_if", "is judged from histograms; set histogram_every, the steps between them");
  }
  if (!map.FindEntry("dump")) return;
  if (log.dump_every == 0 && clean("dump_every")) {
    add("dump", "names layers, but nothing is dumped; set dump_every, the steps between dumps");
  }
}

}  // namespace

Section LogSection(LogConfig& log) {
  Section section;
  section.path = "log";
  section.keys = {
      Integer("every", log.every, FromTo(0, kMostSteps),
              "steps between rows of scales.csv, underflow.csv and timing.csv, step 1 included; 0: "
              "never"),
      StatisticsKey(log),
      Integer("probe_every", log.probe_every, FromTo(0, kMostSteps),
              "steps between probes: the step's gradients in fp32 beside its own, in probes.csv; "
              "0: never"),
      Integer("histogram_every", log.histogram_every, FromTo(0, kMostSteps),
              "steps between rows of histograms.csv, of the tensors in `statistics`; 0: never")
          .Default("200, or the next multiple of `every`; 0 where that is 0"),
      Integer("dump_every", log.dump_every, FromTo(0, kMostSteps),
              "steps between dumps of whole tensors into dump/; 0: never"),
      DumpKey(log),
      Choice("dump_on", log.dump_on, kDumpsOn,
             "skip: the first step whose gradients are not finite also dumps its batch and the "
             "tensors of the layer that it names; alert: the first underflow_alert; every step "
             "until then is slower"),
      WhatIfKey(log.what_if),
      Number("alert_underflow_pct", log.alert_underflow_pct, FromTo(0, 100),
             "an event underflow_alert where a tensor's underflow_pct_nonzero passes this; 0: "
             "never"),
      Switch("tensorboard", log.tensorboard, "write event files for TensorBoard as well"),
  };
  section.check = [&log](const YamlNode& map, const ReadContext& context) {
    CheckLog(log, map, context);
  };
  return section;
}

}  // namespace ada::config

// The key precision.schedule: switches of precision during a training.
// PrecisionAt (precision_schedule.cpp) applies what is read here. Masters, optimizer state, tensor
// scaling and the preset cannot change during a training, so entries do not have their keys.
#include "config/derived.h"
#include "config/sections/sections.h"

namespace ada::config {
namespace {

// Step 1 is as `precision` itself says.
constexpr double kFirstSwitch = 2;

Section SwitchSection(PrecisionSwitchConfig& change) {
  Section section;
  section.path = "precision.schedule[]";
  section.where = &change.where;
  section.keys = {
      Integer("from_step", change.from_step, FromTo(kFirstSwitch, kMostSteps),
              "the first step that is different; `step` as in the logs")
          .Required(),
      FormatKey("format", change.format, "format of activations, weights and gradients"),
  };
  for (Key& key : RoleKeys(change)) section.keys.push_back(std::move(key));
  section.keys.push_back(Entries("layers", change.layers, &LayerPrecisionSection,
                                 "entries that follow those of `precision.layers`")
                             .WrittenIf([&change] { return !change.layers.empty(); }));
  section.keys.push_back(
      Choice("rounding", change.rounding, RoundingNames(), "how values are rounded"));
  section.keys.push_back(Choice("recipe", change.recipe, RecipeNames(),
                                "operands start anew from this recipe; none: from what is stored"));
  section.keys.push_back(OperandsKey(change.operands));
  section.keys.push_back(SwitchedAccumulateKey(change.accumulate));
  // Every key but from_step may be the one that changes something.
  Names all;
  for (Key& key : section.keys) {
    if (key.required) continue;
    key.default_text = "as before";
    all.push_back(key.name);
  }
  section.needs_one = {all, "an entry has to change something"};
  section.check = [&change](const YamlNode& map, const ReadContext& context) {
    FillFromRecipe(change.recipe.value_or(PrecisionRecipe::kNone), change.operands, map, context);
  };
  return section;
}

}  // namespace

// A dry run and a run's report show it; a recipe's name stands for the operands that it filled in.
std::string TextOf(const PrecisionSwitchConfig& change) {
  PrecisionSwitchConfig shown = change;
  const bool by_recipe = shown.recipe && *shown.recipe != PrecisionRecipe::kNone;
  if (by_recipe) shown.operands = OperandsConfig();
  YamlNode node = WriteSection(SwitchSection(shown));
  std::erase_if(node.entries, [](const Entry& entry) { return entry.key.text == "from_step"; });
  return FlowText(node);
}

Key PrecisionScheduleKey(PrecisionConfig& precision) {
  return Entries("schedule", precision.schedule, &SwitchSection,
                 "what is different from a step on, key by key")
      .WrittenIf([&precision] { return !precision.schedule.empty(); });
}

void CheckPrecisionSchedule(const PrecisionConfig& precision, const YamlNode& map,
                            const ReadContext& context) {
  const YamlNode* list = map.Find("schedule");
  // Entries and nodes correspond by index only where each entry was read.
  if (list == nullptr || list->items.size() != precision.schedule.size()) return;
  const bool is_preset = precision.preset != PrecisionPreset::kNone;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < precision.schedule.size(); ++i) {
    const PrecisionSwitchConfig& change = precision.schedule[i];
    const auto refuse = [&](const char* key, const std::string& what) {
      const YamlNode* at = list->items[i].Find(key);
      context.problems.Add(at ? *at : list->items[i], Join(context.path, "schedule[].") + key,
                           what);
    };
    // A from_step of 0 was refused while it was read.
    if (change.from_step > 0 && change.from_step <= last)
      refuse("from_step", "must be above that of the entry before, " + std::to_string(last) +
                              "; got " + std::to_string(change.from_step));
    last = change.from_step;
    if (!is_preset) continue;
    if (change.format && *change.format != kFp16 && *change.format != kBf16)
      refuse("format", "preset autocast needs fp16 or bf16; got " + FormatName(*change.format));
    for (const char* role : {"activations", "weights", "gradients"})
      if (list->items[i].Find(role))
        refuse(role, "preset autocast decides it; `layers` may change single layers");
  }
}

}  // namespace ada::config

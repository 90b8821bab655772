// Compares two settings of a section as they are written, and writes changes of formats as entries
// of precision.layers or as a role's key.
#include "study/config_changes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "config/load.h"
#include "config/sections/sections.h"
#include "io/text.h"
#include "scaling/policies/policies.h"

namespace ada::study {
namespace {

// The value of a key that `then` is written without, since it is the usual one. Empty: the section
// does not take the key, such as one of another policy, which an overlay drops by itself.
std::string ResetValue(const std::string& section, const std::string& key,
                       const config::Config& then) {
  if (key == "layers")
    return section == "precision" || then.scaling.policy == "adaptive" ? "[]" : "";
  if (section == "scaling") {
    if (then.scaling.policy != "adaptive") return "";
    return key == "batch_norm" ? "false" : key == "attention" ? "true" : "";
  }
  if (key == "schedule") return "[]";
  if (key == "operands" || key == "recipe" || key == "preset") return "none";
  // Roles, masters and state are unset where they have the usual format.
  const bool is_role = key == "activations" || key == "weights" || key == "gradients";
  return FormatName(is_role ? then.precision.format : kFp32);
}

// `formats`: a RoleFormatsConfig, which has each role.
template <class Formats>
auto& FormatOfRole(Formats& formats, const std::string& role) {
  return formats.*std::find_if(kFormatRoles.begin(), kFormatRoles.end(), [&](const FormatRole& of) {
                    return role == of.name;
                  })->member;
}

// precision.overflow says whether it saturates.
NumberFormat Plain(NumberFormat format) {
  format.saturate = false;
  return format;
}

// The layer's entry among those after the first `own`.
// Entries that were there before stay as they are: they may match other layers too.
config::LayerPrecisionConfig& EntryOf(std::vector<config::LayerPrecisionConfig>& layers,
                                      const std::string& layer, std::size_t own) {
  for (std::size_t i = own; i < layers.size(); ++i)
    if (layers[i].match == layer) return layers[i];
  layers.emplace_back().match = layer;
  return layers.back();
}

// Whether an entry of precision.schedule sets the format that a change is about.
bool Touches(const config::PrecisionSwitchConfig& part, const FormatChange& change) {
  config::LayerPrecisionConfig all;
  static_cast<config::RoleFormatsConfig&>(all) = part;
  all.format = part.format;
  return SetsRole(all, change.role) ||
         std::any_of(part.layers.begin(), part.layers.end(), [&](const auto& entry) {
           return GlobMatch(entry.match, change.layer) && SetsRole(entry, change.role);
         });
}

// The most frequent format of a role's changes; nothing where an owner keeps its own.
std::optional<NumberFormat> CommonFormat(const std::vector<FormatChange>& changes,
                                         const std::string& role, std::size_t owners) {
  std::size_t layers = 0;
  std::ptrdiff_t most = 0;
  std::optional<NumberFormat> common;
  for (const FormatChange& change : changes) {
    if (change.role != role) continue;
    ++layers;
    const auto same = [&](const FormatChange& c) {
      return c.role == role && c.format == change.format;
    };
    const auto count = std::count_if(changes.begin(), changes.end(), same);
    if (count <= most) continue;
    most = count;
    common = change.format;
  }
  return layers == owners && layers > 1 ? common : std::nullopt;
}

// The one word for all operands; empty where they need a map. A map would be laid over that of the
// run key by key, and leave what it does not name.
std::string OperandsWord(const config::OperandsConfig& operands) {
  const auto& first = operands.by_operand.front();
  if (!first || !first->format || operands.tensor_scaling || operands.hadamard || operands.spared)
    return "";
  const bool same = std::all_of(operands.by_operand.begin(), operands.by_operand.end(),
                                [&](const std::optional<config::OperandConfig>& operand) {
                                  return operand && operand->format == first->format &&
                                         operand->rounding == config::RoundingKind::kNearest;
                                });
  return same ? FormatName(*first->format) : "";
}

}  // namespace

std::string ValueText(const config::Config& config, const char* section, const char* key) {
  const config::YamlNode node = config::ToNode(config);
  return config::FlowText(*node.Find(section)->Find(key));
}

Keys ChangedKeys(const std::string& section, const config::Config& now,
                 const config::Config& then) {
  config::Config filled = then;
  scaling::FillDefaults(filled.scaling);
  const config::YamlNode was = config::ToNode(now), is = config::ToNode(filled);
  Keys keys;
  for (const config::Entry& entry : was.Find(section)->entries) {
    const std::string& key = entry.key.text;
    const config::YamlNode* value = is.Find(section)->Find(key);
    const std::string text =
        value != nullptr ? config::FlowText(*value) : ResetValue(section, key, then);
    if (!text.empty() && text != config::FlowText(entry.value)) keys.emplace_back(key, text);
  }
  return keys;
}

std::string RoleOf(const std::string& tensor) {
  if (tensor == "y" || tensor == "p") return "activations";
  if (tensor == "w") return "weights";
  return tensor == "dw" ? "weight_gradients" : "gradients";
}

bool SetsRole(const config::LayerPrecisionConfig& entry, const std::string& role) {
  if (entry.format && role != "weight_gradients") return true;
  return FormatOfRole(entry, role).has_value();
}

bool PresetDecides(const config::PrecisionConfig& precision, const std::string& role) {
  return precision.preset != config::PrecisionPreset::kNone && role != "weight_gradients";
}

void ApplyFormats(const std::vector<FormatChange>& changes, const Owners& owners,
                  config::PrecisionConfig& precision) {
  const std::size_t own = precision.layers.size();
  for (const auto& [role, layers] : owners) {
    // With entries of its own the run has exceptions that a key of the role would not reach.
    const auto usual = own == 0 && precision.schedule.empty() && !PresetDecides(precision, role)
                           ? CommonFormat(changes, role, layers.size())
                           : std::optional<NumberFormat>();
    if (usual) FormatOfRole(precision, role) = Plain(*usual);
    for (const FormatChange& change : changes)
      if (change.role == role && change.format != usual)
        FormatOfRole(EntryOf(precision.layers, change.layer, own), role) = Plain(change.format);
  }
  for (config::PrecisionSwitchConfig& part : precision.schedule) {
    const std::size_t of_part = part.layers.size();
    for (const FormatChange& change : changes)
      if (Touches(part, change))
        FormatOfRole(EntryOf(part.layers, change.layer, of_part), change.role) =
            Plain(change.format);
  }
}

Keys ScalingKeys(const config::Config& config, const config::Config& run) {
  const scaling::Settings& scaling = config.scaling;
  Keys keys = {{"policy", scaling.policy}};
  if (scaling.policy == "fixed") {
    keys.emplace_back("scale", ShortestText(scaling.scale));
  } else if (scaling.policy == "adaptive") {
    keys.emplace_back("method", "exact_range");
    keys.emplace_back("init_scale", ShortestText(scaling.init_scale.value_or(1)));
    keys.emplace_back("underflow_target", ShortestText(scaling.adaptive.underflow_target));
    keys.emplace_back("headroom_bits", ShortestText(scaling.adaptive.headroom_bits));
    if (scaling.adaptive.batch_norm) keys.emplace_back("batch_norm", "true");
    if (scaling.adaptive.u_min) keys.emplace_back("u_min", ShortestText(*scaling.adaptive.u_min));
  }
  for (auto& [key, value] : ChangedKeys("scaling", run, config))
    if (std::none_of(keys.begin(), keys.end(), [&](const auto& own) { return own.first == key; }))
      keys.emplace_back(key, value);
  return keys;
}

Keys OperandKeys(const AnyFormat& format, const config::Config& run) {
  config::Config then = run;
  auto& operands = then.precision.operands;
  const bool same =
      std::all_of(operands.by_operand.begin(), operands.by_operand.end(),
                  [&](const auto& operand) { return operand && operand->format == format; });
  if (same) return {};
  const std::optional<config::SparedConfig> spared = operands.spared;
  operands = {};
  operands.by_operand.fill(config::OperandConfig{format});
  operands.spared = spared;
  return OperandKeys(std::move(then), run);
}

Keys OperandKeys(config::Config then, const config::Config& run) {
  Keys keys;
  if (run.precision.recipe != config::PrecisionRecipe::kNone) keys.emplace_back("recipe", "none");
  then.precision.recipe = config::PrecisionRecipe::kNone;
  const std::string word = OperandsWord(then.precision.operands);
  keys.emplace_back("operands", !word.empty() ? word : ValueText(then, "precision", "operands"));
  return keys;
}

}  // namespace ada::study

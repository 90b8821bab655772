// Changes of formats as entries of precision.layers or as a role's key, and sections as YAML to
// paste.
#include <algorithm>
#include <optional>

#include "config/load.h"
#include "core/text.h"
#include "study/recommend/parts.h"

namespace ada::study {
namespace {

std::optional<NumberFormat>& FormatOfRole(config::RoleFormatsConfig& formats,
                                          const std::string& role) {
  if (role == "activations") return formats.activations;
  if (role == "weights") return formats.weights;
  return role == "gradients" ? formats.gradients : formats.weight_gradients;
}

// precision.overflow says whether it saturates.
NumberFormat Plain(NumberFormat format) {
  format.saturate = false;
  return format;
}

// The layer's entry among those after the first `own`.
// Entries that were there before stay as they are: they may match other layers too.
config::LayerPrecisionConfig& EntryOf(config::PrecisionConfig& precision, const std::string& layer,
                                      std::size_t own) {
  auto& layers = precision.layers;
  for (std::size_t i = own; i < layers.size(); ++i)
    if (layers[i].match == layer) return layers[i];
  layers.emplace_back().match = layer;
  return layers.back();
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

// The lines of one section of a whole configuration.
// Cut out of the whole document, so that the text is what ToYaml writes and Load reads.
std::string SectionText(const std::string& yaml, const std::string& name) {
  const std::string begin = "\n" + name + ":";
  std::size_t at = ("\n" + yaml).find(begin);
  if (at == std::string::npos) return "";
  std::size_t end = yaml.find('\n', at);
  while (end != std::string::npos && end + 1 < yaml.size() &&
         (yaml[end + 1] == ' ' || yaml[end + 1] == '-'))
    end = yaml.find('\n', end + 1);
  return yaml.substr(at, end == std::string::npos ? end : end + 1 - at);
}

// `scaling:` of a recommendation.
std::string ScalingText(const scaling::Settings& scaling) {
  std::string text = "scaling:\n";
  const auto line = [&text](const std::string& key, const std::string& value) {
    text += "  " + key + ": " + value + "\n";
  };
  if (scaling.policy == "none") {
    line("policy", "none");
  } else if (scaling.policy == "fixed") {
    line("policy", "fixed");
    line("scale", ShortestText(scaling.scale));
  } else {
    line("policy", "adaptive");
    line("method", "exact_range");
    line("init_scale", ShortestText(scaling.init_scale.value_or(1)));
    line("underflow_target", ShortestText(scaling.adaptive.underflow_target));
    line("headroom_bits", ShortestText(scaling.adaptive.headroom_bits));
    if (scaling.adaptive.batch_norm) line("batch_norm", "true");
  }
  return text;
}

}  // namespace

std::string RoleOf(const std::string& tensor) {
  if (tensor == "y" || tensor == "p") return "activations";
  if (tensor == "w") return "weights";
  return tensor == "dw" ? "weight_gradients" : "gradients";
}

bool PresetDecides(const config::PrecisionConfig& precision, const std::string& role) {
  return precision.preset != config::PrecisionPreset::kNone && role != "weight_gradients";
}

void ApplyFormats(const std::vector<FormatChange>& changes, const Owners& owners,
                  config::PrecisionConfig& precision) {
  const std::size_t own = precision.layers.size();
  for (const auto& [role, layers] : owners) {
    // With entries of its own the run has exceptions that a key of the role would not reach.
    const auto usual = own == 0 && !PresetDecides(precision, role)
                           ? CommonFormat(changes, role, layers.size())
                           : std::optional<NumberFormat>();
    if (usual) FormatOfRole(precision, role) = Plain(*usual);
    for (const FormatChange& change : changes)
      if (change.role == role && change.format != usual)
        FormatOfRole(EntryOf(precision, change.layer, own), role) = Plain(change.format);
  }
}

std::string FragmentOf(const config::Config& config, bool with_scaling, bool with_precision) {
  return (with_scaling ? ScalingText(config.scaling) : "") +
         (with_precision ? SectionText(config::ToYaml(config), "precision") : "");
}

}  // namespace ada::study

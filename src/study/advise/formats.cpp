// Changes of formats, each at the key that decides: a role's own, or an entry of precision.layers.
#include <algorithm>

#include "io/text.h"
#include "judge/scale_path.h"
#include "study/advise/run_record.h"
#include "study/config_changes.h"

namespace ada::study {
namespace {

// The layer whose entries in precision.layers are asked for the tensor's format. A gradient has the
// format of the layer that made its value, which need not be the one it is named after
// (judge/scale_path.h).
std::string OwnerOf(const config::Config& config, const std::string& layer,
                    const std::string& tensor) {
  return CarriesS(tensor) ? judge::ScalePath(config.model).FormatOwner(layer, tensor) : layer;
}

}  // namespace

std::string ShortNumber(double value) {
  const std::string shortest = ShortestText(value);
  return shortest.size() <= 6 ? shortest : Formatted("%.3g", value);
}

// A format with fp32's exponents loses digits and not range, so only fp32 is wider than it.
std::optional<NumberFormat> Wider(const NumberFormat& format) {
  if (format == kFp32) return std::nullopt;
  return format.exponent_bits >= kBf16.exponent_bits ? kFp32 : kBf16;
}

Keys ExactRange(const config::Config& config, std::optional<double> init_scale) {
  const scaling::Settings& now = config.scaling;
  Keys keys = {{"policy", "adaptive"}, {"method", "exact_range"}};
  if (!init_scale && now.policy != "adaptive") init_scale = 1;
  if (init_scale) keys.emplace_back("init_scale", ShortestText(*init_scale));
  if (now.reference) keys.emplace_back("reference", "false");
  if (now.policy == "adaptive" && !now.layers.empty()) keys.emplace_back("layers", "[]");
  return keys;
}

Advice FormatAdvice(const config::Config& config, const std::string& layer,
                    const std::string& tensor, const NumberFormat& format) {
  const std::string role = RoleOf(tensor), owner = OwnerOf(config, layer, tensor);
  const std::vector<config::LayerPrecisionConfig>& entries = config.precision.layers;
  const bool preset = PresetDecides(config.precision, role);
  const bool is_set = std::any_of(entries.begin(), entries.end(), [&](auto& e) {
    return GlobMatch(e.match, owner) && SetsRole(e, role);
  });
  Advice advice{"precision", {{role, FormatName(format)}}, ""};
  if (is_set || preset || !config.precision.schedule.empty()) {
    config::Config changed = config;
    // The entry goes to the end of the list, since the last match wins; the list is written as a
    // whole.
    ApplyFormats({{owner, role, format, {}}}, {{role, {owner}}}, changed.precision);
    advice.keys = {{"layers", ValueText(changed, "precision", "layers")}};
    for (auto& [key, value] : ChangedKeys("precision", config, changed))
      if (key == "schedule") advice.keys.emplace_back(key, value);
  }
  advice.mends = {layer + "." + tensor};
  return advice;
}

Advice PlainOperands(const config::Config& config, const std::vector<std::string>& layers) {
  const auto gives_attention = [](const auto& part) {
    const auto& attention = part.operands.attention;
    return std::any_of(attention.begin(), attention.end(), [](const auto& one) { return !!one; });
  };
  config::Config changed = config;
  auto& entries = changed.precision.layers;
  const bool attention = gives_attention(config.precision) ||
                         std::any_of(entries.begin(), entries.end(), gives_attention);
  for (const std::string& layer : layers) {
    config::LayerPrecisionConfig& entry = entries.emplace_back();
    entry.match = layer;
    entry.operands.by_operand.fill(config::OperandConfig());
    if (attention) entry.operands.attention.fill(config::OperandConfig());
  }
  return {"precision", {{"layers", ValueText(changed, "precision", "layers")}}, ""};
}

}  // namespace ada::study

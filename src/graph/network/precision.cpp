#include "graph/network/precision.h"

#include "core/text.h"

namespace ada::graph {
namespace {

using config::PrecisionConfig;

void Apply(const config::RoleFormatsConfig& roles, LayerFormats& formats) {
  if (roles.activations) formats.activations = *roles.activations;
  if (roles.weights) formats.weights = *roles.weights;
  if (roles.gradients) formats.gradients = *roles.gradients;
  if (roles.weight_gradients) formats.weight_gradients = *roles.weight_gradients;
}

bool StaysWide(config::WithinAttention kept) { return kept == config::WithinAttention::kFp32; }

LayerFormats BaseFormats(const PrecisionConfig& precision) {
  const NumberFormat& format = precision.format;
  LayerFormats formats{format, format, format, kFp32};
  Apply(precision, formats);
  return formats;
}

LayerFormats Finish(const PrecisionConfig& precision, LayerFormats formats) {
  if (precision.overflow != config::OverflowKind::kSaturate) return formats;
  for (NumberFormat* format :
       {&formats.activations, &formats.weights, &formats.gradients, &formats.weight_gradients}) {
    if (*format != kFp32) format->saturate = true;
  }
  return formats;
}

}  // namespace

LayerFormats FormatsFrom(const PrecisionConfig& precision, const std::string& layer,
                         const LayerFormats& start) {
  LayerFormats formats = start;
  if (precision.weight_gradients) formats.weight_gradients = *precision.weight_gradients;
  for (const config::LayerPrecisionConfig& entry : precision.layers) {
    if (!GlobMatch(entry.match, layer)) continue;
    if (entry.format) formats.activations = formats.weights = formats.gradients = *entry.format;
    Apply(entry, formats);
    if (entry.probabilities) formats.wide_probabilities = StaysWide(*entry.probabilities);
    if (entry.score_gradients) formats.wide_score_gradients = StaysWide(*entry.score_gradients);
  }
  return Finish(precision, formats);
}

LayerFormats FormatsOf(const PrecisionConfig& precision, const std::string& layer) {
  return FormatsFrom(precision, layer, BaseFormats(precision));
}

Precision ResolvePrecision(const PrecisionConfig& precision, bool policy_owns_gradients) {
  const config::TensorScalingConfig& scaling = precision.tensor_scaling;
  Precision result;
  result.base = Finish(precision, BaseFormats(precision));
  result.formats_of = [precision](const std::string& layer) { return FormatsOf(precision, layer); };
  if (precision.preset != config::PrecisionPreset::kNone) {
    result.autocast = precision.format;
    result.autocast_on_cpu = precision.preset == config::PrecisionPreset::kAutocastCpu;
    result.formats_from = [precision](const std::string& layer, const LayerFormats& start) {
      return FormatsFrom(precision, layer, start);
    };
  }
  result.stochastic = precision.rounding == config::RoundingKind::kStochastic;
  result.scaled_forward = scaling.kind == config::TensorScalingConfig::Kind::kDelayed;
  result.scaled_backward = result.scaled_forward && !policy_owns_gradients;
  result.scaled_saturate = precision.overflow != config::OverflowKind::kFormat;
  result.tensor_scale = scaling;
  return result;
}

}  // namespace ada::graph
